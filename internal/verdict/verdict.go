// Package verdict answers one question: what bound the training, and what should be changed?
//
// Judge takes Facts, which were measured over some time, and returns a Verdict: the Cause, a line that explains it, and a line of advice. Judge
// asks these questions in this order, and the first one that is answered with yes decides:
//
//   - Did the training loop not wait?
//   - Were its batches ready at the server?
//   - Did samples come from the source?
//   - Was the disk at its measured limit?
//   - Did requests ask for another order than planned?
//   - Were the CPUs busy?
//   - Did samples come from other machines?
//
// The status document, lcache run and lcache bench all call Judge. They differ only in the facts that they have: a fact that is zero was not
// measured, and explains nothing. The package measures nothing and keeps no state. Judge may be called concurrently.
package verdict

import (
	"lcache/internal/units"
	"lcache/internal/usage"
)

// A Cause names the bottleneck.
type Cause string

const (
	Unknown Cause = "unknown"
	Loop    Cause = "loop"   // the training loop: it did not wait for lcache
	Decode  Cause = "decode" // decoding, or the loader's workers: batches were ready at the server, and late in the loop
	Source  Cause = "source" // samples came from the source
	Budget  Cause = "budget" // samples came from the source, because the budget keeps only a part of the dataset
	Disk    Cause = "disk"   // the disk was at its limit
	Order   Cause = "order"  // requests asked for another order than that of the log
	Python  Cause = "Python" // the reader in Python was busy
	CPU     Cause = "CPU"    // all CPUs were busy
	Peer    Cause = "peer"   // samples came from other machines, and the network or those machines were slower than the training loop
)

// Thresholds, as shares.
const (
	littleWaiting  = 0.02 // of the time of the training loop or of the server
	fewMisses      = 0.02 // of the samples
	fewFromPeers   = 0.1  // of the samples
	atLimit        = 0.9  // of the disk's measured bandwidth
	busy           = 0.8  // of CPU time
	mostlyDecoding = 0.5  // of the time of the loader's workers
)

// Facts were measured over the judged time, unless a field says otherwise. Zero means not measured, or none.
type Facts struct {
	Delivered int64   // samples delivered since the start
	Seconds   float64 // the judged time; 0: no epoch is over
	Since     int     // the first judged epoch
	Samples   int64   // delivered in the judged time
	Misses    int64   // part of Samples that came from the source
	Peer      int64   // part of Samples that came from other machines

	Stall float64 // seconds in which a request waited for the server
	Idle  float64 // seconds in which everything that the server may load was ready
	Ready float64 // batches that were ready at the server, on average

	LoopSeconds float64 // seconds of the training loop, as it reported; 0: it did not report
	LoopWait    float64 // the part of LoopSeconds in which the loop waited for a batch
	Loader      *Loader // nil: not reported

	Kept, Dataset int64 // bytes that the cache keeps, and bytes of the dataset
	Needed        int64 // budget in bytes with which the cache would keep all samples
	Filling       bool  // the only judged epoch filled the log from the source
	Single        bool  // the job has one epoch
	Stale         int64 // samples that a crash left unfinished in the log

	DiskRate  float64 // bytes per second
	DiskLimit float64 // measured limit of DiskRate

	Divergences int64     // requests that asked for another order than planned
	First       *Position // of the first divergence; nil: not known
	Recipe      string    // of the planned order; "": the loader's own order

	CPUs      int     // of the machine
	ServerCPU float64 // CPU time of the server, in seconds
	ReaderCPU float64 // CPU time of a reader in Python, in seconds

	Cache string // directories of the cache, with commas between them, for commands in advice
}

// A Loader has the reports of the decoding processes, since the start of the job. Times are in seconds.
type Loader struct {
	LoopSeconds, LoopWait float64 // of the training loop: all of its time, and its waits
	Decode                float64 // sum over all processes
	Workers               int     // processes that decode; 0: the training loop decodes itself
	Loops                 int     // training loops with reports, to which the workers belong
}

// A Position is a position in the order of a job.
type Position struct{ Epoch, Rank, Batch, Sample int }

// A Verdict is the answer. Bound and Change are lines for people.
type Verdict struct {
	Cause  Cause  `json:"stage"`
	Bound  string `json:"bound"`
	Change string `json:"change"`

	// Suspect is the cause that remains if Cause is Unknown because a measurement is missing; "": none remains.
	Suspect Cause `json:"-"`
}

