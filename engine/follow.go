package engine

import (
	"lcache/chunker"
	"lcache/reorder"
	"lcache/sample"
)

// A job may read in the order of a log that another job owns: eight searches with one seed. A rank of it that keeps up with the window takes its samples from there,
// and nothing is read for it. One that gets ahead of the window loses its patience, and is read ahead for by place until its next epoch.

// followsFrom is how many samples in a row must lie in the log as a rank asks for them before the rank counts as one that follows.
const followsFrom = 64

// follower is how well what is listed for a rank fits the order of the log that is read.
type follower struct {
	log uint64 // its ID
	seg int    // of the last sample
	run int    // samples in a row, each in the segment of the one before, or next to it
}

// list notes a sample that is listed for the rank, and the segment that it lies in.
func (f *follower) list(log uint64, seg int) {
	if log != f.log || seg < f.seg-1 || seg > f.seg+1 {
		f.run = 0
	}
	f.log, f.seg = log, seg
	f.run++
}

// follows reports whether the rank follows a log.
func (f *follower) follows(log uint64) bool { return f.log == log && f.run >= followsFrom }

// soon reports for each sample of a chunk that is listed for a rank of another job whether the pass is about to bring it; nil: none of them. e.mu is held.
func (e *Engine) soon(r *rank, content []sample.Index) (soon []bool) {
	if e.cur == nil || e.cur.Line == nil {
		return nil
	}
	for _, index := range content {
		if seg := e.cur.Line.Segment[index]; seg != chunker.None {
			r.follower.list(e.cur.ID, int(seg))
		}
	}
	first, end := e.windowFor(r)
	for i, index := range content {
		seg := e.cur.Line.Segment[index]
		if seg == chunker.None || int(seg) >= end || e.segs[seg] != segLoading && (e.segs[seg] != segAbsent || int(seg) < first) {
			continue
		}
		if soon == nil {
			soon = make([]bool, len(content))
		}
		soon[i] = true
	}
	return soon
}

// windowFor returns the segments [first, end) that a rank which follows the log may wait for, although its job does not own the log; none: 0, 0. e.mu is held.
func (e *Engine) windowFor(r *rank) (first, end int) {
	if e.cur.Line == nil || !r.follower.follows(e.cur.ID) || r.gaveUpWaiting || r.diverged || e.paused || e.slotless() || !e.anyInTime() {
		return 0, 0
	}
	v := e.view()
	if v.unloaded < 0 || v.cur.epoch != v.readEpoch {
		return 0, 0
	}
	return v.unloaded, v.unloaded + e.cache.Sizing.Slots
}

// fallBehind makes a rank that follows the log wait for it no longer: the owner is slower. e.mu is held.
func (e *Engine) fallBehind(j *job, n int) {
	r := j.ranks[n]
	if r == nil || e.cur == nil || !r.follower.follows(e.cur.ID) || r.gaveUpWaiting {
		return
	}
	r.gaveUpWaiting = true
	e.prefetcher.Refresh(j.next(n))
}

// refollow has what is listed for the ranks of other jobs listed again: another log is read. e.mu is held.
func (e *Engine) refollow(was *reorder.EpochLog) {
	for _, j := range e.jobs {
		for n, r := range j.ranks {
			if j != e.owner && r.follower.follows(was.ID) {
				e.prefetcher.Refresh(j.next(n))
			}
		}
	}
}
