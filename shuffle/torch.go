package shuffle

import (
	"encoding/binary"
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

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

// generator is the recipe's generator before its first epoch: from the seed, or from a saved state.
func (a *args) generator() (torchGen, error) {
	if a.given("state") {
		if a.given(paramSeed) {
			return torchGen{}, a.errorf("give a seed or a state, not both")
		}
		g, err := loadTorchState(a.values["state"].data)
		if err != nil {
			return g, a.errorf("state: %v", err)
		}
		return g, nil
	}
	if !a.given(paramSeed) {
		return torchGen{}, a.recipe.usage("%s is missing: give a seed, or a generator's saved state (--param state=FILE)", paramSeed)
	}
	seed, err := a.torchSeed(a.big(paramSeed))
	return manualSeed(seed), err
}

// torchStateSize is the length of torch.Generator.get_state() on the CPU. All numbers are little-endian:
//
//	0     seed    u64
//	8     left    i32   1: twist before the next draw
//	12    seeded  i32
//	16    next    u64   the word that the next draw tempers
//	24    state   624 × u64, each below 2^32
//	5016  what normal_() keeps for its next call; no order depends on it
const torchStateSize = 5056

// loadTorchState reads what torch.Generator.get_state() or torch.get_rng_state() gave.
func loadTorchState(data []byte) (g torchGen, err error) {
	if len(data) != torchStateSize {
		return g, fmt.Errorf("%d bytes; the state of torch's CPU generator has %d", len(data), torchStateSize)
	}
	left := binary.LittleEndian.Uint32(data[8:])
	next := binary.LittleEndian.Uint64(data[16:])
	switch {
	case left == 1:
		g.next = mtWords
	case left > mtWords || next != mtWords+1-uint64(left):
		return g, fmt.Errorf("left is %d and next %d, which no generator has: not the bytes of get_state()", left, next)
	default:
		g.next = int(next)
	}
	for i := range g.state {
		w := binary.LittleEndian.Uint64(data[24+8*i:])
		if w>>32 != 0 {
			return g, fmt.Errorf("word %d is %#x, above 32 bits: not the bytes of get_state()", i, w)
		}
		g.state[i] = uint32(w)
	}
	return g, nil
}

// release reads the parameter torch, a release such as 2.5 or 2.5.1.
func (a *args) release() (torchRelease, error) {
	if !a.given("torch") {
		return newest, nil
	}
	text := a.word("torch")
	parts := strings.SplitN(text, ".", 3)
	var major, minor int
	err := fmt.Errorf("no minor number")
	if len(parts) >= 2 {
		if major, err = strconv.Atoi(parts[0]); err == nil {
			minor, err = strconv.Atoi(parts[1])
		}
	}
	if err != nil || major < 0 || minor < 0 || major > 1000 || minor > 1000 {
		return newest, a.errorf("torch is %q; it is a release, such as 2.5", clip(text))
	}
	t := newest
	if v := major*1000 + minor; v < 2007 {
		t.wide = 1 << 32
		t.insideOut = v >= 2006
	}
	return t, nil
}

// Parameters that several recipes have.
func samplesParam() Param {
	return Param{Name: paramSamples, Type: Int, Required: true, Meaning: "number of samples in the dataset"}
}

func torchSeedParam() Param {
	return Param{Name: paramSeed, Type: Integer, Meaning: "what manual_seed got, -2^63 to 2^64-1; needed unless state is given"}
}

func stateParam() Param {
	return Param{Name: "state", Type: File, Meaning: "instead of a seed: file with the 5056 bytes of get_state() before epoch 0"}
}

func releaseParam() Param {
	return Param{Name: "torch", Type: Word, Meaning: "release of torch, such as 2.5; matters from 214,748,364 samples on; absent: 2.7 or later"}
}

func batchParams() []Param {
	return []Param{
		{Name: paramBatch, Type: Int, Meaning: "cuts the order into batches of this size; absent: no batches"},
		{Name: "loader_drop_last", Type: Bool, Default: "false", Meaning: "the DataLoader around the sampler has drop_last=True"},
	}
}

func generatorParam() Param {
	return Param{Name: "generator", Type: Word, Default: "default", Values: []string{"explicit", "default"},
		refuse:  map[string]string{"cuda": refused["torch.cuda"]},
		Meaning: "explicit: a torch.Generator of its own, seeded just before epoch 0; default: torch.manual_seed just before epoch 0, and nothing else draws"}
}

func torchRecipes() []Recipe {
	return []Recipe{
		{
			Name:   "torch.randperm",
			About:  "torch.randperm(n, generator=g) once an epoch.",
			Epoch:  epochIsCounted,
			Params: append([]Param{samplesParam(), torchSeedParam(), stateParam(), releaseParam()}, batchParams()...),
			build:  buildRandperm,
		},
	}
}

// randpermStream calls randperm once an epoch.
type randpermStream struct {
	g       torchGen
	n       int
	release torchRelease
}

func (s *randpermStream) next(dst []uint32) ([]uint32, error) {
	dst = resize(dst, s.n)
	s.release.permute(&s.g, dst, s.n)
	return dst, nil
}

func (s *randpermStream) skip() { s.g.skip(s.release.permuteDraws(s.n)) }

func (s *randpermStream) clone() stream { c := *s; return &c }

func buildRandperm(a *args) (*plan, error) {
	g, err := a.generator()
	if err != nil {
		return nil, err
	}
	release, err := a.release()
	if err != nil {
		return nil, err
	}
	return a.counted(&randpermStream{g, a.n, release}, a.n, true), nil
}

// counted is the plan of a recipe with one rank whose epochs carry state on.
func (a *args) counted(s stream, size int, permutation bool) *plan {
	return &plan{epochs: &live{first: s}, permutation: permutation, size: always(size), batch: a.batch, dropShort: a.bool("loader_drop_last")}
}
