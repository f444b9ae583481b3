package numeric

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"lcache/internal/disk/offheap"
)

// Parameters of the sort: the number of buckets of a pass, as a power of two, and the list lengths up to which
// insertion sort and comparison sort are used.
const (
	bucketBits  = 21
	fewIndices  = 48
	someIndices = 8192
)

// Rank returns the percentile rank of the sample at position k of n in ascending order (ImPACT §III-A), from 0 to 1; 1 for a single sample.
func Rank(k, n int) float64 {
	if n == 1 {
		return 1
	}
	return float64(k) / float64(n-1)
}

// Ascending returns all indices in ascending order of (value, index). The caller frees them with offheap.Free. Values
// must be finite and at least 0. Ascending panics without memory for 4 bytes per sample.
func Ascending(values []float64) []uint32 {
	by := must(offheap.MakeDense[uint32](len(values)))
	byValue{values, 0}.all(by)
	return by
}

// Greatest writes all indices to by in descending order of value; equal values are in ascending order of index.
func Greatest(values []float64, by []uint32) { byValue{values, math.MaxUint64}.all(by) }

// GreatestOf sorts the indices in by like [Greatest].
func GreatestOf(values []float64, by []uint32) {
	byValue{values, math.MaxUint64}.part(by, make([]pair, someIndices))
}

// byValue sorts indices by (key, index). The key of a non-negative value is its bits; for a descending order all bits are inverted.
type byValue struct {
	values []float64
	turn   uint64
}

// pair is an index with its key, so that a comparison needs no access to the values.
type pair struct {
	key uint64
	i   uint32
}

func (s byValue) key(i uint32) uint64 { return math.Float64bits(s.values[i]) ^ s.turn }

// all writes all indices to by, sorted. One pass distributes them to buckets by the leading bits in which keys
// differ. Values of a dataset spread over several powers of two, so few share a bucket. The pass needs no memory
// except by and the ends of the buckets.
func (s byValue) all(by []uint32) {
	d := dealer{least: math.MaxUint64}
	for i := range by {
		d.see(s.key(uint32(i)))
	}
	d.begin(len(by))
	defer d.end()
	for i := range by {
		d.count(s.key(uint32(i)))
	}
	d.lay()
	for i := range by {
		by[d.place(s.key(uint32(i)))] = uint32(i)
	}
	s.rest(by, &d, make([]pair, someIndices))
}

// part sorts some indices that are in ascending order of index. pairs is memory for reuse.
func (s byValue) part(by []uint32, pairs []pair) {
	if len(by) <= someIndices {
		pairs = pairs[:len(by)]
		for k, i := range by {
			pairs[k] = pair{s.key(i), i}
		}
		if len(by) <= fewIndices {
			insert(pairs)
		} else {
			slices.SortFunc(pairs, func(a, b pair) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.i, b.i)) })
		}
		for k := range by {
			by[k] = pairs[k].i
		}
		return
	}
	d := dealer{least: math.MaxUint64}
	for _, i := range by {
		d.see(s.key(i))
	}
	if d.least == d.most {
		return
	}
	d.begin(len(by))
	defer d.end()
	from := must(offheap.MakeDense[uint32](len(by)))
	copy(from, by)
	for _, i := range from {
		d.count(s.key(i))
	}
	d.lay()
	for _, i := range from {
		by[d.place(s.key(i))] = i
	}
	offheap.Free(from)
	s.rest(by, &d, pairs)
}

// insert sorts a short list of pairs. The sort is stable.
func insert(pairs []pair) {
	for k := 1; k < len(pairs); k++ {
		p, at := pairs[k], k
		for ; at > 0 && pairs[at-1].key > p.key; at-- {
			pairs[at] = pairs[at-1]
		}
		pairs[at] = p
	}
}

// rest sorts within each bucket. Keys in a bucket differ in fewer bits than all keys do, so the recursion ends.
func (s byValue) rest(by []uint32, d *dealer, pairs []pair) {
	if d.shift == 0 {
		return // all keys of a bucket are equal
	}
	begin := uint32(0)
	for _, end := range d.ends {
		if end-begin > 1 {
			s.part(by[begin:end], pairs)
		}
		begin = end
	}
}

// dealer distributes keys to buckets.
type dealer struct {
	least, most uint64
	shift       int
	ends        []uint32 // first counts, then the beginning of each bucket, finally its end
}

func (d *dealer) see(key uint64) { d.least, d.most = min(d.least, key), max(d.most, key) }

// begin creates buckets for n keys: about one for every eight.
func (d *dealer) begin(n int) {
	width := min(max(bits.Len(uint(n))-3, 4), bucketBits)
	if d.least > d.most {
		d.least = d.most
	}
	d.shift = max(0, bits.Len64(d.most-d.least)-width)
	d.ends = must(offheap.MakeDense[uint32](int((d.most-d.least)>>d.shift + 1)))
}

func (d *dealer) end() { offheap.Free(d.ends) }

func (d *dealer) count(key uint64) { d.ends[(key-d.least)>>d.shift]++ }

func (d *dealer) lay() {
	at := uint32(0)
	for b, n := range d.ends {
		d.ends[b] = at
		at += n
	}
}

func (d *dealer) place(key uint64) uint32 {
	b := (key - d.least) >> d.shift
	at := d.ends[b]
	d.ends[b]++
	return at
}

// must panics if the system refuses memory. A boundary can't continue without it, and a Go program ends in the same
// way when the heap gets no memory.
func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}
