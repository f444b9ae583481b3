package prefetch

import (
	"slices"
	"sync/atomic"

	"lcache/chunker"
	"lcache/internal/serve/staging"
	"lcache/sample"
)

// A rank of a job that does not own the log's order is served by random reads. While a scan runs for the owner, each sample is in a slot
// once in the epoch. So the Prefetcher notes the samples that such a rank needs after its listed chunks. When the slot of a noted
// sample is reused, the sample is copied if there is memory, and is not read when its chunk is listed. With memory for 2 % of the
// samples, this saves about a third of the reads of a rank that is a fifth as fast as the scan.

// mostLater bounds the number of noted samples of all ranks.
const mostLater = 1 << 16

// laterSamples are the samples that ranks need after their listed chunks. Prefetcher.mu guards the fields except n.
type laterSamples struct {
	samples map[sample.Index]*laterSample
	n       atomic.Int64 // number of samples
}

// laterSample is a sample of a later chunk.
type laterSample struct {
	of *rankCursor
	at chunker.Position
	x  *staging.Extent // its copy, or nil
}

// laterChunks are the noted chunks of a rank, in order.
type laterChunks struct {
	next    chunker.Position // the next position to note
	blocked bool             // Options.Later had no chunk at next
	list    []laterChunk
	bytes   int64 // of copies
}

type laterChunk struct {
	at      chunker.Position
	samples []sample.Index
}

// copyBytes returns the memory of a copy in bytes.
func copyBytes(size uint32) int64 { return int64(size+4095) &^ 4095 }

// laterShare returns the bytes that copies for later chunks of a rank may take. It is 0 unless a scan runs for another job. It is the
// unused part of the rank's share, plus the shares of ranks that read nothing ahead because the scan serves them. r.mu is held.
func (c *rankCursor) laterShare() int64 {
	if !c.scanning {
		return 0
	}
	return c.share - c.nearShare() + c.lent
}

// nearShare returns the bytes that the listed chunks of a rank may fill. r.mu is held.
func (c *rankCursor) nearShare() int64 {
	if !c.scanning {
		return c.share
	}
	return max(c.share/2, min(c.share, 2*c.largest))
}

// noteLater notes the next chunk of a rank with room for more copies. It returns false if there is none.
func (r *Prefetcher) noteLater() bool {
	r.mu.Lock()
	var c *rankCursor
	for _, one := range r.ranks {
		l := &one.later
		if l.next.Before(one.next) {
			l.next = one.next
		}
		if len(l.list) >= mostListed { // the bytes don't limit the number of chunks if their samples are noted for other ranks
			continue
		}
		if l.blocked || l.next.Epoch > one.next.Epoch || l.bytes >= one.laterShare()*3/4 { // 3/4: samples of two epochs take twice the memory
			continue
		}
		if c == nil || len(l.list) < len(c.later.list) {
			c = one
		}
	}
	if c == nil || len(r.later.samples) >= mostLater || r.ctx.Err() != nil {
		r.mu.Unlock()
		return false
	}
	at := c.later.next
	r.mu.Unlock()
	upcoming, ok := r.o.Later(at)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch l := &c.later; {
	case r.ranks[c.rank] != c || l.next != at: // the rank has jumped meanwhile, or is forgotten
	case !ok || !upcoming.Scanning:
		l.blocked = true
	default:
		l.next = upcoming.Next
		r.addLater(c, at, &upcoming)
	}
	return true
}

// addLater notes the samples of a chunk that no other chunk has noted or listed. r.mu is held.
func (r *Prefetcher) addLater(c *rankCursor, at chunker.Position, upcoming *Upcoming) {
	k := laterChunk{at: at}
	for _, index := range upcoming.Content {
		if r.cache.Manifest.Size(index) == 0 || r.prefetches[index] != nil || r.later.samples[index] != nil || upcoming.Left != nil && !upcoming.Left(index) {
			continue
		}
		r.later.samples[index] = &laterSample{of: c, at: at}
		k.samples = append(k.samples, index)
	}
	r.later.n.Store(int64(len(r.later.samples)))
	c.later.list = append(c.later.list, k)
}

// claim returns the copy of a sample whose chunk is being listed, or nil. r.mu is held.
func (r *Prefetcher) claim(index sample.Index) *staging.Extent {
	s := r.later.samples[index]
	if s == nil {
		return nil
	}
	r.forgetLater(index)
	if s.x == nil || !r.cache.Staging.Kept(s.x) { // a request by index took it
		return nil
	}
	return s.x
}

// forgetLater removes a sample from the table. The caller takes over its copy, if there is one. r.mu is held.
func (r *Prefetcher) forgetLater(index sample.Index) {
	s := r.later.samples[index]
	if s.x != nil {
		s.of.later.bytes -= copyBytes(r.cache.Manifest.Size(index))
	}
	delete(r.later.samples, index)
	r.later.n.Store(int64(len(r.later.samples)))
}

