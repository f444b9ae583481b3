package engine

import (
	"fmt"
	"sync"
	"sync/atomic"

	"lcache/cache"
	"lcache/deliver"
	"lcache/drawn"
	"lcache/importance"
	"lcache/offheap"
	"lcache/sample"

	"github.com/dustin/go-humanize"
)

// A highMemory holds the bytes of the samples that a job's memory policy keeps, outside Go's heap and beside the shared memory. Samples enter when they were delivered and
// had not been here; a hit is one copy. It is the first supplier of all reads by index and ahead of requests.
type highMemory struct {
	e      *Engine
	begins atomic.Pointer[highCounts] // while an epoch begins: what was counted until then

	mu     sync.RWMutex // guards the fields that follow
	policy importance.Policy
	cells  *cells
	first  []uint32 // by index: one more than the first cell of its bytes; 0: it is not here
	stats  importance.Stats
	taken  int64       // bytes that the policy keeps
	seen   *sample.Set // what was delivered
}

// newHighMemory makes the memory of a job; nil without room for any sample.
func (e *Engine) newHighMemory(c drawn.Config) (*highMemory, error) {
	m, err := importance.Lookup(c.Method)
	if err != nil {
		return nil, err
	}
	c.Params.RatioStart = 1 // no sample may stand in for others: all memory is for the important ones
	h := &highMemory{e: e, cells: newCells(e.cache.Manifest)}
	if h.policy, err = m.NewPolicy(c.Policy, e.cache.Manifest.Labels(), c.Cache, c.Params); err != nil {
		return nil, err
	}
	if h.first, err = offheap.Make[uint32](e.cache.Manifest.Len()); err == nil {
		h.seen, err = sample.NewSet(e.cache.Manifest.Len())
	}
	if err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

func (h *highMemory) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.policy.Close()
	h.cells.close()
	offheap.Free(h.first)
	h.first = nil
	h.seen.Close()
}

// strange counts indices of the dataset that were not delivered.
func (h *highMemory) strange(indices []sample.Index) (n int64) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, i := range indices {
		if int(i) < len(h.first) && !h.seen.Has(i) {
			n++
		}
	}
	return n
}

// Has reports whether a sample's bytes are here (fetch.Holder).
func (h *highMemory) Has(index sample.Index) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return int(index) < len(h.first) && h.first[index] != 0
}

// Copy copies a sample's bytes to dst, which has its size, if they are here (fetch.Holder).
func (h *highMemory) Copy(index sample.Index, dst []byte) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if int(index) >= len(h.first) || h.first[index] == 0 {
		return false
	}
	h.cells.read(h.first[index]-1, dst)
	return true
}

// begin begins an epoch: targets are the expected uses of all samples, values their importance.
func (h *highMemory) begin(epoch int, values, targets []float64, order []sample.Index, c drawn.Config) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.begins.Store(&highCounts{h.stats, h.taken})
	defer h.begins.Store(nil)
	switch p := h.policy.(type) {
	case *importance.NextUse:
		p.Begin(epoch, targets, order)
	case *importance.HCache:
		if high, err := importance.Top(values, c.Cache, h.size); err == nil {
			for i := range values {
				if !high.Has(sample.Index(i)) {
					values[i] = 0
				}
			}
			high.Close()
		}
		p.Begin(epoch, values, order)
		p.Build(-1)
	default:
		p.Begin(epoch, values, order)
	}
}

// endEpoch leaves memory for the boundary.
func (h *highMemory) endEpoch() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p, ok := h.policy.(*importance.NextUse); ok {
		p.EndEpoch()
	}
}

// size is how many bytes a sample takes here.
func (h *highMemory) size(index sample.Index) int64 {
	return h.cells.round(int64(h.e.cache.Manifest.Size(index)))
}

// observe tells the policy of new values.
func (h *highMemory) observe(indices []sample.Index, value func(sample.Index) (float64, bool)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, i := range indices {
		if v, seen := value(i); seen {
			h.policy.Observe(i, v)
		}
	}
}

