// Package verdict answers one question: what bound this, and what should be changed?
//
// Judge takes Facts, which were measured over some time, and returns a Verdict: the Cause, a line that explains it, and a line that says what
// to change. The questions are asked in one order, and the first that is answered with yes decides: did the training loop wait at all, did
// batches lie ready for it, did samples come from the source, was the disk at its limit, was another order asked for, were CPUs busy. So a
// cause is named only where nothing before it explains the time.
//
// The status document, lcache run and lcache bench judge with it: they differ in the facts that they have, and in nothing else. A fact that
// is zero was not measured, and explains nothing. The package measures nothing and keeps no state; Judge may be called concurrently.
package verdict

import (
	"lcache/figures"
	"lcache/spelling"
)

// A Cause is what bound the time that was judged.
type Cause string

const (
	Unknown Cause = "unknown"
	Loop    Cause = "loop"   // the training loop: lcache had its batches ready
	Decode  Cause = "decode" // decoding, or the loader's workers: batches were ready, and came late into the loop
	Source  Cause = "source" // samples came from the source
	Budget  Cause = "budget" // samples came from the source, because the budget keeps only a part of the dataset
	Disk    Cause = "disk"   // the disk gave what it can
	Order   Cause = "order"  // another order was asked for than the log is in
	Python  Cause = "Python" // the reader in Python was busy
	CPU     Cause = "CPU"    // every CPU was busy
)

// Shares above which something counts.
const (
	littleWaiting  = 0.02 // of the time that the training loop ran; a server's stall is measured against the same share
	fewMisses      = 0.02 // of the samples
	atLimit        = 0.9  // of the bandwidth that the disk was measured to give
	busy           = 0.8  // of the time of the CPUs
	mostlyDecoding = 0.5  // of the time of the loader's workers
)

// Facts are what was measured over the time that is judged, unless a field says otherwise. Zero is: not measured, or none.
type Facts struct {
	Delivered int64   // samples that were delivered in all, before that time too
	Seconds   float64 // that time; 0: no epoch came to its end
	Since     int     // its first epoch
	Samples   int64   // delivered in that time
	Misses    int64   // of these, from the source

	Stall float64 // seconds in which the server was short of a batch that was asked for
	Idle  float64 // seconds in which everything that the server may load lay ready
	Ready float64 // batches that lay ready at the server, on average

	LoopSeconds float64 // that the training loop ran, as it told; 0: it did not tell
	LoopWait    float64 // seconds that it waited for a batch, as it told
	Loader      *Loader // nil: not told

	Kept, Dataset int64 // bytes that the cache keeps, and that there are
	Needed        int64 // bytes of budget with which it would keep all
	Filling       bool  // the only epoch is the one in which the log was filled from the source
	Single        bool  // the job has one epoch: nothing is written for a next one
	Stale         int64 // samples that a crash left unfinished in the log

	DiskRate  float64 // bytes a second that the disk gave
	DiskLimit float64 // bytes a second that it was measured to give

	Divergences int64     // requests for another order than planned
	First       *Position // of the first one
	Recipe      string    // that the order was planned by; "": the loader's own order

	CPUs      int
	ServerCPU float64 // seconds of CPU that the server took
	ReaderCPU float64 // seconds of CPU that a reader in Python took

	Cache string // the cache's directories with commas between them, for commands in advice
}

// A Loader is what was told of the processes that decode, since the job began. Times are in seconds.
type Loader struct {
	LoopSeconds, LoopWait float64 // that the training loop ran, and that it waited
	Decode                float64 // of all processes together
	Workers               int     // processes that decode; 0: the training loop does
	Loops                 int     // training loops that they belong to
}

// A Position is a place in the order of a job.
type Position struct{ Epoch, Rank, Batch, Sample int }

