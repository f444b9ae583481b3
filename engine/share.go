package engine

import (
	"lcache/internal/serve/prefetch"
	"time"
)

// The scan has few large reads in flight, the prefetcher many small ones. A device with a limit of operations serves them in turn, so that reads of one
// delay the other. The prefetcher's limit of reads in flight determines how they share the device.

// The scan has 16 MiB of blocks in flight. On a volume with a limit of operations that counts as 64 reads of 256 KiB, whatever the size of a block. So
// 96 reads of small samples get three of five operations. On a volume with a limit of bytes, large samples get as many bytes as the scan.
// docs/figures.md has the measurements with samples of 16 and 100 KB, 3,000 operations/s and 500 MiB/s.
const (
	readsDuringScan = 96
	readsDuringSort = 56   // a sort reads and writes
	bytesForOneMore = 1536 // of a sample's size
	bytesDuringScan = 16 << 20
)

// sharing is the input for the prefetcher's limit of reads in flight.
type sharing struct {
	inWindow  bool    // the window serves ranks, so that random reads are for others
	moving    bool    // a log from which the window serves no rank is being moved
	sorting   bool    // the target is the epoch that is read
	sweeping  bool    // a part of the log is not scanned yet
	begun     bool    // the target is the Logfile of the epoch that is read
	measuring bool    // sequential reads are being measured, and the measurement sets the limit
	moved     float64 // share of the log
	read      float64 // share of the bytes that were left of the epoch when the move began
	mean      int64   // mean size of a sample in bytes
	others    float64 // samples in an epoch of the largest other job that reads, as a share of the owner's; 0: no other job reads
}

// depth returns how many random reads may be in flight; 0: no limit. A sort has priority, because the window takes over after it. While the next epoch's
// log is written, the scan should reach its end when the ranks reach the end of the epoch.
func (s sharing) depth() int {
	switch {
	case s.inWindow:
		return s.duringLargeReads(readsDuringScan)
	case !s.moving || s.measuring:
		return 0
	case s.sorting && s.others > 0:
		return s.duringLargeReads(readsDuringSort)
	case s.sorting, s.sweeping && (s.moved < s.read || s.begun):
		return prefetch.MostDuringScan
	}
	return 0
}

// duringLargeReads returns how many random reads may be in flight during large reads, if other jobs or late ranks need them. small is the number for the
// smallest samples. A validation epoch should slow down the owner's epoch by little more than its share of the bytes.
func (s sharing) duringLargeReads(small int64) int {
	reads := min(small+s.mean/bytesForOneMore, bytesDuringScan/max(1, s.mean))
	if s.others > 0 && s.others < 1 {
		reads = int64(float64(reads) * (0.4 + 0.6*s.others))
	}
	return max(1, int(reads))
}

// shareDevice limits the prefetcher's reads in flight while the scan reads. e.mu is held.
func (e *Engine) shareDevice(v *view) {
	s := sharing{inWindow: e.anyInWindow(), moving: v.tgt.exists && !v.inWindow(), measuring: e.beginning.measuring, others: e.others(), mean: int64(e.cache.Manifest.Bytes()) / int64(max(1, e.cache.Manifest.Len()))}
	if s.moving {
		_, left := e.epochBytes(v.readEpoch)
		s.sorting, s.sweeping, s.begun = v.sorting, v.unscanned >= 0, v.readEpoch == v.tgt.epoch
		s.moved, s.read = float64(v.unscanned)/float64(max(1, len(e.segs))), 1-float64(left)/float64(max(1, e.beginning.left))
	}
	if depth := s.depth(); depth != e.beginning.depth {
		e.beginning.depth = depth
		e.prefetcher.SetDepth(depth)
	}
	patient := -1
	if s.sorting && s.others > 0 { // the window will make up for the delay
		patient = e.owner.number
	}
	e.prefetcher.SetPatient(patient)
}

// others returns how many samples the largest other job that read recently has in an epoch, as a share of the owner's. The mover calls it at each step.
// e.mu is held.
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

// hasAsked reports whether a rank of a job has requested something within a duration. Engine.mu is held.
func (j *job) hasAsked(now time.Time, within time.Duration) bool {
	for _, r := range j.ranks {
		if !r.asked.IsZero() && now.Sub(r.asked) < within {
			return true
		}
	}
	return false
}
