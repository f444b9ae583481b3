package sample

import (
	"math/bits"

	"lcache/internal/disk/offheap"
)

// Set is a set of samples of one manifest, with one bit a sample outside Go's heap. The nil Set is empty, and can't grow. It must not be
// changed concurrently with any other call.
type Set struct {
	words []uint64
	n     int // number of samples that may be in it
	count int
}

// NewSet returns the empty set of samples below n.
func NewSet(n int) (*Set, error) {
	words, err := offheap.Make[uint64]((n + 63) / 64)
	if err != nil {
		return nil, err
	}
	return &Set{words: words, n: n}, nil
}

// Clone returns an independent copy.
func (s *Set) Clone() (*Set, error) {
	if s == nil {
		return nil, nil
	}
	c, err := NewSet(s.n)
	if err != nil {
		return nil, err
	}
	copy(c.words, s.words)
	c.count = s.count
	return c, nil
}

// Close frees the memory. The set is empty then.
func (s *Set) Close() {
	if s != nil {
		offheap.Free(s.words)
		*s = Set{}
	}
}

// Len returns the number of samples in the set.
func (s *Set) Len() int {
	if s == nil {
		return 0
	}
	return s.count
}

// Has reports whether the set has sample i. It returns false for an index beyond the manifest.
func (s *Set) Has(i Index) bool {
	return s != nil && int(i) < s.n && s.words[i/64]>>(i%64)&1 == 1
}

// Add adds sample i and reports whether it was not in the set. It ignores an index beyond the manifest.
func (s *Set) Add(i Index) bool {
	if s == nil || int(i) >= s.n || s.Has(i) {
		return false
	}
	s.words[i/64] |= 1 << (i % 64)
	s.count++
	return true
}

// Remove removes sample i and reports whether it was in the set.
func (s *Set) Remove(i Index) bool {
	if !s.Has(i) {
		return false
	}
	s.words[i/64] &^= 1 << (i % 64)
	s.count--
	return true
}

// Clear empties the set.
func (s *Set) Clear() {
	if s != nil {
		clear(s.words)
		s.count = 0
	}
}

// Next returns the first sample of the set that is not below i, or [None].
func (s *Set) Next(i Index) Index {
	if s == nil || int(i) >= s.n {
		return None
	}
	w := int(i / 64)
	word := s.words[w] &^ (1<<(i%64) - 1)
	for word == 0 {
		if w++; w == len(s.words) {
			return None
		}
		word = s.words[w]
	}
	return Index(w*64 + bits.TrailingZeros64(word))
}

// All calls yield with each sample of the set in ascending order, until it returns false. The loop may remove samples that it has seen.
func (s *Set) All(yield func(Index) bool) {
	for i := s.Next(0); i != None && yield(i); i = s.Next(i + 1) {
	}
}
