package shuffle

import "math/big"

// insideOutFrom is the number of samples from which torch 2.6 and later use the inside-out algorithm, with 64-bit draws.
const insideOutFrom = 214748364 // UINT32_MAX / 20

// torchRelease has the differences between releases in the draws of the CPU generator.
type torchRelease struct {
	insideOut bool   // randperm from insideOutFrom on: see permuteInsideOut
	wide      uint64 // randint takes two words a draw from this bound on
}

// newest is torch 2.7 and later.
var newest = torchRelease{insideOut: true, wide: 1 << 28}

// torchGen is torch.Generator on the CPU.
type torchGen struct{ mt19937 }

// manualSeed computes manual_seed for a seed that torchSeed has checked. Only the low 32 bits of a seed matter.
func manualSeed(seed uint32) torchGen {
	var g torchGen
	g.seed(seed)
	return g
}

// uint64 computes the generator's random64: the first word drawn is the high one.
func (g *torchGen) uint64() uint64 {
	hi := g.uint32()
	return uint64(hi)<<32 | uint64(g.uint32())
}

// int64 computes torch.empty((), dtype=torch.int64).random_(), which is the seed of samplers and loaders.
func (g *torchGen) int64() uint64 { return g.uint64() &^ (1 << 63) }

// spawn returns the generator that a sampler without one makes for an epoch, seeded by two draws from this one.
func (g *torchGen) spawn() torchGen { return manualSeed(uint32(g.int64())) }

// permuteDraws returns the number of 32-bit draws of a permutation of n.
func (t torchRelease) permuteDraws(n int) uint64 {
	switch {
	case t.insideOut && n >= insideOutFrom:
		return 2 * uint64(n)
	case n == 0:
		return 0
	}
	return uint64(n) - 1
}

// permute sets the first keep elements of r as torch.randperm(len(r)) has them, and takes all of its draws.
func (t torchRelease) permute(g *torchGen, r []uint32, keep int) {
	if t.insideOut && len(r) >= insideOutFrom {
		permuteInsideOut(g, r)
		return
	}
	permute(g, r, min(keep, len(r)-1))
	if rest := len(r) - 1 - keep; rest > 0 {
		g.skip(uint64(rest))
	}
}

// permute does the first steps of len(r)-1 steps of a Fisher-Yates shuffle: swap r[i] with r[i + draw mod (n-i)].
//
// It first computes the targets of a run of draws, and then does the swaps. The swaps access memory at random, and in
// a loop without other work the processor overlaps many of these accesses.
func permute(g *torchGen, r []uint32, steps int) {
	iota32(r)
	var target [mtWords]uint32
	for i := 0; i < steps; {
		words := g.run(steps - i)
		left := uint32(len(r) - i)
		for k, y := range words {
			target[k] = temper(y) % (left - uint32(k))
		}
		for k, z := range target[:len(words)] {
			rest := r[i+k:]
			rest[0], rest[z] = rest[z], rest[0]
		}
		i += len(words)
	}
}

// permuteInsideOut is the branch of randperm for large n: i is put at a random position up to i, and the element there
// moves to i. A draw takes two words, the high one first. The first step also draws.
func permuteInsideOut(g *torchGen, r []uint32) {
	for i := range r {
		z := g.uint64() % uint64(i+1)
		r[i] = r[z]
		r[z] = uint32(i)
	}
}

// randint fills r with torch.randint(high=n, size=(len(r),)).
func (t torchRelease) randint(g *torchGen, n uint64, r []uint32) {
	if n >= t.wide {
		for i := range r {
			r[i] = uint32(g.uint64() % n)
		}
		return
	}
	for i := range r {
		r[i] = g.uint32() % uint32(n)
	}
}

// randintDraws returns the number of words that k draws below n take.
func (t torchRelease) randintDraws(n uint64, k int) uint64 {
	if n >= t.wide {
		return 2 * uint64(k)
	}
	return uint64(k)
}

var (
	minSeed = new(big.Int).Lsh(big.NewInt(-1), 63)                                 // -2^63
	maxSeed = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 64), big.NewInt(1)) // 2^64-1
	mod64   = new(big.Int).Lsh(big.NewInt(1), 64)
)

// torchSeed checks a seed as manual_seed does, and returns its low 32 bits.
func (a *args) torchSeed(seed *big.Int) (uint32, error) {
	if seed.Cmp(minSeed) < 0 || seed.Cmp(maxSeed) > 0 {
		return 0, a.errorf("seed %s is not in -2^63 to 2^64-1, which torch's manual_seed takes", clip(seed.String()))
	}
	return uint32(new(big.Int).Mod(seed, mod64).Uint64()), nil
}
