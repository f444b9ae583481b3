package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"

	"lcache/cores"
	"lcache/engine"
	"lcache/figures"
	"lcache/spelling"
)

// What counts as nothing, as a share: of the loop's time spent waiting, of the samples missed, of a disk's bandwidth left over; and what
// counts as most of the workers' time.
const (
	littleWaiting  = 0.02
	fewMisses      = 0.02
	atLimit        = 0.9
	mostlyDecoding = 0.5
)

// runFacts are what a verdict follows from, over the epochs that it is about.
type runFacts struct {
	Samples  int64   // that were delivered in all
	Since    int     // the first of these epochs
	Epochs   int     // how many; 0: none was finished
	Seconds  float64 // of these epochs
	Wait     float64 // seconds that the training loop waited, or without a report of it, that lcache saw it wait
	Reported bool    // the training loop told
	Lasted   float64 // seconds that it took for them, as it told
	Stall    float64 // seconds in which a rank was short of a batch at the server

	Ready          float64  // batches that lay ready at the server, on average; 0 may also be: not known
	Loop, LoopWait *float64 // seconds that the training loop ran, and that it waited, as it told
	Decode         *float64 // seconds of all processes that decode
	Workers, Loops int      // processes that decode, and training loops that they belong to
	CPUs           int
	Hits, Misses   int64
	Kept, Dataset  int64 // bytes that the cache keeps, and that there are
	Needed         int64 // bytes of budget with which it would keep all
	Filling        bool  // the only epoch is the one in which the log was filled from the source
	Single         bool  // the job has one epoch: nothing is written for a next one
	DiskRate, Disk float64
	Divergences    int64
	First          *engine.Divergence
	Recipe         string
	Stale          int64 // samples that are no longer what was listed
	Source         string
	Cache          string
}

// runVerdict is what bound a run, and the one thing to change. Both are lines for people.
type runVerdict struct {
	Stage  string `json:"stage"` // loop, decode, source, budget, disk, order, unknown
	Bound  string `json:"bound"`
	Change string `json:"change"`
}

// judge asks the questions in the contract's order; the first that is answered with yes ends it.
func judge(f runFacts) runVerdict {
	if f.Samples == 0 {
		return runVerdict{"unknown", "by nothing of lcache: no sample was asked for", "read through it: lcache.connect() in Python, or lcache.torch with this source"}
	}
	if f.Epochs == 0 || f.Seconds <= 0 {
		return runVerdict{"unknown", "not known: no epoch came to its end", "nothing"}
	}
	switch wait, stall := f.Wait/f.lasted(), f.Stall/f.Seconds; {
	case wait < littleWaiting:
		return runVerdict{"loop", "by the training loop" + f.since() + f.readyText() + "; lcache cannot make this faster", "nothing"}
	case stall < littleWaiting:
		return judgeLoader(f)
	case f.missed() > fewMisses:
		return judgeSource(f)
	case f.Disk > 0 && f.DiskRate >= atLimit*f.Disk:
		return runVerdict{"disk", fmt.Sprintf("by the disk%s: %s/s of the %s/s that it was measured to give", f.since(), figures.Bytes(int64(f.DiskRate)), figures.Bytes(int64(f.Disk))),
			"a faster disk, or one more: --cache DIR,DIR deals the blocks over both"}
	case f.Divergences > 0:
		return judgeOrder(f)
	}
	if f.Disk == 0 {
		return runVerdict{"unknown", fmt.Sprintf("not known%s: the loop waited %s; it may be the disk, whose limit was not measured", f.since(), figures.Percent(f.Wait, f.lasted())),
			"measure it, lcache doctor --cache " + spelling.ShellWord(f.Cache) + " --save facts.json, and run again with --facts facts.json"}
	}
	return runVerdict{"unknown", fmt.Sprintf("not known%s: the loop waited %s, and neither misses nor the disk nor another order explain it", f.since(), figures.Percent(f.Wait, f.lasted())),
		"send the output of lcache doctor --cache " + spelling.ShellWord(f.Cache) + " and of lcache status --json while it runs"}
}

