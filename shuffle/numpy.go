package shuffle

import (
	"math"
	"math/big"
)

// inPlace is the op that shuffles the order of the previous epoch.
const inPlace = "shuffle_cumulative"

func numpyRecipes() []Recipe {
	op := Param{Name: "op", Type: Word, Default: "permutation",
		Values:  []string{"permutation", "shuffle", "shuffle_list", "permuted", inPlace},
		Meaning: "the call of each epoch: all but the last give the same order; " + inPlace + " shuffles one array in place again and again"}
	return []Recipe{
		{
			Name:  "numpy.default_rng",
			About: "numpy.random.default_rng(seed).permutation(n) once an epoch; epoch 0 is also HF datasets' shuffle(seed).",
			Epoch: epochIsCounted,
			Params: append([]Param{
				samplesParam(),
				{Name: paramSeed, Type: Integer, Required: true, Meaning: "seed, 0 or above, of any size"},
				op,
			}, batchParams()...),
			build: buildDefaultRNG,
		},
		{
			Name:  "numpy.random_state",
			About: "numpy.random.RandomState(seed) or numpy.random.seed(seed), .permutation(n) once an epoch.",
			Epoch: epochIsCounted,
			Params: append([]Param{
				samplesParam(),
				{Name: paramSeed, Type: Integer, Required: true, Meaning: "seed, 0 to 2^32-1"},
				op,
			}, batchParams()...),
			build: buildRandomState,
		},
	}
}

func buildDefaultRNG(a *args) (*plan, error) {
	seed := a.big(paramSeed)
	if seed.Sign() < 0 {
		return nil, a.errorf("seed %s is below 0; NumPy refuses that", clip(seed.String()))
	}
	return a.numpyPlan(newPCG64(seedSequence(littleWords(seed)))), nil
}

func buildRandomState(a *args) (*plan, error) {
	seed, err := a.seed32()
	if err != nil {
		return nil, err
	}
	var mt mt19937
	mt.seed(seed)
	return a.numpyPlan(newMTBuffered(mt)), nil
}

// seed32 returns the seed, which must be in 0..2^32-1.
func (a *args) seed32() (uint32, error) {
	seed := a.big(paramSeed)
	if seed.Sign() < 0 || seed.Cmp(big.NewInt(math.MaxUint32)) > 0 {
		return 0, a.errorf("seed %s is not in 0 to 2^32-1", clip(seed.String()))
	}
	return uint32(seed.Uint64()), nil
}

func (a *args) numpyPlan(w words) *plan {
	p := a.counted(&shuffled{w, a.n, lowBits}, a.n, true)
	if a.word("op") == inPlace {
		p.epochs = &cumulative{first: w, n: a.n, h: lowBits}
	}
	return p
}
