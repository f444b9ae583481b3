package shuffle

import "math/big"

// From insideOutFrom samples on, torch 2.6 and later make a permutation the other way round, with 64-bit draws.
const insideOutFrom = 214748364 // UINT32_MAX / 20

// torchRelease is what differs between releases in the draws of the CPU generator.
type torchRelease struct {
	insideOut bool   // randperm from insideOutFrom on: see permuteInsideOut
	wide      uint64 // randint takes two words a draw from this bound on
}

// newest is torch 2.7 and later.
var newest = torchRelease{insideOut: true, wide: 1 << 28}

// torchGen is torch.Generator on the CPU.
type torchGen struct{ mt19937 }

// manualSeed is manual_seed for a seed that torchSeed has checked. Only the low 32 bits of a seed matter.
func manualSeed(seed uint32) torchGen {
	var g torchGen
	g.seed(seed)
	return g
}

// uint64 is the generator's random64: the first word drawn is the high one.
func (g *torchGen) uint64() uint64 {
	hi := g.uint32()
	return uint64(hi)<<32 | uint64(g.uint32())
}

// int64 is torch.empty((), dtype=torch.int64).random_(), from which samplers and loaders take their seeds.
func (g *torchGen) int64() uint64 { return g.uint64() &^ (1 << 63) }

// spawn is the generator that a sampler without one makes for an epoch, seeded from this one. Two draws.
func (g *torchGen) spawn() torchGen { return manualSeed(uint32(g.int64())) }

// permuteDraws is the number of 32-bit draws that a permutation of n takes.
func (t torchRelease) permuteDraws(n int) uint64 {
	switch {
	case t.insideOut && n >= insideOutFrom:
		return 2 * uint64(n)
	case n == 0:
		return 0
	}
	return uint64(n) - 1
}

// permute makes r the result of torch.randperm(len(r)), as far as its first keep elements are concerned, and
// takes all of its draws.
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
// The targets of a run of draws are worked out first and the swaps done then: the swaps touch memory at random,
// and a loop with nothing else in it lets the processor wait for many of those at once.
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

// permuteInsideOut is the branch of randperm for large n: r[i] is put at a random place below or at i, and what
// was there moves to i. Two words a draw, the first high; the first step draws too.
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

// randintDraws is the number of words that k draws below n take.
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

// torchSeed checks a seed as manual_seed does, and gives the part of it that matters.
func (a *args) torchSeed(seed *big.Int) (uint32, error) {
	if seed.Cmp(minSeed) < 0 || seed.Cmp(maxSeed) > 0 {
		return 0, a.errorf("seed %s is not in -2^63 to 2^64-1, which torch's manual_seed takes", clip(seed.String()))
	}
	return uint32(new(big.Int).Mod(seed, mod64).Uint64()), nil
}
