package sample

import (
	"iter"
	"math/bits"
)

// hashIndex finds the samples with a given name hash. It stores no hashes: only a table of starts, one for about eight samples, and the
// samples' indices sorted by the top bits of their hash. That is about 4.5 bytes a sample. Hashes are uniform, so a look-up compares about
// eight of them. It is built in two linear passes, without sorting.
type hashIndex struct {
	hashes []uint64
	shift  uint     // hash >> shift is the bucket
	starts []uint32 // bucket b is order[starts[b]:starts[b+1]]
	order  []Index
}

func newHashIndex(hashes []uint64) *hashIndex {
	return fillHashIndex(hashes, make([]uint32, buckets(len(hashes))+1), make([]Index, len(hashes)))
}

// buckets returns the number of buckets of an index.
func buckets(hashes int) int { return 1 << max(0, bits.Len(uint(hashes))-3) }

// fillHashIndex builds an index in starts and order, which are zero.
func fillHashIndex(hashes []uint64, starts []uint32, order []Index) *hashIndex {
	x := &hashIndex{hashes: hashes, shift: uint(65 - bits.Len(uint(buckets(len(hashes))))), starts: starts, order: order}
	for _, h := range hashes {
		x.starts[h>>x.shift]++
	}
	sum := uint32(0)
	for b, n := range x.starts {
		sum += n
		x.starts[b] = sum
	}
	// Each bucket is filled from its end, which leaves its start in the table, and going backwards leaves its indices ascending.
	for i := len(hashes) - 1; i >= 0; i-- {
		b := hashes[i] >> x.shift
		x.starts[b]--
		x.order[x.starts[b]] = Index(i)
	}
	return x
}

// candidates returns the samples with this hash, ascending.
func (x *hashIndex) candidates(hash uint64) iter.Seq[Index] {
	return func(yield func(Index) bool) {
		b := hash >> x.shift
		for _, i := range x.order[x.starts[b]:x.starts[b+1]] {
			if x.hashes[i] == hash && !yield(i) {
				return
			}
		}
	}
}
