package main

import (
	"path/filepath"
	"strings"
	"testing"

	"lcache/doctor"
	"lcache/engine"
)

// TestJudge forces each stage in turn: what is asked later in the order is forced too, and must not be answered.
func TestJudge(t *testing.T) {
	// Everything is wrong at once; each case takes away what comes before it in the order.
	all := runFacts{Samples: 1000, Since: 1, Epochs: 7, Seconds: 100, Wait: 30, Stall: 30, Hits: 500, Misses: 500, Kept: 50e9, Dataset: 100e9, Needed: 103e9,
		Disk: 500e6, DiskRate: 480e6, Divergences: 3, First: &engine.Divergence{Epoch: 2, Rank: 1, Batch: 7}, Recipe: "torch.random_sampler", Cache: "/nvme/my train"}
	with := func(change func(f *runFacts)) runFacts {
		f := all
		change(&f)
		return f
	}
	decoding := func(wait, decode float64, workers, loops, cpus int) func(f *runFacts) {
		return func(f *runFacts) {
			f.Stall, f.Ready, f.Loop, f.LoopWait, f.Decode = 1, 24, seconds(100), seconds(wait), seconds(decode)
			f.Workers, f.Loops, f.CPUs = workers, loops, cpus
		}
	}
	for _, c := range []struct {
		name                 string
		facts                runFacts
		stage, bound, change string
	}{
		{"nothing was asked for", with(func(f *runFacts) { f.Samples = 0 }), "unknown",
			"by nothing of lcache: no sample was asked for", "read through it: lcache.connect() in Python, or lcache.torch with this source"},
		{"no epoch", with(func(f *runFacts) { f.Epochs, f.Seconds = 0, 0 }), "unknown", "not known: no epoch came to its end", "nothing"},
		{"not the data", with(func(f *runFacts) { f.Wait, f.Ready = 1.9, 24 }), "loop",
			"by the training loop since epoch 1: lcache had 24 batches ready; lcache cannot make this faster", "nothing"},
		{"not the data, one epoch", with(func(f *runFacts) { f.Wait, f.Since, f.Ready = 0, 0, 1 }), "loop",
			"by the training loop: lcache had 1 batch ready; lcache cannot make this faster", "nothing"},
		{"ready, but late in the loop", with(func(f *runFacts) { f.Stall, f.Ready = 1, 24.6 }), "decode",
			"by decoding or the loader's workers since epoch 1: lcache had 24 batches ready", "more workers (num_workers), or less work for each sample"},
		{"decoding, as the loop tells", with(decoding(43, 8*71, 8, 1, 64)), "decode",
			"by decoding since epoch 1: lcache had 24 batches ready", "decode takes 71 %: num_workers 8 → 15"},
		{"decoding, several ranks", with(decoding(43, 16*71, 16, 2, 64)), "decode",
			"by decoding since epoch 1: lcache had 24 batches ready", "decode takes 71 %: num_workers 8 → 15"},
		{"decoding, in the loop", with(decoding(43, 71, 0, 1, 64)), "decode",
			"by decoding since epoch 1: lcache had 24 batches ready", "decode takes 71 % of the loop's time, and in the loop itself: give the loader workers (num_workers)"},
		{"decoding, on all CPUs", with(decoding(43, 8*71, 8, 1, 8)), "decode",
			"by decoding since epoch 1: lcache had 24 batches ready", "decode takes 71 % of 8 workers on 8 CPUs: less work for each sample"},
		{"workers that do something else", with(decoding(100, 2*20, 2, 1, 8)), "decode",
			"by decoding or the loader's workers since epoch 1: lcache had 24 batches ready", "decode takes 20 %: num_workers 2 → 8"},
		{"a job of one epoch", with(func(f *runFacts) { f.Filling, f.Single, f.Since, f.Kept = true, true, 0, 100e9 }), "source",
			"by the source, which a job of one epoch reads once: 50 % of the samples came from there", "nothing"},
		{"the first epoch alone", with(func(f *runFacts) { f.Filling, f.Since, f.Kept = true, 0, 100e9 }), "source",
			"by the source, in the one epoch that reads it: 50 % of the samples came from there", "nothing: the next epoch finds them in the log"},
		{"budget", all, "budget",
			"by the source since epoch 1: the budget keeps 50 % of the dataset (c = 0.50), and 50 % of the samples came from the source",
			"give --budget 103GB or more: all of it then comes from the disk"},
		{"after a crash", with(func(f *runFacts) { f.Kept, f.Stale = 100e9, 1 }), "source",
			"by the source since epoch 1: 50 % of the samples came from there", "nothing: a crash had left 1 sample unfinished in the log, which the source has replaced"},
		{"misses unexplained", with(func(f *runFacts) { f.Kept = 100e9 }), "source",
			"by the source since epoch 1: 50 % of the samples came from there, though the cache keeps all",
			"look for ! in lcache status while it runs, and run lcache verify --cache '/nvme/my train'"},
		{"disk", with(func(f *runFacts) { f.Hits, f.Misses = 1000, 0 }), "disk",
			"by the disk since epoch 1: 480 MB/s of the 500 MB/s that it was measured to give", "a faster disk, or one more: --cache DIR,DIR deals the blocks over both"},
		{"order", with(func(f *runFacts) { f.Misses, f.DiskRate = 0, 100e6 }), "order",
			"by the order since epoch 1: 3 requests asked for another one than planned, first at epoch 2 rank 1 batch 7 sample 0",
			"give the recipe, seed, batch size and world size of the training; it was not torch.random_sampler with these flags"},
		{"order, no recipe", with(func(f *runFacts) { f.Misses, f.Disk, f.Recipe, f.First, f.Divergences = 0, 0, "", nil, 1 }), "order",
			"by the order since epoch 1: 1 request asked for another one than planned", "run it again without --recipe: the loader's own order is then used as soon as it is known"},
		{"disk not measured", with(func(f *runFacts) { f.Misses, f.Disk, f.Divergences = 0, 0, 0 }), "unknown",
			"not known since epoch 1: the loop waited 30 %; it may be the disk, whose limit was not measured",
			"measure it, lcache doctor --cache '/nvme/my train' --save facts.json, and run again with --facts facts.json"},
		{"unknown", with(func(f *runFacts) { f.Misses, f.DiskRate, f.Divergences = 0, 100e6, 0 }), "unknown",
			"not known since epoch 1: the loop waited 30 %, and neither misses nor the disk nor another order explain it",
			"send the output of lcache doctor --cache '/nvme/my train' and of lcache status --json while it runs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, want := judge(c.facts), (runVerdict{c.stage, c.bound, c.change}); got != want {
				t.Errorf("got\n%+v\nwant\n%+v", got, want)
			}
		})
	}
}

