package shuffle

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

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
		return torchGen{}, a.recipe.usage("%s is missing: give --seed S, or a generator's saved state (--param state=FILE)", paramSeed)
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

// release reads the parameter torch.
func (a *args) release() (torchRelease, error) {
	if !a.given("torch") {
		return newest, nil
	}
	t, err := parseRelease(a.word("torch"))
	if err != nil {
		return t, a.errorf("torch: %v", err)
	}
	return t, nil
}

// parseRelease reads a release such as 2.5 or 2.5.1.
func parseRelease(text string) (torchRelease, error) {
	t := newest
	parts := strings.SplitN(text, ".", 3)
	if len(parts) >= 2 {
		major, err1 := strconv.ParseUint(parts[0], 10, 8)
		minor, err2 := strconv.ParseUint(parts[1], 10, 8)
		if err1 == nil && err2 == nil {
			v := major<<8 | minor
			t.insideOut = v >= 2<<8|6
			if v < 2<<8|7 {
				t.wide = 1 << 32
			}
			return t, nil
		}
	}
	return t, fmt.Errorf("%q is not a release, such as 2.5", clip(text))
}

// Parameters that several recipes have.
func samplesParam() Param {
	return Param{Name: paramSamples, Type: Int, Required: true, Meaning: "number of samples in the dataset"}
}

func torchSeedParam() Param {
	return Param{Name: paramSeed, Type: Integer, Meaning: "the argument of manual_seed, -2^63 to 2^64-1; needed unless state is given"}
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

func deviceParam() Param {
	return Param{Name: "device", Type: Word, Default: "cpu", Values: []string{"cpu"}, refuse: map[string]string{"cuda": refused["torch.cuda"]},
		Meaning: "device that makes the permutation"}
}

func replacementParam() Param {
	return Param{Name: "replacement", Type: Bool, Default: "false", Meaning: "draw with replacement"}
}

func numSamplesParam() Param {
	return Param{Name: "num_samples", Type: Int, Meaning: "samples per epoch; absent: n"}
}

func worldParam() Param {
	return Param{Name: paramWorld, Type: Int, Default: "1", Meaning: "number of ranks"}
}

func shuffleParam() Param {
	return Param{Name: "shuffle", Type: Bool, Default: "true", Meaning: "false: 0..n-1 in each epoch"}
}
