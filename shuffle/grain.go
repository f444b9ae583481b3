package shuffle

import "math/bits"

func grainRecipes() []Recipe {
	return []Recipe{{
		Name:  "grain.index_shuffle",
		About: "grain's MapDataset.range(n).shuffle(seed).repeat(): a cipher over the indices, computed for each index separately.",
		Epoch: "the repetition, from 0; any can be asked for at no extra cost",
		Params: append([]Param{
			samplesParam(),
			{Name: paramSeed, Type: Integer, Required: true, Meaning: "the seed given to shuffle, 0 to 2^32-1 (ds.seed(S).shuffle() derives another one)"},
		}, batchParams()...),
		build: buildIndexShuffle,
	}}
}

func buildIndexShuffle(a *args) (*plan, error) {
	seed, err := a.seed32()
	if err != nil {
		return nil, err
	}
	order := func(epoch int, dst []uint32) ([]uint32, error) {
		dst = resize(dst, a.n)
		c := newIndexCipher(seed+uint32(epoch), a.n)
		for i := range dst {
			dst[i] = c.index(uint32(i))
		}
		return dst, nil
	}
	return &plan{
		epochs:      ordererFunc(order),
		permutation: !grainRepeats(a.n),
		size:        always(a.n),
		batch:       a.batch,
		dropShort:   a.bool("loader_drop_last"),
	}, nil
}

// grainRepeats reports whether the cipher's block is too small for the last index, which then gets the same place as
// index 0. This happens for n = 2^k+1 with even k of at least 16, and grain does the same.
func grainRepeats(n int) bool {
	if n < 1<<16+1 {
		return false
	}
	k := bits.Len32(uint32(n-1)) - 1
	return n == 1<<k+1 && k%2 == 0
}

// indexCipher is a Feistel network over blocks of 2h bits, applied until the result is below n (cycle walking).
type indexCipher struct {
	n    uint32
	h    uint
	mask uint32 // h bits
	keys [4]uint32
}

func newIndexCipher(seed uint32, n int) indexCipher {
	size := 16
	if n > 2 {
		size = max(16, bits.Len32(uint32(n-2))) // ceil(log2(n-1))
	}
	c := indexCipher{n: uint32(n), h: uint(size+1) / 2}
	c.mask = 1<<c.h - 1
	seedSeq(seed, c.keys[:])
	for i := range c.keys {
		c.keys[i] &= c.mask
	}
	return c
}

// index returns the new position of x, which must be below n.
func (c *indexCipher) index(x uint32) uint32 {
	if c.n == 1 {
		return 0
	}
	for {
		left, right := x>>c.h&c.mask, x&c.mask
		for _, key := range c.keys {
			left, right = right, left^(c.rol(right, 1)&c.rol(right, 8)^c.rol(right, 2))^key
		}
		if x = left<<c.h | right; x < c.n {
			return x
		}
	}
}

// rol rotates h bits to the left by k. h is 8 to 16, k at most 8.
func (c *indexCipher) rol(x uint32, k uint) uint32 {
	return (x<<k | x>>(c.h-k)) & c.mask
}

// seedSeq computes C++'s std::seed_seq{seed}.generate for an out of four words.
func seedSeq(seed uint32, out []uint32) {
	const n, seeds = 4, 1
	const t = (n - 1) / 2 // for n < 7
	const p = (n - t) / 2
	const q = p + t
	for i := range out {
		out[i] = 0x8b8b8b8b
	}
	mix := func(x uint32) uint32 { return x ^ x>>27 }
	const m = max(seeds+1, n)
	for k := range m {
		r1 := 1664525 * mix(out[k%n]^out[(k+p)%n]^out[(k+n-1)%n])
		r2 := r1
		switch {
		case k == 0:
			r2 += seeds
		case k <= seeds:
			r2 += uint32(k%n) + seed
		default:
			r2 += uint32(k % n)
		}
		out[(k+p)%n] += r1
		out[(k+q)%n] += r2
		out[k%n] = r2
	}
	for k := m; k < m+n; k++ {
		r3 := 1566083941 * mix(out[k%n]+out[(k+p)%n]+out[(k+n-1)%n])
		r4 := r3 - uint32(k%n)
		out[(k+p)%n] ^= r3
		out[(k+q)%n] ^= r4
		out[k%n] = r4
	}
}
