package prefetch

import (
	"lcache/internal/serve/staging"
	"lcache/sample"
)

// A sample that another job needs soon may be in a slot now, because the scan has just loaded it for the job that owns the log's order.
// Such a sample is not read: it is copied when the slot is reused. So jobs that follow one another read it once.

// isInSlot reports whether a prefetch's sample is in a slot. Such a sample is read when it leaves the slot, if a chunk still wants it. r.mu is held.
func (r *Prefetcher) isInSlot(pf *prefetch) bool {
	r.inSlots.Add(1) // before looking: LeftSlot reads it after the sample has left
	if !r.cache.Staging.InSlot(pf.index) {
		r.inSlots.Add(-1)
		return false
	}
	pf.state = prefetchInSlot
	for _, k := range pf.chunks {
		k.left--
	}
	return true
}

// LeftSlot notes that a slot which held a sample is reused.
func (r *Prefetcher) LeftSlot(index sample.Index) {
	if r.inSlots.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if pf := r.prefetches[index]; pf != nil && pf.state == prefetchInSlot {
		r.leftSlot(pf)
	}
}

// leftSlot lists a sample to be read, unless it is still in a slot. r.mu is held.
func (r *Prefetcher) leftSlot(pf *prefetch) {
	if r.cache.Staging.InSlot(pf.index) {
		return
	}
	r.inSlots.Add(-1)
	r.readOnceMore(pf)
	r.wakeUp(int(pf.path))
}

// wholeBytes is the size of an extent that several copies share. It is freed with the last copy.
const wholeBytes = 256 << 10

// inSlot is a prefetch whose sample is in a slot, and the sample's offset.
type inSlot struct {
	*prefetch
	off uint64
}

// KeepFromSlot copies the samples of a slot that chunks want, if there is memory. Call it before the addresses in the slot are withdrawn,
// and call Restore after that.
func (r *Prefetcher) KeepFromSlot(members func(func(sample.Index))) Kept {
	return append(r.keepListed(members), r.keepLater(members)...)
}

// keepListed is KeepFromSlot for listed chunks.
func (r *Prefetcher) keepListed(members func(func(sample.Index))) (kept Kept) {
	if r.inSlots.Load() == 0 {
		return nil
	}
	var wanted []inSlot
	r.mu.Lock()
	members(func(index sample.Index) {
		if pf := r.prefetches[index]; pf != nil && pf.state == prefetchInSlot {
			if off, ok := r.cache.Staging.SlotOffset(index); ok { // only once, because a request by index may give the sample another address at any time
				wanted = append(wanted, inSlot{pf, off})
			}
		}
	})
	r.mu.Unlock()
	for len(wanted) > 0 {
		n, bytes := 0, 0
		for n < len(wanted) && (n == 0 || bytes+r.aligned(wanted[n].prefetch) <= wholeBytes) {
			bytes += r.aligned(wanted[n].prefetch)
			n++
		}
		x, ok := r.alloc(wanted[0].prefetch, bytes)
		if !ok && r.yieldsLater() { // a listed chunk needs the memory before later chunks do
			continue
		}
		if !ok {
			break
		}
		kept = append(kept, r.copyFromSlot(x, wanted[:n])...)
		r.cache.Staging.Drop(x)
		wanted = wanted[n:]
	}
	return kept
}

// aligned returns the bytes that a copy takes.
func (r *Prefetcher) aligned(pf *prefetch) int {
	align := r.cache.Staging.Align()
	return (int(pf.size) + align - 1) / align * align
}

// copyFromSlot copies samples into x, and publishes each one that a chunk still wants.
func (r *Prefetcher) copyFromSlot(x *staging.Extent, wanted []inSlot) Kept {
	pieces := make([]staging.Piece, 0, len(wanted))
	at := 0
	for _, pf := range wanted {
		data := x.Buf[at : at+int(pf.size) : at+int(pf.size)]
		copy(data, r.cache.Staging.Slice(pf.off, len(data)))
		pieces = append(pieces, staging.Piece{Of: x, Index: pf.index, Data: data})
		at += r.aligned(pf.prefetch)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var still []*prefetch
	for i, pf := range wanted {
		if pf.state == prefetchInSlot && len(pf.chunks) > 0 && !r.stopped {
			pieces[i].Takes = len(pf.chunks)
			pieces[len(still)] = pieces[i]
			still = append(still, pf.prefetch)
			pf.state = prefetchReady // a segment may hold a sample twice
		}
	}
	out := make([]*staging.Extent, len(still))
	r.cache.Staging.PublishPieces(pieces[:len(still)], out)
	for i, pf := range still {
		r.inSlots.Add(-1)
		pf.x = out[i]
	}
	return out
}

// Kept are the copies of samples of a slot.
type Kept []*staging.Extent

// Restore publishes the copies as their samples' addresses.
func (k Kept) Restore(s *staging.Staging) {
	for _, x := range k {
		s.Restore(x)
	}
}