// judgeLoader: the batches were there, and came late into the loop.
func judgeLoader(f runFacts) runVerdict {
	v := runVerdict{Stage: "decode", Bound: "by decoding or the loader's workers" + f.since() + f.readyText(), Change: "more workers (num_workers), or less work for each sample"}
	if f.Decode == nil || f.Loop == nil || *f.Loop <= 0 {
		return v
	}
	share := *f.Decode / (*f.Loop * float64(max(f.Workers, 1)))
	if share >= mostlyDecoding {
		v.Bound = "by decoding" + f.since() + f.readyText()
	}
	takes := "decode takes " + figures.Percent(share, 1)
	switch each, wanted := f.Workers/max(f.Loops, 1), f.workersWanted(); {
	case f.Workers == 0:
		v.Change = takes + " of the loop's time, and in the loop itself: give the loader workers (num_workers)"
	case wanted > each:
		v.Change = fmt.Sprintf("%s: num_workers %d → %d", takes, each, wanted)
	default:
		v.Change = fmt.Sprintf("%s of %s on %s: less work for each sample", takes, figures.Plural(int64(f.Workers), "worker", "workers"), figures.Plural(int64(f.CPUs), "CPU", "CPUs"))
	}
	return v
}

// workersWanted is how many workers of a loop would keep up with it, as far as there are CPUs for them.
func (f runFacts) workersWanted() int {
	each := float64(f.Workers) / float64(max(f.Loops, 1))
	busy := *f.Loop
	if f.LoopWait != nil {
		busy -= *f.LoopWait
	}
	most := float64(f.CPUs / max(f.Loops, 1))
	if busy <= 0 {
		return int(most)
	}
	return int(min(math.Ceil(each**f.Loop/busy), most))
}

// judgeSource: what is not in the log comes from the source, and that is slow.
func judgeSource(f runFacts) runVerdict {
	share := figures.Percent(float64(f.Misses), float64(f.Hits+f.Misses))
	switch {
	case f.Filling && f.Single:
		return runVerdict{"source", "by the source, which a job of one epoch reads once: " + share + " of the samples came from there", "nothing"}
	case f.Filling:
		return runVerdict{"source", "by the source, in the one epoch that reads it: " + share + " of the samples came from there", "nothing: the next epoch finds them in the log"}
	case f.Kept < f.Dataset:
		return runVerdict{"budget", fmt.Sprintf("by the source%s: the budget keeps %s of the dataset (c = %.2f), and %s of the samples came from the source",
			f.since(), figures.Percent(float64(f.Kept), float64(f.Dataset)), float64(f.Kept)/float64(f.Dataset), share),
			"give --budget " + strings.ReplaceAll(figures.Bytes(f.Needed), " ", "") + " or more: all of it then comes from the disk"}
	case f.Stale > 0:
		return runVerdict{"source", "by the source" + f.since() + ": " + share + " of the samples came from there",
			"nothing: a crash had left " + figures.Plural(f.Stale, "sample", "samples") + " unfinished in the log, which the source has replaced"}
	}
	return runVerdict{"source", "by the source" + f.since() + ": " + share + " of the samples came from there, though the cache keeps all",
		"look for ! in lcache status while it runs, and run lcache verify --cache " + spelling.ShellWord(f.Cache)}
}

// judgeOrder: what was asked for is not what the log was laid out for.
func judgeOrder(f runFacts) runVerdict {
	v := runVerdict{Stage: "order", Bound: "by the order" + f.since() + ": " + figures.Plural(f.Divergences, "request", "requests") + " asked for another one than planned",
		Change: "run it again without --recipe: the loader's own order is then used as soon as it is known"}
	if d := f.First; d != nil {
		v.Bound += fmt.Sprintf(", first at epoch %d rank %d batch %d sample %d", d.Epoch, d.Rank, d.Batch, d.Position)
	}
	if f.Recipe != "" {
		v.Change = "give the recipe, seed, batch size and world size of the training; it was not " + f.Recipe + " with these flags"
	}
	return v
}

