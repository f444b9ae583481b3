package prefetch

import (
	"lcache/chunker"
	"lcache/sample"
)

// Look reports whether a sample that a rank requests at a position is in flight (reading), or queued for its chunk. Samples that are
// queued only for other chunks do not count: they may wait for memory until those chunks are needed.
func (r *Prefetcher) Look(at chunker.Position, index sample.Index) (reading, queued bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if pf := r.prefetches[index]; pf != nil {
		if pf.state == prefetchInSlot {
			r.leftSlot(pf)
		}
		if pf.state == prefetchReady && pf.x != nil && r.cache.Staging.Restore(pf.x) {
			return true, false // the caller looks into staging again
		}
		if pf.state == prefetchReady && len(pf.chunks) > 0 && !r.cache.Staging.Kept(pf.x) && !r.cache.Staging.Present(index) { // another request took it, for a chunk that was not listed yet
			pf.x = nil
			r.readOnceMore(pf)
			r.wakeUp(int(pf.path))
		}
		switch {
		case pf.state == prefetchReading:
			return true, false
		case pf.state != prefetchReady && pf.isFor(at):
			return false, true
		}
	}
	c := r.ranks[at.JobRank()]
	return false, c != nil && !c.blocked && !at.Before(c.next) && at.Epoch == c.next.Epoch && at.Batch-c.next.Batch <= leap && !c.done[at]
}
