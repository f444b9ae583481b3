package verdict

import (
	"fmt"
	"math"
	"strings"

	"lcache/internal/units"
	"lcache/internal/usage"
)

// loader returns the verdict if batches were ready at the server, and late in the loop.
func (f Facts) loader() Verdict {
	v := Verdict{Cause: Decode, Bound: "by decoding or the loader's workers" + f.since() + f.ready(), Change: "more workers (num_workers)"}
	l := f.Loader
	if l == nil || l.LoopSeconds <= 0 {
		return v
	}
	share := min(l.Decode/(l.LoopSeconds*float64(max(l.Workers, 1))), 1) // workers also decode before the loop begins, and after it ends
	if share >= mostlyDecoding {
		v.Bound = "by decoding" + f.since() + f.ready()
	}
	takes := "decode takes " + units.Percent(share, 1)
	switch each, wanted := l.Workers/max(l.Loops, 1), l.workersWanted(f.CPUs); {
	case l.Workers == 0:
		v.Change = takes + " of the loop's time, and in the loop itself: give the loader workers (num_workers)"
	case wanted > each:
		v.Change = fmt.Sprintf("%s: num_workers %d → %d", takes, each, wanted)
	default:
		v.Change = fmt.Sprintf("%s of %s on %s: more CPUs, smaller samples, or a decoder of whole batches (decode_batch)", takes, units.Plural(int64(l.Workers), "worker", "workers"), units.Plural(int64(f.CPUs), "CPU", "CPUs"))
	}
	return v
}

// workersWanted returns the number of workers that each loop needs, but at most as many as the CPUs can run.
func (l *Loader) workersWanted(cpus int) int {
	each := float64(l.Workers) / float64(max(l.Loops, 1))
	most := float64(cpus / max(l.Loops, 1))
	works := l.LoopSeconds - l.LoopWait
	if works <= 0 {
		return int(most)
	}
	return int(min(math.Ceil(each*l.LoopSeconds/works), most))
}

// source returns the verdict if samples came from the source.
func (f Facts) source() Verdict {
	share := units.Percent(float64(f.Misses), float64(f.Samples)) + " of the samples came from "
	by := "by the source" + f.since() + ": "
	switch {
	case f.Filling && f.Single:
		return Verdict{Cause: Source, Bound: "by the source, which a job of one epoch reads once: " + share + "there", Change: "nothing"}
	case f.Filling:
		return Verdict{Cause: Source, Bound: "by the source, in the one epoch that reads it: " + share + "there", Change: "nothing: the next epoch finds them in the log"}
	case f.Kept < f.Dataset:
		return Verdict{Cause: Budget, Bound: fmt.Sprintf("%sthe budget keeps %s of the dataset (c = %.2f), and %sthe source", by,
			units.Percent(float64(f.Kept), float64(f.Dataset)), float64(f.Kept)/float64(f.Dataset), share),
			Change: "give --budget " + strings.ReplaceAll(units.Bytes(f.Needed), " ", "") + " or more: all of it then comes from the disk"}
	case f.Stale > 0:
		return Verdict{Cause: Source, Bound: by + share + "there",
			Change: "nothing: a crash had left " + units.Plural(f.Stale, "sample", "samples") + " unfinished in the log, which the source has replaced"}
	}
	return Verdict{Cause: Source, Bound: by + share + "there, though the cache keeps all",
		Change: "look for ! in lcache status while it runs, and run lcache verify --cache " + usage.ShellWord(f.Cache)}
}

// order returns the verdict if requests asked for another order than that of the log.
func (f Facts) order() Verdict {
	v := Verdict{Cause: Order, Bound: "by the order" + f.since() + ": " + units.Plural(f.Divergences, "request", "requests") + " asked for another one than planned",
		Change: "run it again without --recipe: the loader's own order is then used as soon as it is known"}
	if p := f.First; p != nil {
		v.Bound += fmt.Sprintf(", first at epoch %d rank %d batch %d sample %d", p.Epoch, p.Rank, p.Batch, p.Sample)
	}
	if f.Recipe != "" {
		v.Change = "give the recipe, seed, batch size and world size of the training; it was not " + f.Recipe + " with these flags"
	}
	return v
}

// since names the first judged epoch, unless that is epoch 0.
func (f Facts) since() string {
	if f.Since == 0 {
		return ""
	}
	return fmt.Sprintf(" since epoch %d", f.Since)
}

// ready says how many batches were ready; "": none were.
func (f Facts) ready() string {
	if n := int64(f.Ready); n > 0 {
		return ": lcache had " + units.Plural(n, "batch", "batches") + " ready"
	}
	return ""
}
