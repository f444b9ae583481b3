package shuffle

import (
	"math/big"
	"math/bits"
)

// The multiplier of PCG's 128-bit generator.
const (
	pcgMulHi = 0x2360ed051fc65da4
	pcgMulLo = 0x4385df649fccf645
)

// pcg64 is PCG-XSL-RR 128/64, NumPy's default, as a generator of 32-bit words: of each 64-bit number the low
// half comes first and the high half is kept for the next call, also across calls and epochs.
type pcg64 struct {
	hi, lo       uint64
	incHi, incLo uint64

	out [256]uint32
	pos int // words of out that are drawn
}

// newPCG64 makes a generator from a seed of four words, as NumPy does.
func newPCG64(w [4]uint64) *pcg64 {
	p := &pcg64{incHi: w[2]<<1 | w[3]>>63, incLo: w[3]<<1 | 1}
	p.step()
	var carry uint64
	p.lo, carry = bits.Add64(p.lo, w[1], 0)
	p.hi, _ = bits.Add64(p.hi, w[0], carry)
	p.step()
	p.pos = len(p.out)
	return p
}

func (p *pcg64) step() {
	hi, lo := bits.Mul64(p.lo, pcgMulLo)
	hi += p.hi*pcgMulLo + p.lo*pcgMulHi
	var carry uint64
	p.lo, carry = bits.Add64(lo, p.incLo, 0)
	p.hi, _ = bits.Add64(hi, p.incHi, carry)
}

func (p *pcg64) peek() []uint32 {
	if p.pos == len(p.out) {
		for i := 0; i < len(p.out); i += 2 {
			p.step()
			v := bits.RotateLeft64(p.hi^p.lo, -int(p.hi>>58))
			p.out[i], p.out[i+1] = uint32(v), uint32(v>>32)
		}
		p.pos = 0
	}
	return p.out[p.pos:]
}

func (p *pcg64) draw(k int) { p.pos += k }

func (p *pcg64) clone() words { c := *p; return &c }

// littleWords returns the absolute value of x as 32-bit words, the lowest first; 0 is one word.
func littleWords(x *big.Int) []uint32 {
	be := new(big.Int).Abs(x).Bytes()
	words := make([]uint32, max(1, (len(be)+3)/4))
	for i, b := range be {
		at := len(be) - 1 - i
		words[at/4] |= uint32(b) << (at % 4 * 8)
	}
	return words
}

// seedSequence computes NumPy's SeedSequence(entropy).generate_state(4, uint64), for a pool of four words. Each word
// of entropy is hashed with a constant that changes with every use, and mixed into the pool.
func seedSequence(entropy []uint32) [4]uint64 {
	const poolSize = 4
	var pool [poolSize]uint32
	constant := uint32(0x43b0d7e5)
	hash := func(v uint32) uint32 {
		v ^= constant
		constant *= 0x931e8875
		v *= constant
		return v ^ v>>16
	}
	mix := func(x, y uint32) uint32 {
		v := 0xca01f9dd*x - 0x4973f715*y
		return v ^ v>>16
	}
	for i := range pool {
		if i < len(entropy) {
			pool[i] = hash(entropy[i])
		} else {
			pool[i] = hash(0)
		}
	}
	for src := range pool {
		for dst := range pool {
			if src != dst {
				pool[dst] = mix(pool[dst], hash(pool[src]))
			}
		}
	}
	for src := poolSize; src < len(entropy); src++ {
		for dst := range pool {
			pool[dst] = mix(pool[dst], hash(entropy[src]))
		}
	}
	var out [4]uint64
	constant = 0x8b51f9dd
	for i := range 2 * len(out) {
		v := pool[i%poolSize] ^ constant
		constant *= 0x58f38ded
		v *= constant
		out[i/2] |= uint64(v^v>>16) << (i % 2 * 32)
	}
	return out
}
