package reorder

import (
	"lcache/chunker"
	"lcache/internal/serve/staging"
	"lcache/logfile"
	"lcache/sample"
)

// An EpochLog is the log of one epoch: the Logfile that holds its samples, and the line that says in which segment each is to lie. It owns
// the line and, while samples are written to it, the router.
type EpochLog struct {
	ID     uint64 // of the pass over it, unique while the server runs, never 0: a pass that begins again has another one
	Epoch  int    // -1: in the order of no epoch that this job knows
	Log    *logfile.Logfile
	Line   *chunker.Line // nil: its order is not known; its samples can be moved, and are not delivered in place
	Router *Router       // nil: nothing is written to it

	Packages *logfile.Packages // whose log Log is; nil: it is a Logfile
}

// Owner names a segment in staging.
func (l *EpochLog) Owner(seg int) staging.Segment { return staging.Segment{Line: l.ID, Segment: seg} }

// Members calls f for each sample that a segment should hold.
func (l *EpochLog) Members(seg int, f func(sample.Index)) {
	if l.Line == nil {
		l.Log.Arrivals(seg, func(_ int, index uint32, _ uint64) bool { f(index); return true })
		return
	}
	for _, index := range l.Line.Members(seg) {
		f(index)
	}
}

// Aim makes the log one that samples are written to. What it holds already, as holds reports, is not written to it again.
func (l *EpochLog) Aim(holds func(sample.Index) bool) (err error) {
	if l.Router, err = NewRouter(l.Line.Segment); err != nil {
		return err
	}
	for i := range l.Line.Segment {
		if holds(sample.Index(i)) {
			l.Router.Claim(sample.Index(i))
		}
	}
	return nil
}

// free frees blocks of a segment, or of a package, that were moved.
func (l *EpochLog) free(seg, upto int) {
	if l.Packages == nil {
		_ = l.Log.FreeBlocks(seg, upto)
		return
	}
	_ = l.Packages.FreeBlocks(seg, upto) // an error says that it is being filled: then it holds other samples
}

// freeAll frees a segment of which all was moved.
func (l *EpochLog) freeAll(seg int) {
	if l.Packages == nil {
		l.Log.FreeSegment(seg)
		return
	}
	_ = l.Packages.Free(seg) // an error says that it is being filled: then it holds other samples
}

// EndRouting frees the router: nothing is written to the log after that.
func (l *EpochLog) EndRouting() {
	if l.Router != nil {
		l.Router.Free()
		l.Router = nil
	}
}

// Free gives line and router back. Nothing may use the log's line after that.
func (l *EpochLog) Free() {
	l.EndRouting()
	if l.Line != nil {
		l.Line.Free()
		l.Line = nil
	}
}