// TestJudgeEdges: the shares themselves still count as nothing or as the limit.
func TestJudgeEdges(t *testing.T) {
	for _, c := range []struct {
		name  string
		facts runFacts
		stage string
	}{
		{"2 % is waiting", runFacts{Wait: 2, Stall: 2}, "unknown"},
		{"of the loop's time, not of the server's", runFacts{Wait: 2, Stall: 2, Lasted: 101}, "loop"},
		{"2 % stalled is not ready", runFacts{Wait: 5, Stall: 2}, "unknown"},
		{"2 % of misses are few", runFacts{Wait: 5, Stall: 5, Hits: 98, Misses: 2}, "unknown"},
		{"3 % are not", runFacts{Wait: 5, Stall: 5, Hits: 97, Misses: 3}, "source"},
		{"nine tenths of the disk", runFacts{Wait: 5, Stall: 5, Disk: 100, DiskRate: 90}, "disk"},
		{"less is not its limit", runFacts{Wait: 5, Stall: 5, Disk: 100, DiskRate: 89}, "unknown"},
	} {
		c.facts.Samples, c.facts.Epochs, c.facts.Seconds = 1, 1, 100
		if got := judge(c.facts).Stage; got != c.stage {
			t.Errorf("%s: got %s, want %s", c.name, got, c.stage)
		}
	}
}