// BoundBy returns the verdict as a word of the status document: source, disk, consumer, decode, peer or unknown. If the cause is not known, it returns
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
	case Disk, Decode, Peer:
		return string(cause)
	}
	return "unknown"
}

// Judge returns the verdict for some facts.
func Judge(f Facts) Verdict {
	switch {
	case f.Delivered == 0:
		return Verdict{Cause: Unknown, Bound: "by nothing: no sample was read through lcache", Change: "read samples through lcache: lcache.connect() in Python, or lcache.torch with this source"}
	case f.Seconds <= 0:
		return Verdict{Cause: Unknown, Bound: "not known: no epoch came to its end", Change: "nothing"}
	case !f.waits() && f.LoopSeconds == 0:
		return Verdict{Cause: Unknown, Suspect: Loop, Change: "nothing",
			Bound: "not known" + f.since() + ": the training loop reports no waits, and lcache was short of a batch for " + units.Percent(f.WaitShare(), 1) + " of the time" + f.ready()}
	case !f.waits():
		return Verdict{Cause: Loop, Bound: "by the training loop" + f.since() + f.ready() + "; lcache cannot make this faster", Change: "nothing"}
	case f.Stall < littleWaiting*f.Seconds:
		return f.loader()
	case float64(f.Misses) > fewMisses*float64(f.Samples):
		return f.source()
	case f.DiskLimit > 0 && f.DiskRate >= atLimit*f.DiskLimit:
		return Verdict{Cause: Disk, Bound: "by the disk" + f.since() + ": " + units.Bytes(int64(f.DiskRate)) + "/s of the " + units.Bytes(int64(f.DiskLimit)) + "/s that it was measured to give",
			Change: "a faster disk, or one more: --cache DIR,DIR deals the blocks over both"}
	case f.Divergences > 0:
		return f.order()
	case f.ReaderCPU > 0 && f.ReaderCPU >= busy*f.Seconds:
		return Verdict{Cause: Python, Bound: "by the reader in Python" + f.since(), Change: "more readers, or less work for each sample"}
	case f.ServerCPU > 0 && f.ServerCPU+f.ReaderCPU >= busy*f.Seconds*float64(f.CPUs):
		return Verdict{Cause: CPU, Bound: "by " + units.Plural(int64(f.CPUs), "CPU", "CPUs") + f.since(), Change: "more CPUs"}
	case float64(f.Peer) > fewFromPeers*float64(f.Samples):
		return Verdict{Cause: Peer, Bound: "by the network or the other machines" + f.since() + ": " + units.Percent(float64(f.Peer), float64(f.Samples)) + " of the samples came from them",
			Change: "a larger --budget keeps more copies here; or a faster network, or faster disks there (lcache cluster shows what comes from where)"}
	}
	return f.unknown()
}

// WaitShare returns the share of its time in which the training loop waited. Without a report of the loop, it is the share of the judged time
// in which a request waited for the server.
func (f Facts) WaitShare() float64 {
	switch {
	case f.LoopSeconds > 0:
		return f.LoopWait / f.LoopSeconds
	case f.Seconds > 0:
		return f.Stall / f.Seconds
	}
	return 0
}

// waits reports whether the training loop waited. Without a report of the loop, a server that was idle for longer than it was short of a batch
// does not make the loop wait.
func (f Facts) waits() bool {
	return f.WaitShare() >= littleWaiting && (f.LoopSeconds > 0 || f.Idle <= f.Stall)
}

// unknown returns the verdict if no question is answered with yes.
func (f Facts) unknown() Verdict {
	cache, waited := usage.ShellWord(f.Cache), "not known"+f.since()+": the loop waited "+units.Percent(f.WaitShare(), 1)
	if f.DiskLimit == 0 {
		return Verdict{Cause: Unknown, Suspect: Disk, Bound: waited + "; it may be the disk, whose limit was not measured",
			Change: "measure it, lcache doctor --cache " + cache + " --save facts.json, and run again with --facts facts.json"}
	}
	return Verdict{Cause: Unknown, Bound: waited + ", and neither misses nor the disk nor another order explain it",
		Change: "send the output of lcache doctor --cache " + cache + " and of lcache status --json while it runs"}
}
