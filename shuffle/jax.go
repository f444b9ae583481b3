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

// threefry is the block cipher threefry2x32, 20 rounds: five times four, with a part of the key added after each four.
func threefry(key, x [2]uint32) [2]uint32 {
	k0, k1 := key[0], key[1]
	k2 := k0 ^ k1 ^ 0x1bd11bda
	x0, x1 := evenRounds(x[0]+k0, x[1]+k1)
	x0, x1 = oddRounds(x0+k1, x1+k2+1)
	x0, x1 = evenRounds(x0+k2, x1+k0+2)
	x0, x1 = oddRounds(x0+k0, x1+k1+3)
	x0, x1 = evenRounds(x0+k1, x1+k2+4)
	return [2]uint32{x0 + k2, x1 + k0 + 5}
}

func evenRounds(x0, x1 uint32) (uint32, uint32) {
	x0 += x1
	x1 = bits.RotateLeft32(x1, 13) ^ x0
	x0 += x1
	x1 = bits.RotateLeft32(x1, 15) ^ x0
	x0 += x1
	x1 = bits.RotateLeft32(x1, 26) ^ x0
	x0 += x1
	return x0, bits.RotateLeft32(x1, 6) ^ x0
}

func oddRounds(x0, x1 uint32) (uint32, uint32) {
	x0 += x1
	x1 = bits.RotateLeft32(x1, 17) ^ x0
	x0 += x1
	x1 = bits.RotateLeft32(x1, 29) ^ x0
	x0 += x1
	x1 = bits.RotateLeft32(x1, 16) ^ x0
	x0 += x1
	return x0, bits.RotateLeft32(x1, 24) ^ x0
}

// jaxPermutation sorts 0..n-1 by random keys, several times, so that equal keys do not matter.
type jaxPermutation struct {
	n             int
	key           [2]uint32
	fold          bool
	partitionable bool
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
	rounds := jaxRounds(j.n)
	if rounds == 0 {
		return dst, nil
	}
	// These take 16 bytes a sample until the call returns.
	pairs, spare := make([]uint64, j.n), make([]uint64, j.n)
	for range rounds {
		var sub [2]uint32
		key, sub = j.split(key)
		j.bits(sub, pairs)
		for i, x := range dst {
			pairs[i] = pairs[i]<<32 | uint64(x)
		}
		sortByKeys(pairs, spare)
		for i, p := range pairs {
			dst[i] = uint32(p)
		}
	}
	return dst, nil
}

// jaxRounds returns how often jax sorts.
func jaxRounds(n int) int {
	if n <= 1 {
		return 0
	}
	return int(math.Ceil(3 * math.Log(float64(n)) / math.Log(math.MaxUint32)))
}

// split computes jax.random.split(key, 2).
func (j *jaxPermutation) split(key [2]uint32) (a, b [2]uint32) {
	if j.partitionable {
		return threefry(key, [2]uint32{0, 0}), threefry(key, [2]uint32{0, 1})
	}
	// The counters 0 1 2 3 are split into halves: (0, 2) and (1, 3) are encrypted, and the words are joined by halves again.
	x, y := threefry(key, [2]uint32{0, 2}), threefry(key, [2]uint32{1, 3})
	return [2]uint32{x[0], y[0]}, [2]uint32{x[1], y[1]}
}

// bits computes jax.random.bits(key, (n,)).
func (j *jaxPermutation) bits(key [2]uint32, out []uint64) {
	n := len(out)
	if j.partitionable {
		for i := range out {
			x := threefry(key, [2]uint32{0, uint32(i)})
			out[i] = uint64(x[0] ^ x[1])
		}
		return
	}
	// Counters 0..n-1 are split into halves. If their number is odd, a 0 is appended first.
	half := (n + 1) / 2
	for i := range half {
		second := uint32(half + i)
		if half+i >= n {
			second = 0
		}
		x := threefry(key, [2]uint32{uint32(i), second})
		out[i] = uint64(x[0])
		if half+i < n {
			out[half+i] = uint64(x[1])
		}
	}
}

// sortByKeys sorts pairs by their high halves, stably: a radix sort with 8 bits at a time. It has four passes, an even
// number, so that the result is in pairs again. 256 buckets are about as many write positions as the processor caches.
// spare is as long as pairs.
func sortByKeys(pairs, spare []uint64) {
	for shift := 32; shift < 64; shift += 8 {
		var at [257]int
		for _, p := range pairs {
			at[int(uint8(p>>shift))+1]++
		}
		for d := range 256 {
			at[d+1] += at[d]
		}
		for _, p := range pairs {
			to := &at[uint8(p>>shift)]
			spare[*to] = p
			*to++
		}
		pairs, spare = spare, pairs
	}
}
