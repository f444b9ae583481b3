package importance

import (
	"lcache/offheap"
	"lcache/sample"
)

// heap holds cached samples with a key and a size, the one to evict first on top: the smallest key; among equal keys the fewest uses, then the
// smaller index. It takes 16 bytes a cached sample, and 4 bytes for each sample of the dataset to find it again.
type heap struct {
	key   []float64
	entry []uint64 // index << 32 | bytes
	at    []uint32 // place of a sample in the heap, from 1; 0: it is not there
	uses  []uint16 // of each sample; nil: they don't count
	n     int
}

func newHeap(samples int) (*heap, error) {
	at, err := offheap.Make[uint32](samples)
	if err != nil {
		return nil, err
	}
	return &heap{at: at}, nil
}

func (h *heap) close() {
	offheap.Free(h.key)
	offheap.Free(h.entry)
	offheap.Free(h.at)
	*h = heap{}
}

func (h *heap) len() int { return h.n }

func (h *heap) has(i sample.Index) bool { return int(i) < len(h.at) && h.at[i] != 0 }

// top is the sample to evict first.
func (h *heap) top() (i sample.Index, key float64, bytes int64) { return h.get(0) }

func (h *heap) get(k int) (i sample.Index, key float64, bytes int64) {
	return sample.Index(h.entry[k] >> 32), h.key[k], int64(h.entry[k] & 0xFFFFFFFF)
}

// push puts a sample in that is not there. It reports false if there is no memory for one more entry.
func (h *heap) push(i sample.Index, key float64, bytes int64) bool {
	if h.n == min(len(h.key), len(h.entry)) && !h.grow() {
		return false
	}
	h.key[h.n], h.entry[h.n] = key, uint64(i)<<32|uint64(bytes)
	h.n++
	h.at[i] = uint32(h.n)
	h.up(h.n - 1)
	return true
}

// grow makes room for a sixteenth more entries.
func (h *heap) grow() bool {
	room := max(1024, len(h.key)+len(h.key)/16)
	return larger(&h.key, room) && larger(&h.entry, room)
}

// larger makes an array longer. One is copied at a time: both copied together would need as much memory again as all that is kept.
func larger[T float64 | uint64](a *[]T, room int) bool {
	to, err := offheap.Make[T](room)
	if err != nil {
		return false
	}
	copy(to, *a)
	offheap.Free(*a)
	*a = to
	return true
}

// remove takes out a sample that is there and returns its size.
func (h *heap) remove(i sample.Index) (bytes int64) {
	k := int(h.at[i]) - 1
	bytes = int64(h.entry[k] & 0xFFFFFFFF)
	h.n--
	if k != h.n {
		h.swap(k, h.n)
		h.at[i] = 0
		h.fix(k)
	}
	h.at[i] = 0
	return bytes
}

// update gives a sample that is there another key.
func (h *heap) update(i sample.Index, key float64) {
	k := int(h.at[i]) - 1
	h.key[k] = key
	h.fix(k)
}

// rekey gives every sample the key that f says.
func (h *heap) rekey(f func(sample.Index) float64) {
	for k := range h.n {
		h.key[k] = f(sample.Index(h.entry[k] >> 32))
	}
	for k := h.n/2 - 1; k >= 0; k-- {
		h.down(k)
	}
}

func (h *heap) less(a, b int) bool {
	if h.key[a] != h.key[b] {
		return h.key[a] < h.key[b]
	}
	i, j := h.entry[a]>>32, h.entry[b]>>32
	if h.uses != nil && h.uses[i] != h.uses[j] {
		return h.uses[i] < h.uses[j]
	}
	return i < j
}

func (h *heap) swap(a, b int) {
	h.key[a], h.key[b] = h.key[b], h.key[a]
	h.entry[a], h.entry[b] = h.entry[b], h.entry[a]
	h.at[h.entry[a]>>32], h.at[h.entry[b]>>32] = uint32(a+1), uint32(b+1)
}

func (h *heap) fix(k int) {
	h.up(k)
	h.down(k)
}

func (h *heap) up(k int) {
	for k > 0 && h.less(k, (k-1)/2) {
		h.swap(k, (k-1)/2)
		k = (k - 1) / 2
	}
}

func (h *heap) down(k int) {
	for {
		least := k
		for child := 2*k + 1; child <= 2*k+2 && child < h.n; child++ {
			if h.less(child, least) {
				least = child
			}
		}
		if least == k {
			return
		}
		h.swap(k, least)
		k = least
	}
}
