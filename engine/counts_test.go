package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"lcache/internal/store/ingest"
)

func TestReport(t *testing.T) {
	j := samplerJob(2, 64, 2, false)
	d := makeDataset(t, 300, mixedSizes)
	o, _ := ingested(t, d, ingest.Options{Job: j, Block: 128 << 10, Memory: 24 << 20})
	e := open(t, o)
	defer closeEngine(t, e)
	s := e.Status().Jobs[0]
	if s.LoopWaitSeconds != nil || s.LoopSeconds != nil || s.DecodeSeconds != nil || s.BoundBy != "unknown" {
		t.Errorf("before any report: %v %v %v %s, want null and unknown", s.LoopWaitSeconds, s.LoopSeconds, s.DecodeSeconds, s.BoundBy)
	}
	for _, r := range []Report{
		{Epoch: 0, Rank: 0, LoopWait: 1, Loop: 10, Workers: 4},
		{Epoch: 0, Rank: 1, LoopWait: 3, Loop: 9, Decode: 0.5, Workers: 2},
		{Epoch: -1, Decode: 2},
		{Epoch: 0, Rank: 1, LoopWait: 0.5, Loop: 2, Workers: 2},
	} {
		if err := e.Report(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Report(Report{Rank: 2, LoopWait: 100, Loop: 100}); err == nil {
		t.Error("a rank that is not served here may report")
	}
	d.readEpochs(t, e, j, 0, 2)
	// The last report of epoch 1 arrives when the server has finished with that epoch.
	if err := e.Report(Report{Epoch: 1, Rank: 0, LoopWait: 0.25, Loop: 1, Workers: 4}); err != nil {
		t.Fatal(err)
	}
	s = e.Status().Jobs[0]
	if got := []float64{*s.LoopWaitSeconds, *s.LoopSeconds, *s.DecodeSeconds}; !slices.Equal(got, []float64{3.5, 11, 2.5}) || s.LoopWorkers != 6 {
		t.Errorf("waited, loop, decode %v with %d workers, want the longest rank's 3.5 and 11, 2.5 of all together, 6", got, s.LoopWorkers)
	}
	ranks, epochs := map[int]float64{}, map[int][2]float64{}
	for _, r := range s.Ranks {
		ranks[r.Rank] = *r.LoopWaitSeconds
	}
	for _, ep := range s.EpochsDone {
		epochs[ep.Epoch] = [2]float64{*ep.LoopWaitSeconds, *ep.LoopSeconds}
	}
	if want := map[int]float64{0: 1.25, 1: 3.5}; !maps.Equal(ranks, want) {
		t.Errorf("ranks waited %v, want %v", ranks, want)
	}
	if want := map[int][2]float64{0: {3.5, 11}, 1: {0.25, 1}}; !maps.Equal(epochs, want) {
		t.Errorf("epochs waited and lasted %v, want %v", epochs, want)
	}
}

// TestBatchesWithoutPositions: batches that a loop received before it sent positions count as delivered. The epoch ends once, with its whole digest.
func TestBatchesWithoutPositions(t *testing.T) {
	j := samplerJob(1, 64, 1, false)
	d := makeDataset(t, 300, mixedSizes)
	o, _ := ingested(t, d, ingest.Options{Job: j, Block: 128 << 10, Memory: 24 << 20})
	e := open(t, o)
	defer closeEngine(t, e)
	for _, r := range []Report{
		{Epoch: 0, First: 5, Had: 1 << 40}, // 300 samples are 5 batches
		{Epoch: 1, First: 0, Had: 1},
		{Epoch: 1 << 31, First: 0, Had: 1},
	} {
		if err := e.Report(r); err != nil {
			t.Fatal(err)
		}
	}
	if s := e.Status().Jobs[0]; len(s.Ranks) != 1 || s.Ranks[0].Position != 0 || s.Ranks[0].Epoch != 0 {
		t.Errorf("batches that no order has moved rank 0: %+v", s.Ranks)
	}
	if err := e.Report(Report{Epoch: 0, First: 0, Had: 2}); err != nil {
		t.Fatal(err)
	}
	if s := e.Status().Jobs[0]; s.Ranks[0].Position != 2 {
		t.Errorf("rank 0 is at batch %d, want 2", s.Ranks[0].Position)
	}
	c := attach(t, e)
	defer c.Disconnected()
	if _, err := d.readPaced(e, c, 0, 0, 2, func(int) {}); err != nil {
		t.Fatal(err)
	}
	digest := sha256.New()
	for _, index := range d.want(t, j, 0, 0) {
		digest.Write(binary.LittleEndian.AppendUint32(nil, index))
	}
	done := e.Status().Jobs[0].EpochsDone
	if want := hex.EncodeToString(digest.Sum(nil)); len(done) != 1 || done[0].OrderDigest == nil || *done[0].OrderDigest != want {
		t.Errorf("epochs done %+v, want one with digest %s", done, want)
	}
}

// TestDigestsAreNotWaitedFor: an epoch ends, and the next one is read, while a digest is being computed. The status document has the digests as soon as they are there.
func TestDigestsAreNotWaitedFor(t *testing.T) {
	d := makeDataset(t, 200, func(r *rand.Rand, _ int) int { return 1000 + r.IntN(9000) })
	j := samplerJob(3, 16, 2, false)
	o, _ := ingested(t, d, ingest.Options{Job: j, Block: 128 << 10, Memory: 24 << 20})
	e := open(t, o)
	defer closeEngine(t, e)
	release := make(chan struct{})
	e.digests.Add(e.builders.Go, func() { <-release })
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
