package reorder

import (
	"lcache/chunker"
	"lcache/internal/serve/staging"
	"lcache/logfile"
	"lcache/sample"
)

// An EpochLog is the log of one epoch: the Logfile that holds its samples, and the epoch layout, which assigns each sample to a segment.
// It owns the layout and, while samples are written to it, the router.
type EpochLog struct {
	ID     uint64 // of the scan of it; unique while the server runs, never 0. A scan that restarts has another ID
	Epoch  int    // -1: not in the order of an epoch of this job
	Log    *logfile.Logfile
	Layout *chunker.EpochLayout // the epoch layout; nil: its order is not known, so its samples can be moved, but not delivered from it
	Router *Router              // nil: nothing is written to this log

	Packages *logfile.Packages // the packages whose log Log is; nil: Log is a Logfile
}

// Owner names a segment in staging.
func (l *EpochLog) Owner(seg int) staging.Segment { return staging.Segment{Log: l.ID, Segment: seg} }

// Members calls f for each sample that the layout has in a segment.
func (l *EpochLog) Members(seg int, f func(sample.Index)) {
	if l.Layout == nil {
		l.Log.Arrivals(seg, func(_ int, index uint32, _ uint64) bool { f(index); return true })
		return
	}
	for _, index := range l.Layout.Members(seg) {
		f(index)
	}
}

// Aim makes the log a target of writes. Samples that it already holds, as holds reports, are not written again.
func (l *EpochLog) Aim(holds func(sample.Index) bool) (err error) {
	if l.Router, err = NewRouter(l.Layout.Segment); err != nil {
		return err
	}
	for i := range l.Layout.Segment {
		if holds(sample.Index(i)) {
			l.Router.Claim(sample.Index(i))
		}
	}
	return nil
}

// free frees blocks of a segment or package whose samples were moved.
func (l *EpochLog) free(seg, upto int) {
	if l.Packages == nil {
		_ = l.Log.FreeBlocks(seg, upto)
		return
	}
	_ = l.Packages.FreeBlocks(seg, upto) // an error means that it is being filled, and has other samples
}

// freeAll frees a segment whose samples were all moved.
func (l *EpochLog) freeAll(seg int) {
	if l.Packages == nil {
		l.Log.FreeSegment(seg)
		return
	}
	_ = l.Packages.Free(seg) // an error means that it is being filled, and has other samples
}

// EndRouting frees the router. Nothing is written to the log after that.
func (l *EpochLog) EndRouting() {
	if l.Router != nil {
		l.Router.Free()
		l.Router = nil
	}
}

// Free frees layout and router. Nothing may use the log's Layout after that.
func (l *EpochLog) Free() {
	l.EndRouting()
	if l.Layout != nil {
		l.Layout.Free()
		l.Layout = nil
	}
}
