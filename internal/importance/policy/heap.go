package policy

import (
	"math"

	"lcache/internal/disk/offheap"
	"lcache/sample"
)

// heap holds cached samples with a key and a size. The sample to evict first is on top: the smallest key; of equal keys the fewest uses, then the
// smallest index. It needs 16 bytes per cached sample, and 4 bytes per sample of the dataset to find its position.
//
// Each entry has four children, which share one cache line: with millions of samples, cache misses dominate the cost of a step.
type heap struct {
	words []uint64 // by position, from heapPad on: the bits of the key, and index << 32 | bytes
	at    []uint32 // position of a sample in the heap, from 1; 0: not in it
	uses  []uint16 // of each sample; nil: uses do not count
	n     int
}

// heapPad words come before the first entry, so that the children of an entry begin a cache line.
const heapPad = 3

// entry is an entry of the heap.
type entry struct {
	key  float64
	what uint64 // index << 32 | bytes
}

func (e entry) id() sample.Index { return sample.Index(e.what >> 32) }

func newHeap(samples int) (*heap, error) {
	at, err := offheap.MakeDense[uint32](samples)
	if err != nil {
		return nil, err
	}
	return &heap{at: at}, nil
}

func (h *heap) close() {
	offheap.Free(h.words)
	offheap.Free(h.at)
	*h = heap{}
}

// clone returns an independent copy, which shares the uses.
func (h *heap) clone() (c *heap, err error) {
	c = &heap{uses: h.uses, n: h.n}
	if c.at, err = copied(h.at); err == nil {
		c.words, err = copied(h.words)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (h *heap) len() int { return h.n }

func (h *heap) has(i sample.Index) bool { return int(i) < len(h.at) && h.at[i] != 0 }

// top returns the sample to evict first.
func (h *heap) top() (i sample.Index, key float64, bytes int64) { return h.get(0) }

func (h *heap) get(k int) (i sample.Index, key float64, bytes int64) {
	e := h.entry(k)
	return e.id(), e.key, int64(e.what & 0xFFFFFFFF)
}

// entry returns the entry at a position, from 0.
func (h *heap) entry(k int) entry {
	w := h.words[2*(k+heapPad):]
	return entry{math.Float64frombits(w[0]), w[1]}
}

// set writes the entry at a position.
func (h *heap) set(k int, e entry) {
	w := h.words[2*(k+heapPad):]
	w[0], w[1] = math.Float64bits(e.key), e.what
	h.at[e.id()] = uint32(k + 1)
}

// push adds a sample. It returns false without memory for another entry.
func (h *heap) push(i sample.Index, key float64, bytes int64) bool {
	if 2*(h.n+heapPad) >= len(h.words) && !h.grow() {
		return false
	}
	h.n++
	h.up(h.n-1, entry{key, uint64(i)<<32 | uint64(bytes)})
	return true
}

// grow adds room for a sixteenth more entries. It does not copy the entries, because two copies would need twice the
// memory.
func (h *heap) grow() bool {
	words, err := offheap.Grow(h.words, 2*heapPad+max(2048, len(h.words)+len(h.words)/32*2))
	if err == nil {
		h.words = words
	}
	return err == nil
}

// remove removes a sample and returns its size.
func (h *heap) remove(i sample.Index) (bytes int64) {
	k := int(h.at[i]) - 1
	bytes = int64(h.entry(k).what & 0xFFFFFFFF)
	h.n--
	if k != h.n {
		h.fix(k, h.entry(h.n))
	}
	h.at[i] = 0
	return bytes
}

// update changes the key of a sample.
func (h *heap) update(i sample.Index, key float64) {
	k := int(h.at[i]) - 1
	h.fix(k, entry{key, h.entry(k).what})
}

// rekey sets the key of every sample i to f(i).
func (h *heap) rekey(f func(sample.Index) float64) {
	for k := range h.n {
		h.words[2*(k+heapPad)] = math.Float64bits(f(h.entry(k).id()))
	}
	for k := (h.n - 2) / 4; k >= 0 && h.n > 1; k-- {
		h.down(k, h.entry(k))
	}
}

// before reports whether a is evicted before b.
func (h *heap) before(a, b entry) bool {
	if a.key != b.key {
		return a.key < b.key
	}
	i, j := a.id(), b.id()
	if h.uses != nil && h.uses[i] != h.uses[j] {
		return h.uses[i] < h.uses[j]
	}
	return i < j
}

// fix writes an entry at a position, and moves it up or down as necessary.
func (h *heap) fix(k int, e entry) {
	if k > 0 && h.before(e, h.entry((k-1)/4)) {
		h.up(k, e)
	} else {
		h.down(k, e)
	}
}

// up writes an entry at a position or above it.
func (h *heap) up(k int, e entry) {
	for k > 0 {
		above := h.entry((k - 1) / 4)
		if !h.before(e, above) {
			break
		}
		h.set(k, above)
		k = (k - 1) / 4
	}
	h.set(k, e)
}

// down writes an entry at a position or below it.
func (h *heap) down(k int, e entry) {
	for first := 4*k + 1; first < h.n; first = 4*k + 1 {
		least, at := h.entry(first), first
		for child := first + 1; child < min(first+4, h.n); child++ {
			if c := h.entry(child); h.before(c, least) {
				least, at = c, child
			}
		}
		if !h.before(least, e) {
			break
		}
		h.set(k, least)
		k = at
	}
	h.set(k, e)
}
