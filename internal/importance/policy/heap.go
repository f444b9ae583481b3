package policy

import (
	"math"

	"lcache/internal/disk/offheap"
	"lcache/sample"
)

// heap holds cached samples with a key and a size, the one to evict first on top: the smallest key; among equal keys the fewest uses, then the
// smaller index. It takes 16 bytes a cached sample, and 4 bytes for each sample of the dataset to find it again.
//
// Each place has four below it, which lie together in one line of the processor's cache: of millions of samples the lines are what a step costs.
type heap struct {
	words []uint64 // by place, from heapPad on: the bits of the key, and index << 32 | bytes
	at    []uint32 // place of a sample in the heap, from 1; 0: it is not there
	uses  []uint16 // of each sample; nil: they don't count
	n     int
}

// heapPad places come before the first one, so that those below another begin a line.
const heapPad = 3

// entry is what the heap has at a place.
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

// clone is a copy that is used apart, with the same uses.
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

// top is the sample to evict first.
func (h *heap) top() (i sample.Index, key float64, bytes int64) { return h.get(0) }

func (h *heap) get(k int) (i sample.Index, key float64, bytes int64) {
	e := h.entry(k)
	return e.id(), e.key, int64(e.what & 0xFFFFFFFF)
}

// entry is what stands at a place, from 0.
func (h *heap) entry(k int) entry {
	w := h.words[2*(k+heapPad):]
	return entry{math.Float64frombits(w[0]), w[1]}
}

// set puts an entry at a place.
func (h *heap) set(k int, e entry) {
	w := h.words[2*(k+heapPad):]
	w[0], w[1] = math.Float64bits(e.key), e.what
	h.at[e.id()] = uint32(k + 1)
}

// push puts a sample in that is not there. It reports false if there is no memory for one more entry.
func (h *heap) push(i sample.Index, key float64, bytes int64) bool {
	if 2*(h.n+heapPad) >= len(h.words) && !h.grow() {
		return false
	}
	h.n++
	h.up(h.n-1, entry{key, uint64(i)<<32 | uint64(bytes)})
	return true
}

// grow makes room for a sixteenth more entries. What is kept is not copied: both copies together would need as much memory again.
func (h *heap) grow() bool {
	words, err := offheap.Grow(h.words, 2*heapPad+max(2048, len(h.words)+len(h.words)/32*2))
	if err == nil {
		h.words = words
	}
	return err == nil
}

// remove takes out a sample that is there and returns its size.
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

// update gives a sample that is there another key.
func (h *heap) update(i sample.Index, key float64) {
	k := int(h.at[i]) - 1
	h.fix(k, entry{key, h.entry(k).what})
}

// rekey gives every sample the key that f says.
func (h *heap) rekey(f func(sample.Index) float64) {
	for k := range h.n {
		h.words[2*(k+heapPad)] = math.Float64bits(f(h.entry(k).id()))
	}
	for k := (h.n - 2) / 4; k >= 0 && h.n > 1; k-- {
		h.down(k, h.entry(k))
	}
}

// before reports whether a is to be evicted before b.
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

// fix puts an entry where another one was, or farther up or down.
func (h *heap) fix(k int, e entry) {
	if k > 0 && h.before(e, h.entry((k-1)/4)) {
		h.up(k, e)
	} else {
		h.down(k, e)
	}
}

// up puts an entry at a place, or above it.
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

// down puts an entry at a place, or below it.
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
