package engine

import (
	"sync"
	"sync/atomic"

	"lcache/cache"
	"lcache/offheap"
	"lcache/sample"
)

// sampleBytes are the bytes of the samples that a memory policy keeps. Its owner locks it, but for has.
type sampleBytes struct {
	cache *cache.Cache
	here  []atomic.Uint64 // by index: a bit for each sample whose bytes are here. On Go's heap, because readers may outlast the rest
	cells *cells
	first []uint32 // by index: one more than the first cell of its bytes, if it is here
	taken int64    // bytes
}

// lockedBytes are sampleBytes that readers of samples look into, too. The owner locks mu to change them.
type lockedBytes struct {
	mu   sync.RWMutex
	held *sampleBytes
}

// Has reports whether a sample's bytes are here (fetch.Holder). It takes no lock: callers hold Engine.mu, and mu is held while an epoch begins.
func (l *lockedBytes) Has(index sample.Index) bool { return l.held.has(index) }

// Copy copies a sample's bytes to dst, which has its size, if they are here (fetch.Holder).
func (l *lockedBytes) Copy(index sample.Index, dst []byte) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.held.copy(index, dst)
}

func newSampleBytes(c *cache.Cache) (*sampleBytes, error) {
	first, err := offheap.Make[uint32](c.Manifest.Len())
	return &sampleBytes{cache: c, here: make([]atomic.Uint64, (c.Manifest.Len()+63)/64), cells: newCells(c.Manifest), first: first}, err
}

func (h *sampleBytes) close() {
	h.cells.close()
	offheap.Free(h.first)
	h.first, h.taken = nil, 0
	for k := range h.here {
		h.here[k].Store(0)
	}
}

func (h *sampleBytes) closed() bool { return h.first == nil }

// knows reports whether an index is one of the dataset.
func (h *sampleBytes) knows(index sample.Index) bool { return int(index) < len(h.first) }

func (h *sampleBytes) has(index sample.Index) bool {
	return int(index)/64 < len(h.here) && h.here[index/64].Load()&(1<<(index%64)) != 0
}

// copy copies a sample's bytes to dst, which has its size, if they are here.
func (h *sampleBytes) copy(index sample.Index, dst []byte) bool {
	if !h.has(index) {
		return false
	}
	h.cells.read(h.first[index]-1, dst)
	return true
}

// size is how many bytes a sample takes here.
func (h *sampleBytes) size(index sample.Index) int64 {
	return h.cells.round(int64(h.cache.Manifest.Size(index)))
}

// isRight reports whether bytes are a sample's, by its checksum.
func (h *sampleBytes) isRight(index sample.Index, data []byte) bool {
	return len(data) > 0 && h.cache.Sums.IsRight(index, data)
}

// keep keeps a copy of a sample's bytes, if its checksum says that they are right.
func (h *sampleBytes) keep(index sample.Index, data []byte) {
	sum, known := h.cache.Sums.Get(index)
	if len(data) == 0 || !known || h.has(index) {
		return
	}
	cell, ok := h.cells.write(data)
	if !ok {
		return
	}
	if h.cells.sum(cell, len(data)) != sum {
		h.cells.free(cell)
		return
	}
	h.first[index] = cell + 1
	h.here[index/64].Or(1 << (index % 64))
	h.taken += h.size(index)
}

func (h *sampleBytes) free(index sample.Index) {
	if h.has(index) {
		h.here[index/64].And(^uint64(1 << (index % 64)))
		h.cells.free(h.first[index] - 1)
		h.taken -= h.size(index)
	}
}

// cells is memory in cells of one size. What is longer than a cell lies in a chain of them.
type cells struct {
	size   int
	each   uint32 // cells of a chunk, which is mapped at once
	chunks [][]byte
	next   []uint32 // by cell: one more than the next one of the chain; 0: it is the last
	unused uint32   // one more than the first free cell; 0: there is none
}

// cellsEach is how many cells a sample of mean size takes. At once chunkCells cells are mapped, but no more than chunkBytes: the system refuses what is larger than its memory.
const (
	cellsEach  = 8
	chunkCells = 1024
	chunkBytes = 64 << 20
)

func newCells(m *sample.Manifest) *cells {
	return cellsOf(int(m.Bytes()) / max(m.Len(), 1))
}

// cellsOf returns cells for samples of a mean size.
func cellsOf(mean int) *cells {
	size := max(16, (mean+cellsEach-1)/cellsEach)
	return &cells{size: size, each: uint32(max(1, min(chunkCells, chunkBytes/size)))}
}

func (c *cells) close() {
	for _, chunk := range c.chunks {
		offheap.Free(chunk)
	}
	c.chunks, c.next, c.unused = nil, nil, 0
}

// round is how many bytes cells take for n.
func (c *cells) round(n int64) int64 {
	size := int64(c.size)
	return (n + size - 1) / size * size
}

func (c *cells) at(cell uint32) []byte {
	k := int(cell % c.each)
	return c.chunks[cell/c.each][k*c.size : (k+1)*c.size]
}

// take takes a free cell.
func (c *cells) take() (uint32, bool) {
	if c.unused == 0 {
		chunk, err := offheap.MakeDense[byte](int(c.each) * c.size)
		if err != nil {
			return 0, false
		}
		from := uint32(len(c.next))
		c.chunks = append(c.chunks, chunk)
		for k := range c.each {
			c.next = append(c.next, c.unused)
			c.unused = from + k + 1
		}
	}
	cell := c.unused - 1
	c.unused, c.next[cell] = c.next[cell], 0
	return cell, true
}

// write puts bytes into a chain of cells, and returns its first one.
func (c *cells) write(data []byte) (first uint32, ok bool) {
	last := uint32(0)
	for at := 0; at < len(data); at += c.size {
		cell, ok := c.take()
		switch {
		case !ok && at > 0:
			c.free(first)
			return 0, false
		case !ok:
			return 0, false
		case at == 0:
			first = cell
		default:
			c.next[last] = cell + 1
		}
		copy(c.at(cell), data[at:])
		last = cell
	}
	return first, true
}

// read copies a chain to dst, which is as long as what was written.
func (c *cells) read(cell uint32, dst []byte) {
	for {
		n := copy(dst, c.at(cell))
		if dst = dst[n:]; len(dst) == 0 || c.next[cell] == 0 {
			return
		}
		cell = c.next[cell] - 1
	}
}

// sum is the checksum of a chain.
func (c *cells) sum(cell uint32, n int) uint64 {
	data := make([]byte, n)
	c.read(cell, data)
	return sample.Sum(data)
}

func (c *cells) free(cell uint32) {
	for {
		after := c.next[cell]
		c.next[cell], c.unused = c.unused, cell+1
		if after == 0 {
			return
		}
		cell = after - 1
	}
}