func TestFactsOf(t *testing.T) {
	job := engine.JobStatus{SamplesDelivered: 3000, Samples: 1000, DatasetBytes: 100e6, KeptBytes: 100e6, Recipe: "torch.randperm"}
	epoch := func(n int, misses int64, seconds, stall float64, wait *float64) engine.EpochDone {
		return engine.EpochDone{Epoch: n, Seconds: seconds, Hits: 1000 - misses, Misses: misses, StallSeconds: stall, LoopWaitSeconds: wait, LogReadBytes: 100e6, LogWriteBytes: 1}
	}
	status := func(epochs ...engine.EpochDone) engine.Status {
		job.EpochsDone = epochs
		return engine.Status{Cache: engine.CacheStatus{Dirs: []string{"/a", "/b"}}, Jobs: []engine.JobStatus{job}}
	}
	f := factsOf(status(epoch(0, 900, 40, 30, nil), epoch(1, 10, 10, 1, nil), epoch(2, 0, 10, 2, nil)), 3, 7)
	if f.Since != 1 || f.Epochs != 2 || f.Seconds != 20 || f.Stall != 3 || f.Wait != 3 || f.Reported || f.Hits != 1990 || f.Misses != 10 ||
		f.DiskRate != 10e6 || f.Disk != 7 || f.Ready != 3 || f.Filling || f.Cache != "/a,/b" || f.Recipe != "torch.randperm" {
		t.Errorf("the epoch that fills counts: %+v", f)
	}
	// Filled before: all epochs count. Reported by the loop: that is what it waited.
	f = factsOf(status(epoch(0, 0, 10, 1, seconds(5)), epoch(1, 0, 10, 1, seconds(6))), 0, 0)
	if f.Since != 0 || f.Epochs != 2 || f.Wait != 11 || f.Stall != 2 || !f.Reported || f.Lasted != 0 {
		t.Errorf("got %+v", f)
	}
	longer := epoch(0, 0, 10, 1, seconds(5))
	longer.LoopSeconds = seconds(12)
	if f = factsOf(status(longer, longer), 0, 0); f.Lasted != 24 {
		t.Errorf("got %+v", f)
	}
	// Reported for a part only: the server's own figures are of one kind.
	if f = factsOf(status(epoch(0, 0, 10, 1, seconds(5)), epoch(1, 0, 10, 1, nil)), 0, 0); f.Wait != 2 || f.Reported {
		t.Errorf("got %+v", f)
	}
	if f = factsOf(status(epoch(0, 900, 40, 30, nil)), 0, 0); !f.Filling || f.Since != 0 || f.Epochs != 1 {
		t.Errorf("the first alone: %+v", f)
	}
	if f = factsOf(engine.Status{}, 0, 0); f.Samples != 0 {
		t.Errorf("got %+v", f)
	}
}

// TestReadDiskRate reads what the doctor writes.
func TestReadDiskRate(t *testing.T) {
	dir := t.TempDir()
	measured := doctor.Place{Dir: "/a", Device: &doctor.Device{Read: 500e6, BothRead: 300e6}}
	other := doctor.Place{Dir: "/b", Device: &doctor.Device{Read: 501e6, BothRead: 300e6}}
	report := &doctorReport{Facts: &doctor.Facts{Places: []doctor.Place{measured, other, measured, {Dir: "/c", NoDevice: "the same as /a"}}}}
	if err := report.save(filepath.Join(dir, "two.json")); err != nil {
		t.Fatal(err)
	}
	report.Facts.Places = report.Facts.Places[3:]
	if err := report.save(filepath.Join(dir, "none.json")); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "text"), "hello")
	if rate, err := readDiskRate(filepath.Join(dir, "two.json")); err != nil || rate != 600e6 {
		t.Errorf("got %v, %v", rate, err)
	}
	for name, want := range map[string]string{"none.json": "says nothing of a disk", "text": "make them again with lcache doctor --cache DIR --save FILE", "missing": "read the facts: open "} {
		if _, err := readDiskRate(filepath.Join(dir, name)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
