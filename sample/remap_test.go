package sample

import (
	"fmt"
	"testing"
)

// A sample has the same bytes only if its parts follow each other in the same order, and its shard, whose version may be a time in whole seconds, has the same size.
func TestRemapShards(t *testing.T) {
	list := func(size uint64, exts ...string) *Manifest {
		s := &Shard{Name: "s.tar", Size: size, Version: 7}
		parts, offsets := []Part{}, []uint64{}
		for i, ext := range exts {
			parts, offsets = append(parts, Part{Ext: ext, Size: 10}), append(offsets, uint64(512*(2*i+1)))
		}
		return openTemp(t, nil, []Entry{{Name: "s.tar/a", Size: uint32(10 * len(exts)), Version: 7, Parts: parts, Offsets: offsets, Shard: s}})
	}
	old := list(10240, "jpg", "txt")
	for name, c := range map[string]struct {
		now  *Manifest
		want Index
	}{
		"the same":      {list(10240, "jpg", "txt"), 0},
		"other size":    {list(20480, "jpg", "txt"), None},
		"another order": {list(10240, "txt", "jpg"), None},
		"another part":  {list(10240, "jpg", "cls"), None},
	} {
		got, err := Remap(old, c.now)
		if err != nil || fmt.Sprint(got) != fmt.Sprint([]Index{c.want}) {
			t.Errorf("%s: %v, %v; want %d", name, got, err, c.want)
		}
	}
}