// lasted is what Wait is a share of. The server sees less of an epoch than the loop: it is done with it when the last batch is delivered.
func (f runFacts) lasted() float64 { return max(f.Lasted, f.Seconds) }

func (f runFacts) missed() float64 {
	if f.Hits+f.Misses == 0 {
		return 0
	}
	return float64(f.Misses) / float64(f.Hits+f.Misses)
}

func (f runFacts) since() string {
	if f.Since == 0 {
		return ""
	}
	return fmt.Sprintf(" since epoch %d", f.Since)
}

func (f runFacts) readyText() string {
	if n := int64(f.Ready); n > 0 {
		return ": lcache had " + figures.Plural(n, "batch", "batches") + " ready"
	}
	return ""
}

// factsOf gathers the facts from the last status of a server. The first epoch is left out where there are others: it fills the log,
// unless that was done before.
func factsOf(s engine.Status, ready, disk float64) runFacts {
	f := runFacts{Disk: disk, Cache: strings.Join(s.Cache.Dirs, ",")}
	if len(s.Jobs) == 0 {
		return f
	}
	j := s.Jobs[0]
	f.Samples, f.Ready, f.Recipe, f.Source = j.SamplesDelivered, ready, j.Recipe, j.Source
	f.Loop, f.LoopWait, f.Decode, f.Workers, f.CPUs = j.LoopSeconds, j.LoopWaitSeconds, j.DecodeSeconds, j.LoopWorkers, cores.N
	for _, r := range j.Ranks {
		if r.LoopWaitSeconds != nil {
			f.Loops++
		}
	}
	f.Kept, f.Dataset, f.Stale = j.KeptBytes, j.DatasetBytes, j.StaleSamples
	f.Divergences, f.First = j.Divergences, j.FirstDivergence
	f.Needed = j.DatasetBytes + 128*int64(j.Samples) + max(j.DatasetBytes/32, 40*max(s.Cache.BlockBytes, 256<<10)) + 1<<20 // padding, metadata and slack, rounded up
	judged, first := j.EpochsDone, 0
	if len(judged) > 1 && judged[0].Misses > 0 {
		judged, first = judged[1:], judged[1].Epoch
	}
	f.Filling = len(judged) == 1 && len(j.EpochsDone) == 1 && j.KeptBytes >= j.DatasetBytes && (judged[0].LogWriteBytes > 0 || judged[0].LogReadBytes == 0)
	f.Single = j.Epochs == 1
	var moved int64
	f.Since, f.Reported = first, len(judged) > 0
	for _, e := range judged {
		f.Epochs++
		f.Seconds += e.Seconds
		f.Stall += e.StallSeconds
		f.Hits += e.Hits
		f.Misses += e.Misses
		moved += e.LogReadBytes
		f.Reported = f.Reported && e.LoopWaitSeconds != nil
	}
	for _, e := range judged {
		if !f.Reported {
			f.Wait += e.StallSeconds
			continue
		}
		f.Wait += *e.LoopWaitSeconds
		if e.LoopSeconds != nil {
			f.Lasted += *e.LoopSeconds
		}
	}
	if f.Seconds > 0 {
		f.DiskRate = float64(moved) / f.Seconds
	}
	return f
}

// readDiskRate takes from a doctor's report what all measured devices together give to a reader while they are written, which is how
// an epoch uses them.
func readDiskRate(path string) (float64, error) {
	var report doctorReport
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("read the facts: %w", err)
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return 0, fmt.Errorf("read the facts in %s: %w; make them again with lcache doctor --cache DIR --save FILE", path, err)
	}
	rate := 0.0
	seen := map[[3]float64]bool{} // directories on one device have its figures to the last digit
	if report.Facts != nil {
		for _, p := range report.Facts.Places {
			if d := p.Device; d != nil && !seen[[3]float64{d.Read, d.BothRead, d.IOPS}] {
				rate += d.BothRead
				seen[[3]float64{d.Read, d.BothRead, d.IOPS}] = true
			}
		}
	}
	if rate <= 0 {
		return 0, fmt.Errorf("%s says nothing of a disk: make it again with lcache doctor --cache DIR --save FILE", path)
	}
	return rate, nil
}
