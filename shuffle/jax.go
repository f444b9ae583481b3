package shuffle

import (
	"math"
	"math/big"
	"math/bits"
)

func jaxRecipes() []Recipe {
	return []Recipe{{
		Name:  "jax.permutation",
		About: "jax.random.permutation(jax.random.fold_in(jax.random.key(seed), epoch), n), threefry2x32.",
		Epoch: "the number folded into the key; any can be asked for at no extra cost",
		Params: append([]Param{
			samplesParam(),
			{Name: paramSeed, Type: Integer, Required: true, Meaning: "the key's seed; without jax_enable_x64 only its low 32 bits matter"},
			{Name: "fold_in", Type: Bool, Default: "true", Meaning: "false: the key itself in each epoch, so that all epochs are the same"},
			{Name: "partitionable", Type: Bool, Default: "true", Meaning: "jax_threefry_partitionable"},
		}, batchParams()...),
		build: buildJAX,
	}}
}

func buildJAX(a *args) (*plan, error) {
	seed := a.big(paramSeed)
	if seed.Cmp(minSeed) < 0 || seed.Cmp(maxSeed) > 0 {
		return nil, a.errorf("seed %s is not in -2^63 to 2^64-1", clip(seed.String()))
	}
	j := &jaxPermutation{n: a.n, fold: a.bool("fold_in"), partitionable: a.bool("partitionable")}
	j.key[1] = uint32(new(big.Int).Mod(seed, mod64).Uint64())
	return &plan{epochs: j, permutation: true, size: always(a.n), batch: a.batch, dropShort: a.bool("loader_drop_last")}, nil
}

// threefry is the block cipher threefry2x32, 20 rounds.
func threefry(key, x [2]uint32) [2]uint32 {
	ks := [3]uint32{key[0], key[1], key[0] ^ key[1] ^ 0x1bd11bda}
	rotations := [2][4]int{{13, 15, 26, 6}, {17, 29, 16, 24}}
	x0, x1 := x[0]+ks[0], x[1]+ks[1]
	for i := range 5 {
		for _, r := range rotations[i%2] {
			x0 += x1
			x1 = bits.RotateLeft32(x1, r) ^ x0
		}
		x0 += ks[(i+1)%3]
		x1 += ks[(i+2)%3] + uint32(i) + 1
	}
	return [2]uint32{x0, x1}
}

// jaxPermutation sorts 0..n-1 by random keys, several times over so that equal keys do not matter.
type jaxPermutation struct {
	n             int
	key           [2]uint32
	fold          bool
	partitionable bool

	sorter radixSorter
}

func (j *jaxPermutation) order(epoch int, dst []uint32) ([]uint32, error) {
	key := j.key
	if j.fold {
		if epoch > math.MaxUint32 {
			return nil, &UsageError{Recipe: "jax.permutation", Problem: "the epoch is folded in as 32 bits; it is at most 2^32-1"}
		}
		key = threefry(key, [2]uint32{0, uint32(epoch)})
	}
	dst = resize(dst, j.n)
	iota32(dst)
	for range jaxRounds(j.n) {
		var sub [2]uint32
		key, sub = j.split(key)
		keys := j.sorter.keys(j.n)
		j.bits(sub, keys)
		j.sorter.sort(dst)
	}
	return dst, nil
}

// jaxRounds is how often jax sorts.
func jaxRounds(n int) int {
	if n <= 1 {
		return 0
	}
	return int(math.Ceil(3 * math.Log(float64(n)) / math.Log(math.MaxUint32)))
}

// split is jax.random.split(key, 2).
func (j *jaxPermutation) split(key [2]uint32) (a, b [2]uint32) {
	if j.partitionable {
		return threefry(key, [2]uint32{0, 0}), threefry(key, [2]uint32{0, 1})
	}
	// The counters 0 1 2 3, halved: (0, 2) and (1, 3) are encrypted, and the words put together by halves again.
	x, y := threefry(key, [2]uint32{0, 2}), threefry(key, [2]uint32{1, 3})
	return [2]uint32{x[0], y[0]}, [2]uint32{x[1], y[1]}
}

// bits is jax.random.bits(key, (n,)).
func (j *jaxPermutation) bits(key [2]uint32, out []uint32) {
	n := len(out)
	if j.partitionable {
		for i := range out {
			x := threefry(key, [2]uint32{0, uint32(i)})
			out[i] = x[0] ^ x[1]
		}
		return
	}
	// Counters 0..n-1, an odd number of them with a 0 appended, halved.
	half := (n + 1) / 2
	for i := range half {
		second := uint32(half + i)
		if half+i >= n {
			second = 0
		}
		x := threefry(key, [2]uint32{uint32(i), second})
		out[i] = x[0]
		if half+i < n {
			out[half+i] = x[1]
		}
	}
}

// radixSorter sorts values by 32-bit keys, stably. It keeps its memory, 12 bytes a value, from one sort to the next.
type radixSorter struct {
	key, key2, val2 []uint32
}

// keys is where to put the keys before a sort of n values.
func (s *radixSorter) keys(n int) []uint32 {
	s.key = resize(s.key, n)
	return s.key
}

// sort puts val into the stable order of ascending keys. 11 bits at a time: three passes, with counters that
// fit in the cache.
func (s *radixSorter) sort(val []uint32) {
	const digit = 11
	n := len(val)
	s.key2, s.val2 = resize(s.key2, n), resize(s.val2, n)
	key, val1, key2, val2 := s.key, val, s.key2, s.val2
	for shift := 0; shift < 32; shift += digit {
		var at [1<<digit + 1]uint32
		for _, k := range key {
			at[k>>shift&(1<<digit-1)+1]++
		}
		for d := range 1 << digit {
			at[d+1] += at[d]
		}
		for i, k := range key {
			p := &at[k>>shift&(1<<digit-1)]
			key2[*p], val2[*p] = k, val1[i]
			*p++
		}
		key, key2, val1, val2 = key2, key, val2, val1
	}
	copy(val, val1) // three passes: the result is in the other array
}
