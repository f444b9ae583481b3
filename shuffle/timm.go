package shuffle

import (
	"math"
	"math/big"
)

// The releases whose RepeatAugSampler differs.
const (
	timmNew = "timm>=1.0.31"
	timmOld = "timm<1.0.31"
)

func timmRecipes() []Recipe {
	return []Recipe{{
		Name:  "timm.repeat_aug_sampler",
		About: "timm's RepeatAugSampler (--aug-repeats): each sample several times, on different ranks.",
		Epoch: "the number given to set_epoch, which is also the seed",
		Params: append([]Param{
			samplesParam(),
			worldParam(),
			{Name: "num_repeats", Type: Number, Default: "3", Meaning: "how often each sample occurs; may be a fraction"},
			shuffleParam(),
			{Name: "selected_round", Type: Int, Default: "256", Meaning: "an epoch's length is n rounded down to a multiple of this, over the ranks; 0: n"},
			{Name: "semantics", Type: Word, Default: timmNew, Values: []string{timmNew, timmOld}, Meaning: "release of timm; the old ones give nothing for n below selected_round"},
			releaseParam(),
		}, batchParams()...),
		build: buildRepeatAug,
	}}
}

func buildRepeatAug(a *args) (*plan, error) {
	release, err := a.release()
	if err != nil {
		return nil, err
	}
	repeats := a.float("num_repeats")
	total := math.Ceil(repeats * float64(a.n))
	if repeats <= 0 || total > maxSamples*1024 {
		return nil, a.errorf("num_repeats is %v; it is above 0, and n times it at most %d", repeats, int64(maxSamples*1024))
	}
	round := a.int("selected_round")
	each := math.Ceil(float64(a.n) / float64(a.world))
	if round > 0 && (a.n >= round || a.word("semantics") == timmOld) {
		each = math.Floor(float64(a.n/round*round) / float64(a.world))
	}
	d := repeated{total: uint64(total), world: a.world, repeats: repeats}
	d.each = int(min(each, math.Ceil(float64(a.n)*repeats/float64(a.world))))
	return &plan{
		epochs:      a.epochSeeded(new(big.Int), a.bool("shuffle"), release),
		permutation: true,
		size:        always(a.n),
		deal:        func(int) dealer { return d },
		batch:       a.batch,
		dropShort:   a.bool("loader_drop_last"),
	}, nil
}

// repeated strides over a list in which each position of the global order occurs repeats times in a row.
type repeated struct {
	total   uint64 // length of that list
	world   int
	each    int // samples of each rank
	repeats float64
}

func (d repeated) length(int) int { return d.each }

func (d repeated) fill(rank, from, to int, dst []uint64) []uint64 {
	exact := d.repeats == math.Trunc(d.repeats)
	for k := from; k < to; k++ {
		p := (uint64(rank) + uint64(k)*uint64(d.world)) % d.total
		if exact {
			p /= uint64(d.repeats)
		} else {
			p = floorDiv(p, d.repeats)
		}
		dst = append(dst, p)
	}
	return dst
}

// floorDiv computes Python's x // y for an int and a float, both positive. It uses the exact remainder, not the
// rounded quotient.
func floorDiv(x uint64, y float64) uint64 {
	return uint64(math.Round((float64(x) - math.Mod(float64(x), y)) / y))
}
