package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"lcache/ingest"
	"lcache/internal/serve/status"
	"lcache/verdict"
)

// TestBoundBy: the verdict is of what was counted in the period. What follows from which facts is told in verdict's stories.
func TestBoundBy(t *testing.T) {
	p := period{seconds: 100, samples: 1000, misses: 20, stall: 30, idle: 60, loop: loopTotals{wait: 30, loop: 99, decode: 5, workers: 2}}
	want := verdict.Facts{Delivered: 1000, Seconds: 100, Samples: 1000, Misses: 20, Stall: 30, Idle: 60, LoopSeconds: 99, LoopWait: 30}
	if got := p.facts(); got != want {
		t.Errorf("facts %+v, want %+v", got, want)
	}
	if got := boundBy(p); got != "disk" {
		t.Errorf("bound by %s, want disk: the loop waits, batches do not lie ready, and the source is hardly read", got)
	}
	p.loop = loopTotals{}
	if got := boundBy(p); got != "consumer" {
		t.Errorf("bound by %s, want consumer: nothing was reported, and more lay ready than was missing", got)
	}
	if got := boundBy(period{}); got != "unknown" {
		t.Errorf("bound by %s, want unknown: nothing was asked for", got)
	}
}

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
	// The last of epoch 1 comes when the server has nothing to do with it any more.
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

// TestBatchesWithoutPlaces: what a loop had before it said its places counts as delivered, and the epoch is over once, with its whole digest.
func TestBatchesWithoutPlaces(t *testing.T) {
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
	if s := e.Status().Jobs[0]; len(s.Ranks) != 1 || s.Ranks[0].Position != 0 || len(e.owner.counts.open) != 0 {
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

// TestReportsAreBounded: numbers that a client makes up take no memory without end.
func TestReportsAreBounded(t *testing.T) {
	var s reports
	for n := range mostReported + 10 {
		s.add(Report{Epoch: n, Rank: n, LoopWait: 1})
	}
	if len(s.ranks) != mostReported || len(s.epochs) > 2*keepClosed {
		t.Errorf("%d ranks and %d epochs are kept", len(s.ranks), len(s.epochs))
	}
	latest := status.Epoch{Epoch: mostReported - 1}
	if s.fillEpoch(&latest); latest.LoopWaitSeconds == nil || *latest.LoopWaitSeconds != 1 {
		t.Errorf("the latest epoch is not among them: %+v", latest)
	}
}

func TestPeriod(t *testing.T) {
	then := totals{at: time.Unix(100, 0), samples: 5, misses: 2, stall: time.Second, idle: time.Second, loop: loopTotals{wait: 1, loop: 10, decode: 3}}
	now := totals{at: time.Unix(130, 0), samples: 11, misses: 3, stall: 3 * time.Second, idle: 5 * time.Second, loop: loopTotals{wait: 4, loop: 30, decode: 5}}
	want := period{seconds: 30, samples: 6, misses: 1, stall: 2, idle: 4, loop: loopTotals{wait: 3, loop: 20, decode: 2}}
	if got := now.since(then); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