// served counts a delivery, and keeps what the policy wants of it. Bytes that may have been overwritten meanwhile, because the client is gone, are not kept.
func (h *highMemory) served(d deliver.Delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.first == nil {
		return
	}
	for k, index := range d.Indices {
		h.seen.Add(index)
		if _, kind := h.policy.Get(index, nil); kind == importance.Hit {
			h.stats.HighHits++
			continue
		}
		if k < len(d.Addresses) && d.Addresses[k].FromSource {
			h.stats.SourceMisses++
		} else {
			h.stats.LogHits++
		}
		if d.Addresses == nil {
			continue
		}
		keep, drop := h.policy.Offer(index, h.size(index))
		for _, gone := range drop {
			h.free(gone)
		}
		if keep && h.first[index] == 0 {
			h.keep(index, h.e.staging.Slice(d.Addresses[k].Offset, int(h.e.cache.Manifest.Size(index))))
		}
	}
}

func (h *highMemory) keep(index sample.Index, data []byte) {
	sum, known := h.e.cache.Sums.Get(index)
	if len(data) == 0 || !known {
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
	h.taken += h.size(index)
}

func (h *highMemory) free(index sample.Index) {
	if h.first[index] != 0 {
		h.cells.free(h.first[index] - 1)
		h.first[index] = 0
		h.taken -= h.size(index)
	}
}

// highCounts are what was counted, and the bytes that are here.
type highCounts struct {
	importance.Stats
	taken int64
}

// counted is what was counted. It does not wait while an epoch begins, which takes a while at millions of samples: nothing is counted meanwhile.
func (h *highMemory) counted() highCounts {
	if last := h.begins.Load(); last != nil {
		return *last
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	return highCounts{h.stats, h.taken}
}

// spareMemory is what --memory leaves beside all that the server plans and what other jobs' importance has.
func (e *Engine) spareMemory() int64 {
	limit := e.opts.Memory
	if limit == 0 {
		limit = e.cache.Record.Memory
	}
	if limit == 0 {
		limit = int64(cache.MachineMemory() / 4)
	}
	left := limit - int64(e.cache.Sizing.Memory)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.states {
		left -= p.config.Cache
	}
	return left
}

// checkMemory refuses a cache that --memory leaves no room for.
func (e *Engine) checkMemory(c drawn.Config) error {
	left := e.spareMemory()
	if c.Cache <= max(left, 0) {
		return nil
	}
	need := int64(e.cache.Sizing.Memory) + c.Cache
	e.mu.Lock()
	for _, p := range e.states {
		need += p.config.Cache
	}
	e.mu.Unlock()
	return &deliver.ArgumentError{Reason: fmt.Sprintf("importance: cache=%s is more than the %s that memory leaves: give the server --memory %d or more, or a smaller cache",
		humanize.IBytes(uint64(c.Cache)), humanize.IBytes(uint64(max(left, 0))), need)}
}

// cells is memory in cells of one size. What is longer than a cell lies in a chain of them.
type cells struct {
	size   int
	chunks [][]byte
	next   []uint32 // by cell: one more than the next one of the chain; 0: it is the last
	unused uint32   // one more than the first free cell; 0: there is none
}

// cellsEach is how many cells a sample of mean size takes; chunkCells how many cells are mapped at once.
const (
	cellsEach  = 8
	chunkCells = 1024
)

func newCells(m *sample.Manifest) *cells {
	mean := int(m.Bytes()) / max(m.Len(), 1)
	return &cells{size: max(16, (mean+cellsEach-1)/cellsEach)}
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
	k := int(cell % chunkCells)
	return c.chunks[cell/chunkCells][k*c.size : (k+1)*c.size]
}

// take takes a free cell.
func (c *cells) take() (uint32, bool) {
	if c.unused == 0 {
		chunk, err := offheap.MakeDense[byte](chunkCells * c.size)
		if err != nil {
			return 0, false
		}
		from := uint32(len(c.next))
		c.chunks = append(c.chunks, chunk)
		for k := range uint32(chunkCells) {
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
