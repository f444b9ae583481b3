package shuffle

import (
	"math/bits"
	"sync/atomic"
)

// words is a generator of 32-bit words that can be read before they are drawn. So a loop over many words needs no
// call for each one.
type words interface {
	// peek returns some of the next words, at least one. The slice is valid until the next call.
	peek() []uint32
	// draw takes the first k of the words that peek returned.
	draw(k int)
	clone() words
}

// mtBuffered is the Mersenne Twister as words.
type mtBuffered struct {
	mt  mt19937
	out [mtWords]uint32 // tempered
	pos int             // words of out that are drawn
}

// newMTBuffered continues from mt, which must have been seeded just before.
func newMTBuffered(mt mt19937) *mtBuffered { return &mtBuffered{mt: mt, pos: mtWords} }

func (b *mtBuffered) peek() []uint32 {
	if b.pos == mtWords {
		b.mt.twist()
		for i, y := range b.mt.state {
			b.out[i] = temper(y)
		}
		b.pos = 0
	}
	return b.out[b.pos:]
}

func (b *mtBuffered) draw(k int) { b.pos += k }

func (b *mtBuffered) clone() words { c := *b; return &c }

// rejection is a framework's rejection sampling of a number in 0..i: it takes just enough bits of a word for i, and
// draws again while they are above i.
type rejection bool

const (
	lowBits  rejection = false // NumPy: the low bits, as many as i has
	highBits rejection = true  // Python's getrandbits: the high bits, as many as i+1 has
)

// plan returns the shift and mask that turn a word into a candidate for 0..i, and the least i for which they are the
// same. All of them are positive.
func (h rejection) plan(i uint32) (shift uint, mask, least uint32) {
	if h == highBits {
		k := bits.Len64(uint64(i) + 1)
		return uint(32 - k), 1<<32 - 1, uint32(uint64(1)<<(k-1) - 1)
	}
	k := bits.Len32(i)
	return 0, uint32(uint64(1)<<k - 1), 1 << (k - 1)
}

// targets draws numbers in 0..i, 0..i-1, … into dst and returns their count: from 1 to len(dst). i must be positive.
func (h rejection) targets(w words, i uint32, dst []uint32) int {
	shift, mask, least := h.plan(i)
	dst = dst[:min(len(dst), int(i-least)+1)]
	n := 0
	for n == 0 {
		src := w.peek()
		used := 0
		for used < len(src) && n < len(dst) {
			v := src[used] >> shift & mask
			used++
			dst[n] = v
			// n grows by one if v <= i-n. The code avoids a branch, because every second one would be mispredicted.
			n += int((uint64(v) - uint64(i-uint32(n)) - 1) >> 63)
		}
		w.draw(used)
	}
	return n
}

// shuffle is Fisher-Yates from the end: swap x[i] with x[0..i], for i from len(x)-1 down to 1. The targets of many
// steps are drawn first and the swaps done then, see permute.
func (h rejection) shuffle(w words, x []uint32) {
	var target [512]uint32
	for i := len(x) - 1; i > 0; {
		n := h.targets(w, uint32(i), target[:])
		for k, z := range target[:n] {
			x[i-k], x[z] = x[z], x[i-k]
		}
		i -= n
	}
}

// skip draws the same numbers as a shuffle of n.
func (h rejection) skip(w words, n int) {
	var target [512]uint32
	for i := n - 1; i > 0; {
		i -= h.targets(w, uint32(i), target[:])
	}
}

// below draws one number in 0..n-1 as Python's randbelow does: from the high bits of a word, as many as n has.
func below(w words, n uint32) uint32 {
	shift := uint(32 - bits.Len32(n))
	for {
		v := w.peek()[0] >> shift
		w.draw(1)
		if v < n {
			return v
		}
	}
}

// shuffled is a live generator that shuffles 0..n-1 once an epoch.
type shuffled struct {
	w words
	n int
	h rejection
}

func (s *shuffled) next(dst []uint32) ([]uint32, error) {
	dst = resize(dst, s.n)
	iota32(dst)
	s.h.shuffle(s.w, dst)
	return dst, nil
}

func (s *shuffled) skip() { s.h.skip(s.w, s.n) }

func (s *shuffled) clone() stream { return &shuffled{s.w.clone(), s.n, s.h} }

// cumulative shuffles one array in place, epoch after epoch. It is not a stream, because the array is too large to
// copy. Only a request for an earlier epoch starts from the first epoch again.
type cumulative struct {
	first words
	n     int
	h     rejection

	w  words
	x  []uint32 // the order of epoch at-1
	at int

	stopped *atomic.Bool // the replay's; nil: never
}

func (c *cumulative) order(epoch int, dst []uint32) ([]uint32, error) {
	if c.x == nil || epoch < c.at-1 {
		c.w, c.x, c.at = c.first.clone(), resize(c.x, c.n), 0
		iota32(c.x)
	}
	for ; c.at <= epoch; c.at++ {
		if c.stopped != nil && c.stopped.Load() {
			return dst, errStopped
		}
		c.h.shuffle(c.w, c.x)
	}
	dst = resize(dst, c.n)
	copy(dst, c.x)
	return dst, nil
}
