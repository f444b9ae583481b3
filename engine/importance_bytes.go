package engine

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"lcache/cache"
	"lcache/offheap"
	"lcache/sample"
)

// sampleBytes are the bytes of the samples that a memory keeps, outside Go's heap. It is the first supplier of reads by index and ahead of requests (fetch.Holder). Its methods may be called at any time, also
// after close. No lock is held while bytes are copied or hashed: a copy pins its cells, and cells that are freed meanwhile are used again after the last copy has ended.
type sampleBytes struct {
	cache *cache.Cache
	here  []atomic.Uint64 // by index: a bit for each sample whose bytes are here. On Go's heap, because readers may outlast the rest

	warnOnce sync.Once // of memory that the system refuses

	mu     sync.Mutex // guards the fields that follow
	cells  *cells
	first  []uint32                // by index: one more than the first cell of its bytes; 0: they are not here
	coming map[sample.Index]uint32 // the first cells of samples that are being written
	pins   map[uint32]pin          // by first cell: the chains that are being read or written
	taken  int64                   // bytes of the samples that are here
	closed bool
}

// pin counts the copies of a chain that are under way.
type pin struct {
	copies int
	freed  bool // the last copy gives the cells back
}

func newSampleBytes(c *cache.Cache) (*sampleBytes, error) {
	first, err := offheap.Make[uint32](c.Manifest.Len())
	return &sampleBytes{cache: c, here: make([]atomic.Uint64, (c.Manifest.Len()+63)/64), cells: newCells(c.Manifest), first: first,
		coming: map[sample.Index]uint32{}, pins: map[uint32]pin{}}, err
}

// close frees the memory. What is being copied now stays until the last copy has ended.
func (h *sampleBytes) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k := range h.here {
		h.here[k].Store(0)
	}
	offheap.Free(h.first)
	h.first, h.taken, h.closed = nil, 0, true
	clear(h.coming)
	if len(h.pins) == 0 {
		h.cells.close()
	}
}

// isClosed reports whether the memory is freed.
func (h *sampleBytes) isClosed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closed
}

// bytes is how many bytes of samples are here.
func (h *sampleBytes) bytes() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.taken
}

// knows reports whether an index is one of the dataset.
func (h *sampleBytes) knows(index sample.Index) bool { return int(index) < h.cache.Manifest.Len() }

// Has reports whether a sample's bytes are here (fetch.Holder). It takes no lock.
func (h *sampleBytes) Has(index sample.Index) bool {
	return int(index)/64 < len(h.here) && h.here[index/64].Load()&(1<<(index%64)) != 0
}

// hasOrWrites reports whether a sample's bytes are here, or being written.
func (h *sampleBytes) hasOrWrites(index sample.Index) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, comes := h.coming[index]
	return comes || h.Has(index)
}

// set lists the samples whose bytes are here; nil after close. The caller closes the set.
func (h *sampleBytes) set() (*sample.Set, error) {
	if h.isClosed() {
		return nil, nil
	}
	set, err := sample.NewSet(h.cache.Manifest.Len())
	if err != nil {
		return nil, err
	}
	for k := range h.here {
		for word := h.here[k].Load(); word != 0; word &= word - 1 {
			set.Add(sample.Index(k*64 + bits.TrailingZeros64(word)))
		}
	}
	return set, nil
}

// Copy copies a sample's bytes to dst, which has its size, if they are here (fetch.Holder).
func (h *sampleBytes) Copy(index sample.Index, dst []byte) bool {
	if !h.Has(index) {
		return false
	}
	c, ok := h.pin(index)
	if !ok {
		return false
	}
	c.read(dst)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unpin(c.first)
	return true
}

// pin returns a sample's chain, which nothing writes to before unpin; false: the sample is not here.
func (h *sampleBytes) pin(index sample.Index) (c chain, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.first[index] == 0 {
		return c, false
	}
	c = h.cells.chain(h.first[index] - 1)
	p := h.pins[c.first]
	p.copies++
	h.pins[c.first] = p
	return c, true
}

// unpin ends a copy. h.mu is held.
func (h *sampleBytes) unpin(first uint32) {
	p := h.pins[first]
	if p.copies--; p.copies > 0 {
		h.pins[first] = p
		return
	}
	delete(h.pins, first)
	switch {
	case h.closed && len(h.pins) == 0:
		h.cells.close()
	case p.freed && !h.closed:
		h.cells.free(first)
	}
}

// size is how many bytes a sample takes here.
func (h *sampleBytes) size(index sample.Index) int64 {
	return h.cells.round(int64(h.cache.Manifest.Size(index)))
}

// isRight reports whether bytes are a sample's, by its checksum.
func (h *sampleBytes) isRight(index sample.Index, data []byte) bool {
	return len(data) > 0 && h.cache.Sums.IsRight(index, data)
}

// A writing is room for one sample, which its owner fills without a lock.
type writing struct {
	chain
	index sample.Index
	sum   uint64
	data  []byte
}

// begin sets room apart for a copy of a sample's bytes. fill copies them; free before that takes the room back. It returns false if the sample is here or being written, if its checksum is not known,
// and if there is no memory for it.
func (h *sampleBytes) begin(index sample.Index, data []byte) (w writing, ok bool) {
	sum, known := h.cache.Sums.Get(index)
	if len(data) == 0 || !known {
		return w, false
	}
	h.mu.Lock()
	if _, comes := h.coming[index]; h.closed || comes || h.first[index] != 0 {
		h.mu.Unlock()
		return w, false
	}
	c, err := h.cells.take(len(data))
	if err == nil {
		h.coming[index] = c.first
		h.pins[c.first] = pin{copies: 1}
	}
	h.mu.Unlock()
	if err != nil {
		h.warnOnce.Do(func() {
			h.cache.Logger.Warn("the system gives no memory for samples that importance keeps: these are read again; lower --memory or cache=, or raise the limits of the process (ulimit -v, vm.overcommit_memory)", "err", err)
		})
	}
	return writing{c, index, sum, data}, err == nil
}

// fill copies a sample's bytes into the room that begin gave. They are here from then on if their checksum is right and free did not take the room back.
func (h *sampleBytes) fill(w writing) {
	w.write(w.data)
	right := w.chain.sum(len(w.data)) == w.sum // of the copy: the data may change meanwhile
	h.mu.Lock()
	defer h.mu.Unlock()
	if first, comes := h.coming[w.index]; comes && first == w.first {
		delete(h.coming, w.index)
		if right {
			h.first[w.index] = w.first + 1
			h.here[w.index/64].Or(1 << (w.index % 64))
			h.taken += h.size(w.index)
		} else {
			h.release(w.first)
		}
	}
	h.unpin(w.first)
}

// keep keeps a copy of a sample's bytes, if its checksum says that they are right.
func (h *sampleBytes) keep(index sample.Index, data []byte) {
	if w, ok := h.begin(index, data); ok {
		h.fill(w)
	}
}

// free frees a sample's bytes, or the room that is set apart for them.
func (h *sampleBytes) free(index sample.Index) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if first, comes := h.coming[index]; comes {
		delete(h.coming, index)
		h.release(first)
	}
	if h.closed || !h.Has(index) {
		return
	}
	h.here[index/64].And(^uint64(1 << (index % 64)))
	h.release(h.first[index] - 1)
	h.first[index] = 0
	h.taken -= h.size(index)
}

// release gives a chain back, or has its last copy do so. h.mu is held.
func (h *sampleBytes) release(first uint32) {
	if p, pinned := h.pins[first]; pinned {
		p.freed = true
		h.pins[first] = p
		return
	}
	h.cells.free(first)
}
