package launch

import (
	"testing"

	"lcache/internal/plan"
	"lcache/internal/serve/status"
	"lcache/internal/store/cache"
	"lcache/internal/verdict"
)

func seconds(s float64) *float64 { return &s }

func TestFactsOf(t *testing.T) {
	job := status.Job{SamplesDelivered: 3000, Samples: 1000, DatasetBytes: 100e6, KeptBytes: 100e6, Recipe: "torch.randperm"}
	epoch := func(n int, misses int64, seconds, stall float64, wait *float64) status.Epoch {
		return status.Epoch{Epoch: n, Seconds: seconds, Hits: 1000 - misses, Misses: misses, StallSeconds: stall, LoopWaitSeconds: wait, LogReadBytes: 100e6, LogWriteBytes: 1}
	}
	doc := func(epochs ...status.Epoch) status.Document {
		job.EpochsDone = epochs
		return status.Document{Cache: status.Cache{Dirs: []string{"/a", "/b"}}, Jobs: []status.Job{job}}
	}
	f := factsOf(0, doc(epoch(0, 900, 40, 30, nil), epoch(1, 10, 10, 1, nil), epoch(2, 0, 10, 2, nil)), 3, 7, cache.Disk{})
	f.CPUs = 0
	want := verdict.Facts{Delivered: 3000, Since: 1, Seconds: 20, Samples: 2000, Misses: 10, Stall: 3, Ready: 3, Kept: 100e6, Dataset: 100e6, Needed: f.Needed,
		DiskRate: 10e6, DiskLimit: 7, Recipe: "torch.randperm", Cache: "/a,/b"}
	if f != want {
		t.Errorf("the epoch that fills counts:\n got %+v\nwant %+v", f, want)
	}
	// The cache was filled before, so all epochs count. The loop reported its waits, so they count as a share of the time that the server saw.
	f = factsOf(0, doc(epoch(0, 0, 10, 1, seconds(5)), epoch(1, 0, 10, 1, seconds(6))), 0, 0, cache.Disk{})
	if f.Since != 0 || f.Samples != 2000 || f.LoopWait != 11 || f.Stall != 2 || f.LoopSeconds != 20 {
		t.Errorf("got %+v", f)
	}
	// The loop's own time, whether it is more or less than the server's.
	longer, shorter := epoch(0, 0, 10, 1, seconds(5)), epoch(0, 0, 10, 1, seconds(5))
	longer.LoopSeconds, shorter.LoopSeconds = seconds(12), seconds(7)
	if f = factsOf(0, doc(longer, shorter), 0, 0, cache.Disk{}); f.LoopSeconds != 19 || f.Seconds != 20 {
		t.Errorf("got %+v", f)
	}
	// Reported for a part only: the server's own figures are of one kind.
	if f = factsOf(0, doc(epoch(0, 0, 10, 1, seconds(5)), epoch(1, 0, 10, 1, nil)), 0, 0, cache.Disk{}); f.Stall != 2 || f.LoopWait != 0 || f.LoopSeconds != 0 {
		t.Errorf("got %+v", f)
	}
	if f = factsOf(0, doc(epoch(0, 900, 40, 30, nil)), 0, 0, cache.Disk{}); !f.Filling || f.Since != 0 || f.Samples != 1000 {
		t.Errorf("the first alone: %+v", f)
	}
	if f = factsOf(0, status.Document{}, 0, 0, cache.Disk{}); f.Delivered != 0 {
		t.Errorf("got %+v", f)
	}
}

// TestLimitOfTheKeptFacts: the limit comes from the saved measurement of a disk, for the request size and the writes of the epoch.
func TestLimitOfTheKeptFacts(t *testing.T) {
	disk := cache.Disk{From: "measured on 25 Nov 2026", Line: plan.DiskLine{ReadBPS: 500e6, WriteBPS: 500e6, CombinedBPS: 600e6, ReadIOPS: 5000}}
	for _, c := range []struct {
		read, ops, written int64
		want               float64
	}{
		{100e6, 100, 0, 500e6},     // large reads alone
		{100e6, 100, 100e6, 300e6}, // reads mixed with writes
		{100e6, 10_000, 0, 50e6},   // small reads
		{0, 0, 100e6, 0},           // nothing was read
	} {
		e := status.Epoch{Seconds: 1, Hits: 1, LogReadBytes: c.read, LogReadOps: c.ops, LogWriteBytes: c.written}
		s := status.Document{Jobs: []status.Job{{SamplesDelivered: 1, EpochsDone: []status.Epoch{e}}}}
		if got := factsOf(0, s, 0, 0, disk).DiskLimit; got < 0.99*c.want || got > 1.01*c.want {
			t.Errorf("%+v: got %.0f", c, got)
		}
		if got := factsOf(0, s, 0, 7, disk).DiskLimit; got != 7 {
			t.Errorf("%+v: --facts says 7, got %.0f", c, got)
		}
	}
}

// TestLoopThatReportsNothing: zeros are not a report.
func TestLoopThatReportsNothing(t *testing.T) {
	e := status.Epoch{Seconds: 10, Hits: 1, LoopWaitSeconds: seconds(0), LoopSeconds: seconds(0)}
	s := status.Document{Jobs: []status.Job{{SamplesDelivered: 1, EpochsDone: []status.Epoch{e}}}}
	if f := factsOf(0, s, 0, 0, cache.Disk{}); f.LoopSeconds != 0 || verdict.Judge(f).Cause != verdict.Unknown {
		t.Errorf("got %+v, %+v", f, verdict.Judge(f))
	}
}