// passLater forgets the noted chunks of a rank that have been listed. r.mu is held.
func (r *Prefetcher) passLater(c *rankCursor) {
	l := &c.later
	for len(l.list) > 0 && l.list[0].at.Before(c.next) {
		r.dropLater(c, 0)
	}
	l.blocked = false
}

// dropLater forgets a noted chunk, and frees its copies. r.mu is held.
func (r *Prefetcher) dropLater(c *rankCursor, i int) (freed bool) {
	l := &c.later
	for _, index := range l.list[i].samples {
		if s := r.later.samples[index]; s != nil && s.of == c {
			r.forgetLater(index)
			if s.x != nil {
				freed = r.cache.Staging.KeepAtMost(s.x, 0) || freed
			}
		}
	}
	l.list = slices.Delete(l.list, i, i+1)
	return freed
}

// dropAllLater forgets all noted chunks of a rank: its order has changed, it has jumped, or it has ended. r.mu is held.
func (r *Prefetcher) dropAllLater(c *rankCursor) {
	for len(c.later.list) > 0 {
		r.dropLater(c, len(c.later.list)-1)
	}
	c.later = laterChunks{}
}

// trimLater frees copies of a rank that exceed its part of the memory. Copies in half of the rank's share stay when the scan is
// interrupted, for example between two epochs. r.mu is held.
func (r *Prefetcher) trimLater(c *rankCursor) {
	most := c.laterShare()
	if !c.scanning {
		most = c.share / 2
	}
	for c.later.bytes > most && r.shortenLater(c) {
	}
}

// yieldLater frees copies of the last needed chunk of the rank with the most copies. It returns false if there are none. r.mu is held.
func (r *Prefetcher) yieldLater() bool {
	var most *rankCursor
	for _, c := range r.ranks {
		if c.later.bytes > 0 && (most == nil || c.later.bytes > most.later.bytes) {
			most = c
		}
	}
	return most != nil && r.shortenLater(most)
}

// yieldsLater is yieldLater for callers that do not hold r.mu.
func (r *Prefetcher) yieldsLater() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.yieldLater()
}

// shortenLater forgets noted chunks from the last one on, until that frees a copy. r.mu is held.
func (r *Prefetcher) shortenLater(c *rankCursor) (freed bool) {
	for len(c.later.list) > 0 && !freed {
		freed = r.dropLastLater(c)
	}
	return freed
}

// dropLastLater forgets the last noted chunk. It may be noted again. r.mu is held.
func (r *Prefetcher) dropLastLater(c *rankCursor) (freed bool) {
	last := len(c.later.list) - 1
	c.later.next = c.later.list[last].at
	return r.dropLater(c, last)
}

// keepLater copies the samples of a slot that later chunks want, if there is memory. Copies for an earlier chunk may replace copies for a later one.
func (r *Prefetcher) keepLater(members func(func(sample.Index))) (kept Kept) {
	if r.later.n.Load() == 0 {
		return nil
	}
	var wanted []sample.Index
	r.mu.Lock()
	members(func(index sample.Index) {
		switch s := r.later.samples[index]; {
		case s == nil || r.prefetches[index] != nil:
		case s.x != nil: // it was in a slot before
			kept = append(kept, s.x)
		default:
			wanted = append(wanted, index)
		}
	})
	r.mu.Unlock()
	for _, index := range wanted {
		if x := r.copyLater(index); x != nil {
			kept = append(kept, x)
		}
	}
	return kept
}

// copyLater copies a sample that is in a slot. It returns nil if no chunk wants the sample any longer, or if
// memory has no room.
func (r *Prefetcher) copyLater(index sample.Index) *staging.Extent {
	size := r.cache.Manifest.Size(index)
	r.mu.Lock()
	s := r.later.samples[index]
	off, in := r.cache.Staging.SlotOffset(index)
	if s == nil || s.x != nil || !in || !r.hasRoomLater(s, copyBytes(size)) {
		r.mu.Unlock()
		return nil
	}
	r.mu.Unlock()
	whole, ok := r.alloc(&prefetch{index: index, size: size}, int(size))
	if !ok {
		return nil
	}
	defer r.cache.Staging.Drop(whole)
	data := whole.Buf[:size:size]
	copy(data, r.cache.Staging.Slice(off, len(data)))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.later.samples[index] != s || s.x != nil || r.prefetches[index] != nil || r.stopped { // it was listed meanwhile
		return nil
	}
	out := make([]*staging.Extent, 1)
	r.cache.Staging.PublishPieces([]staging.Piece{{Of: whole, Index: index, Data: data, Takes: 1, From: sample.FromLog}}, out)
	s.x = out[0]
	s.of.later.bytes += copyBytes(size)
	return s.x
}

// hasRoomLater reports whether the copies of a rank may take n more bytes for a sample. It first drops copies for chunks after the
// sample's chunk. r.mu is held.
func (r *Prefetcher) hasRoomLater(s *laterSample, n int64) bool {
	c := s.of
	for c.later.bytes+n > c.laterShare() {
		last := len(c.later.list) - 1
		if last < 0 || !s.at.Before(c.later.list[last].at) {
			return false
		}
		r.dropLastLater(c)
	}
	return true
}