// A Verdict is the answer. Bound and Change are lines for people.
type Verdict struct {
	Cause  Cause  `json:"stage"`
	Bound  string `json:"bound"`
	Change string `json:"change"`

	// Suspect is the cause that is left over where Cause is Unknown because the measurement is missing that would show it.
	Suspect Cause `json:"-"`
}

// BoundBy is the verdict as one of the status document's words: source, disk, consumer, decode or unknown. Where the cause is not known it is
// the suspect.
func (v Verdict) BoundBy() string {
	cause := v.Cause
	if cause == Unknown && v.Suspect != "" {
		cause = v.Suspect
	}
	switch cause {
	case Loop:
		return "consumer"
	case Source, Budget:
		return "source"
	case Disk, Decode:
		return string(cause)
	}
	return "unknown"
}

// Judge asks the questions in their order; the first that is answered with yes ends it.
func Judge(f Facts) Verdict {
	switch {
	case f.Delivered == 0:
		return Verdict{Cause: Unknown, Bound: "by nothing of lcache: no sample was asked for", Change: "read through it: lcache.connect() in Python, or lcache.torch with this source"}
	case f.Seconds <= 0:
		return Verdict{Cause: Unknown, Bound: "not known: no epoch came to its end", Change: "nothing"}
	case !f.waits():
		return Verdict{Cause: Loop, Bound: "by the training loop" + f.since() + f.ready() + "; lcache cannot make this faster", Change: "nothing"}
	case f.Stall < littleWaiting*f.Seconds:
		return f.loader()
	case float64(f.Misses) > fewMisses*float64(f.Samples):
		return f.source()
	case f.DiskLimit > 0 && f.DiskRate >= atLimit*f.DiskLimit:
		return Verdict{Cause: Disk, Bound: "by the disk" + f.since() + ": " + figures.Bytes(int64(f.DiskRate)) + "/s of the " + figures.Bytes(int64(f.DiskLimit)) + "/s that it was measured to give",
			Change: "a faster disk, or one more: --cache DIR,DIR deals the blocks over both"}
	case f.Divergences > 0:
		return f.order()
	case f.ReaderCPU > 0 && f.ReaderCPU >= busy*f.Seconds:
		return Verdict{Cause: Python, Bound: "by the reader in Python" + f.since(), Change: "more readers, or less work for each sample"}
	case f.ServerCPU > 0 && f.ServerCPU+f.ReaderCPU >= busy*f.Seconds*float64(f.CPUs):
		return Verdict{Cause: CPU, Bound: "by " + figures.Plural(int64(f.CPUs), "CPU", "CPUs") + f.since(), Change: "more CPUs"}
	}
	return f.unknown()
}

// WaitShare is the share of the time in which the training loop waited: of its own time, as far as it told that, else of the server's.
func (f Facts) WaitShare() float64 {
	switch {
	case f.LoopSeconds > 0:
		return f.LoopWait / f.LoopSeconds
	case f.Seconds > 0:
		return f.Stall / f.Seconds
	}
	return 0
}

// waits reports whether the training loop waited. Where it did not tell, the server's view counts: a loop for which more lay ready than was
// missing is not held up.
func (f Facts) waits() bool {
	return f.WaitShare() >= littleWaiting && (f.LoopSeconds > 0 || f.Idle <= f.Stall)
}

// unknown is the verdict if no question was answered with yes.
func (f Facts) unknown() Verdict {
	cache, waited := spelling.ShellWord(f.Cache), "not known"+f.since()+": the loop waited "+figures.Percent(f.WaitShare(), 1)
	if f.DiskLimit == 0 {
		return Verdict{Cause: Unknown, Suspect: Disk, Bound: waited + "; it may be the disk, whose limit was not measured",
			Change: "measure it, lcache doctor --cache " + cache + " --save facts.json, and run again with --facts facts.json"}
	}
	return Verdict{Cause: Unknown, Bound: waited + ", and neither misses nor the disk nor another order explain it",
		Change: "send the output of lcache doctor --cache " + cache + " and of lcache status --json while it runs"}
}
