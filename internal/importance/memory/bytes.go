package memory

import (
	"log/slog"
	"math/bits"
	"sync"
	"sync/atomic"

	"lcache/internal/disk/offheap"
	"lcache/sample"
)

// Dataset has the facts about samples that a memory needs.
type Dataset struct {
	Manifest *sample.Manifest
	Sums     *sample.Sums
	Logger   *slog.Logger
}

// Bytes holds copies of samples outside Go's heap. Readers ask it before the log and the source (fetch.Holder). Its
// methods may be called at any time, even after close. No lock is held while bytes are copied or hashed: a copy pins
// its cells, and freed cells are reused only after their last copy has ended.
type Bytes struct {
	data Dataset
	held []atomic.Uint64 // by index: a bit for each held sample. On Go's heap, because readers may use it after close

	taken atomic.Int64 // bytes of the held samples; changed under mu

	warnOnce sync.Once // for the warning about memory that the system refuses

	mu      sync.Mutex // guards the fields that follow
	cells   *cells
	first   []uint32                // by index: the first cell of its bytes, plus 1. 0: not held, so new memory is empty
	pending map[sample.Index]uint32 // the first cells of samples that are being written
	pins    map[uint32]pin          // by first cell: the chains that are being read or written
	closed  bool
}

// pin counts the copies of a chain that are in progress.
type pin struct {
	copies int
	freed  bool // the last copy frees the cells
}

func newBytes(d Dataset) (*Bytes, error) {
	first, err := offheap.Make[uint32](d.Manifest.Len())
	return &Bytes{data: d, held: make([]atomic.Uint64, (d.Manifest.Len()+63)/64), cells: newCells(d.Manifest), first: first,
		pending: map[sample.Index]uint32{}, pins: map[uint32]pin{}}, err
}

// close frees the memory. Cells that are being copied are freed when their last copy has ended.
func (h *Bytes) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k := range h.held {
		h.held[k].Store(0)
	}
	offheap.Free(h.first)
	h.taken.Store(0)
	h.first, h.closed = nil, true
	clear(h.pending)
	if len(h.pins) == 0 {
		h.cells.close()
	}
}

// isClosed reports whether the memory is freed.
func (h *Bytes) isClosed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closed
}

// Taken returns the bytes of the held samples. It takes no lock.
func (h *Bytes) Taken() int64 { return h.taken.Load() }

// knows reports whether an index is in the dataset.
func (h *Bytes) knows(index sample.Index) bool { return int(index) < h.data.Manifest.Len() }

// Has reports whether a sample is held (fetch.Holder). It takes no lock.
func (h *Bytes) Has(index sample.Index) bool {
	return int(index)/64 < len(h.held) && h.held[index/64].Load()&(1<<(index%64)) != 0
}

// hasOrWrites reports whether a sample is held, or is being written.
func (h *Bytes) hasOrWrites(index sample.Index) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, comes := h.pending[index]
	return comes || h.Has(index)
}

// Set returns the held samples; nil after close. The caller closes the set.
func (h *Bytes) Set() (*sample.Set, error) {
	if h.isClosed() {
		return nil, nil
	}
	set, err := sample.NewSet(h.data.Manifest.Len())
	if err != nil {
		return nil, err
	}
	for k := range h.held {
		for word := h.held[k].Load(); word != 0; word &= word - 1 {
			set.Add(sample.Index(k*64 + bits.TrailingZeros64(word)))
		}
	}
	return set, nil
}

// Copy copies a held sample to dst, which has its size, and reports whether it was held (fetch.Holder).
func (h *Bytes) Copy(index sample.Index, dst []byte) bool {
	if !h.Has(index) {
		return false
	}
	c, ok := h.pin(index)
	if !ok {
		return false
	}
	c.read(dst)
	h.unpin(c.first)
	return true
}

// pin returns a sample's chain. Nothing is written to it before unpin. pin returns false if the sample is not held.
func (h *Bytes) pin(index sample.Index) (c chain, ok bool) {
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

// unpin ends a copy.
func (h *Bytes) unpin(first uint32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unpinLocked(first)
}

func (h *Bytes) unpinLocked(first uint32) {
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

// Size returns the bytes that a sample takes in this memory.
func (h *Bytes) Size(index sample.Index) int64 {
	return h.cells.round(int64(h.data.Manifest.Size(index)))
}

// isRight reports whether data matches a sample's checksum.
func (h *Bytes) isRight(index sample.Index, data []byte) bool {
	return len(data) > 0 && h.data.Sums.IsRight(index, data)
}

// A writing is the reserved room for one sample, which its owner fills without a lock.
type writing struct {
	chain
	index sample.Index
	sum   uint64
	data  []byte
}

// begin reserves room for a copy of a sample; fill copies the bytes. If free is called before that, the reservation ends. begin returns false if the
// sample is held or being written, if its checksum is unknown, or if memory is full.
func (h *Bytes) begin(index sample.Index, data []byte) (w writing, ok bool) {
	sum, known := h.data.Sums.Get(index)
	if len(data) == 0 || !known {
		return w, false
	}
	h.mu.Lock()
	if _, comes := h.pending[index]; h.closed || comes || h.first[index] != 0 {
		h.mu.Unlock()
		return w, false
	}
	c, err := h.cells.take(len(data))
	if err == nil {
		h.pending[index] = c.first
		h.pins[c.first] = pin{copies: 1}
	}
	h.mu.Unlock()
	if err != nil {
		h.warnOnce.Do(func() {
			h.data.Logger.Warn("the system refuses memory for samples that importance keeps, so they will be read again; lower --memory or cache=, or raise the limits of the process (ulimit -v, vm.overcommit_memory)", "err", err)
		})
	}
	return writing{c, index, sum, data}, err == nil
}

// fill copies a sample's bytes into reserved room. The sample is held from then on if its checksum matches and the reservation was not ended.
func (h *Bytes) fill(w writing) {
	w.write(w.data)
	right := w.chain.sum(len(w.data)) == w.sum // checks the copy, because data may change meanwhile
	h.mu.Lock()
	defer h.mu.Unlock()
	if first, comes := h.pending[w.index]; comes && first == w.first {
		delete(h.pending, w.index)
		if right {
			h.first[w.index] = w.first + 1
			h.held[w.index/64].Or(1 << (w.index % 64))
			h.taken.Add(h.Size(w.index))
		} else {
			h.release(w.first)
		}
	}
	h.unpinLocked(w.first)
}

// keep keeps a copy of a sample's bytes if their checksum matches.
func (h *Bytes) keep(index sample.Index, data []byte) {
	if w, ok := h.begin(index, data); ok {
		h.fill(w)
	}
}

// free frees a sample's bytes, or ends its reservation.
func (h *Bytes) free(index sample.Index) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if first, comes := h.pending[index]; comes {
		delete(h.pending, index)
		h.release(first)
	}
	if h.closed || !h.Has(index) {
		return
	}
	h.held[index/64].And(^uint64(1 << (index % 64)))
	h.release(h.first[index] - 1)
	h.first[index] = 0
	h.taken.Add(-h.Size(index))
}

// release frees a chain, now or after its last copy has ended. h.mu is held.
func (h *Bytes) release(first uint32) {
	if p, pinned := h.pins[first]; pinned {
		p.freed = true
		h.pins[first] = p
		return
	}
	h.cells.free(first)
}
