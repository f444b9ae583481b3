package engine

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"lcache/ingest"
	"lcache/sample"
)

// TestDigestsAreNotWaitedFor: an epoch ends, and the next one is read, while a digest is being computed. The status document has the digests as soon as they are there.
func TestDigestsAreNotWaitedFor(t *testing.T) {
	d := makeDataset(t, 200, func(r *rand.Rand, _ int) int { return 1000 + r.IntN(9000) })
	j := samplerJob(3, 16, 2, false)
	o, _ := ingested(t, d, ingest.Options{Job: j, Block: 128 << 10, Memory: 24 << 20})
	e := open(t, o)
	defer closeEngine(t, e)
	release := make(chan struct{})
	e.digests.add(e.builders.Go, func() { <-release })
	d.readEpochs(t, e, j, 0, 2)
	if done := e.Status().Jobs[0].EpochsDone; len(done) != 2 || done[1].OrderDigest != nil {
		t.Errorf("with a digest on its way: %+v", done)
	}
	close(release)
	done := e.Status().Jobs[0].EpochsDone
	for k := range done {
		if done[k].OrderDigest == nil || done[k].RequestedDigest == nil || k > 0 && *done[k].OrderDigest == *done[k-1].OrderDigest {
			t.Errorf("epoch %d: no digest of its own: %+v", k, done[k])
		}
	}
}

// TestDigester: work runs in its order, no more of it is queued than there is room for, and waiting has a limit.
func TestDigester(t *testing.T) {
	var d digester
	d.wait(time.Minute) // for nothing
	release, ended := make(chan struct{}), make(chan struct{})
	start := func(f func()) { go func() { f(); close(ended) }() }
	d.add(start, func() { <-release })
	var ran []int
	added := 0
	for i := range 2 * mostDigests {
		if d.add(start, func() { ran = append(ran, i) }) {
			added++
		}
	}
	if added < mostDigests-1 || added > mostDigests {
		t.Errorf("%d queued, want about %d", added, mostDigests)
	}
	d.wait(time.Millisecond)
	close(release)
	d.wait(time.Minute)
	<-ended
	if len(ran) != added || !slices.IsSorted(ran) {
		t.Errorf("ran %v of %d", ran, added)
	}
	if order := digestOf([]rankBatches{{[]uint64{1}, func(int) ([]sample.Index, bool) { return nil, false }}}); order != nil {
		t.Errorf("the digest of an unknown order is %s", *order)
	}
}
