package count

import (
	"slices"
	"testing"
	"time"

	"lcache/sample"
)

// TestDigester: work runs in order, the queue is bounded, and waiting has a limit.
func TestDigester(t *testing.T) {
	var d Digester
	d.Wait(time.Minute) // for nothing
	release, ended := make(chan struct{}), make(chan struct{})
	start := func(f func()) { go func() { f(); close(ended) }() }
	d.Add(start, func() { <-release })
	var ran []int
	added := 0
	for i := range 2 * mostDigests {
		if d.Add(start, func() { ran = append(ran, i) }) {
			added++
		}
	}
	if added < mostDigests-1 || added > mostDigests {
		t.Errorf("%d queued, want about %d", added, mostDigests)
	}
	d.Wait(time.Millisecond)
	close(release)
	d.Wait(time.Minute)
	<-ended
	if len(ran) != added || !slices.IsSorted(ran) {
		t.Errorf("ran %v of %d", ran, added)
	}
	if order := Digest([]Batches{{[]uint64{1}, func(int) ([]sample.Index, bool) { return nil, false }}}); order != nil {
		t.Errorf("the digest of an unknown order is %s", *order)
	}
}
