package source

import (
	"fmt"
	"runtime"
	"testing"

	"lcache/sample"
	"lcache/source/internal/tarshard"
)

// TestShardListingMemory limits the memory of a listing of shards to 46 bytes per sample in addition to its key: 12,
// and 16 for each of its two parts.
func TestShardListingMemory(t *testing.T) {
	const shards, each = 10, 4_000
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, keys := heap(), int64(0)
	all := make([]*members, shards)
	for k := range all {
		var found []tarshard.Member
		for i := range each {
			key := fmt.Sprintf("c%02d/%06d", i%100, i)
			keys += int64(len(key))
			for p, ext := range []string{".jpg", ".cls"} {
				found = append(found, tarshard.Member{Name: key + ext, Off: int64(512 * (4*i + 2*p + 1)), Size: 100, Text: fmt.Sprint(i)})
			}
		}
		samples, _, err := tarshard.Group("x.tar", found, func(string) bool { return true })
		all[k] = &members{shard: &sample.Shard{Name: fmt.Sprintf("%d.tar", k), Size: 512 * (4*each + 2)}}
		if err == nil {
			err = all[k].take(samples, "")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	rows := newShardRows(all)
	if bytes := (heap() - before - keys) / int64(rows.Len()); rows.Len() != shards*each || bytes > 46 {
		t.Errorf("%d samples, each takes %d bytes in addition to its key", rows.Len(), bytes)
	}
	e := rows.At(3*each + 7)
	if got := fmt.Sprint(e.Name, e.Size, e.Label, e.Parts, e.Offsets, e.Shard.Name); got != "3.tar/c07/000007200 7 [{jpg 100 0} {cls 100 0}] [14848 15872]3.tar" {
		t.Errorf("the eighth of the fourth shard is %s", got)
	}
	runtime.KeepAlive(all)
}
