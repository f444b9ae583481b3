package engine

import (
	"lcache/internal/serve/prefetch"
	"time"
)

// The pass reads few large pieces, the prefetcher many small ones. A device that is limited in operations serves them in turn, so that what one has in flight keeps the
// other waiting. What the prefetcher may have in flight says how they share the device.

// The pass has 16 MiB of blocks in flight. On a volume that is limited in operations that counts as 64 reads of 256 KiB, whatever the size of a block: so 96 reads of
// small samples beside them get three of five operations. On a volume that is limited in bytes large samples get as many bytes as the pass.
// docs/figures.md has what was measured at 16 and 100 KB with 3,000 operations and 500 MiB a second.
const (
	readsBesideTheWindow = 96
	readsBesideASort     = 56   // which reads and writes
	bytesForOneMore      = 1536 // of a sample's size
	bytesBesideTheWindow = 16 << 20
)

// sharing is what the depth of the prefetcher depends on.
type sharing struct {
	inWindow  bool    // ranks are served by the window, so that what is read by place is for others
	moving    bool    // a log that no rank reads in place is being moved
	sorting   bool    // into the epoch that is read
	sweeping  bool    // a part of it is left to be moved
	begun     bool    // the log that is moved to is of the epoch that is read
	measuring bool    // reads in order are being measured, which sets the depth itself
	moved     float64 // part of the log
	read      float64 // part of what was left of the epoch when the move began
	mean      int64   // bytes of a sample
	others    float64 // samples an epoch of the largest other job that reads, as a part of the owner's; 0: no other job reads
}

// depth returns how many reads by place may be in flight; 0: as many as the device wants. A sort comes first, because the window is to take over. Where the next
// epoch's log is being written, the pass is to get to its end when the ranks get to theirs.
func (s sharing) depth() int {
	switch {
	case s.inWindow:
		return s.beside(readsBesideTheWindow)
	case !s.moving || s.measuring:
		return 0
	case s.sorting && s.others > 0:
		return s.beside(readsBesideASort)
	case s.sorting, s.sweeping && (s.moved < s.read || s.begun):
		return prefetch.BesideThePass
	}
	return 0
}

// beside returns how many reads by place may be in flight beside large ones, where other jobs or late ranks need them; small is how many of the smallest samples. A validation pass is to cost an epoch of the
// owner little more than its part of the bytes.
func (s sharing) beside(small int64) int {
	reads := min(small+s.mean/bytesForOneMore, bytesBesideTheWindow/max(1, s.mean))
	if s.others > 0 && s.others < 1 {
		reads = int64(float64(reads) * (0.4 + 0.6*s.others))
	}
	return max(1, int(reads))
}

// shareDevice bounds what the prefetcher keeps in flight beside the pass. e.mu is held.
func (e *Engine) shareDevice(v *view) {
	s := sharing{inWindow: e.anyInWindow(), moving: v.tgt.exists && !v.inWindow(), measuring: e.beginning.measuring, others: e.others(), mean: int64(e.cache.Manifest.Bytes()) / int64(max(1, e.cache.Manifest.Len()))}
	if s.moving {
		_, left := e.epochBytes(v.readEpoch)
		s.sorting, s.sweeping, s.begun = v.sorting, v.unswept >= 0, v.readEpoch == v.tgt.epoch
		s.moved, s.read = float64(v.unswept)/float64(max(1, len(e.segs))), 1-float64(left)/float64(max(1, e.beginning.left))
	}
	if depth := s.depth(); depth != e.beginning.depth {
		e.beginning.depth = depth
		e.prefetcher.SetDepth(depth)
	}
	patient := -1
	if s.sorting && s.others > 0 { // the window will make up for it
		patient = e.owner.number
	}
	e.prefetcher.SetPatient(patient)
}

// others returns how many samples an epoch the largest other job reads that has asked lately, as a part of the owner's. The mover asks this at each step. e.mu is held.
func (e *Engine) others() float64 {
	most := 0
	for _, j := range e.jobs {
		if j != e.owner && j.hasAsked(e.now(), e.opts.LateEpoch) {
			most = max(most, j.schedule.Samples(j.latestEpoch()))
		}
	}
	if most == 0 {
		return 0
	}
	return float64(most) / float64(max(1, e.owner.schedule.Samples(e.owner.latestEpoch())))
}

// hasAsked reports whether a rank of a job has asked for something in the last while. Engine.mu is held.
func (j *job) hasAsked(now time.Time, within time.Duration) bool {
	for _, r := range j.ranks {
		if !r.asked.IsZero() && now.Sub(r.asked) < within {
			return true
		}
	}
	return false
}
