package shuffle

import "math/big"

// maxPadding is the maximum number of samples that an epoch may add to the dataset by filling up its last batches.
const maxPadding = 1 << 24

func accelerateRecipes() []Recipe {
	seeds := []Param{
		{Name: paramSeed, Type: Integer, Meaning: "the last torch.manual_seed or set_seed before prepare(); needed unless data_seed or state is given"},
		{Name: "data_seed", Type: Integer, Meaning: "DataLoaderConfiguration.data_seed (HF Trainer: data_seed); if given, seed is not used"},
	}
	return []Recipe{
		{
			Name:   "accelerate.seedable_random_sampler",
			About:  "accelerate with use_seedable_sampler=True, and HF Trainer, in one process.",
			Epoch:  epochIsSet,
			Params: append(append([]Param{samplesParam()}, seeds...), append([]Param{releaseParam()}, batchParams()...)...),
			build:  buildSeedable,
		},
		{
			Name:  "accelerate.batch_sampler_shard",
			About: "accelerate and HF Trainer in several processes: whole batches are dealt to the ranks, or each is split over them.",
			Epoch: epochIsSet + "; without the seedable sampler, iterations from 0",
			Params: append(append([]Param{samplesParam()}, seeds...),
				Param{Name: paramBatch, Type: Int, Required: true, Meaning: "batch size of the DataLoader: of one rank, or of all of them with split_batches"},
				Param{Name: paramDropLast, Type: Bool, Default: "false", Meaning: "the DataLoader's drop_last"},
				worldParam(),
				Param{Name: "split_batches", Type: Bool, Default: "false", Meaning: "each batch is split over the ranks"},
				Param{Name: "even_batches", Type: Bool, Default: "true", Meaning: "the last batches are filled up with samples from the beginning"},
				Param{Name: "use_seedable_sampler", Type: Bool, Default: "true", Meaning: "false: the DataLoader's sampler continues its generator (accelerate's default)"},
				Param{Name: "generator", Type: Word, Default: "default", Values: []string{"explicit", "default"}, refuse: map[string]string{"cuda": refused["torch.cuda"]},
					Meaning: "without the seedable sampler: explicit: the DataLoader's own, seeded just before epoch 0; default: torch.manual_seed just before prepare()"},
				stateParam(), releaseParam()),
			build: buildBatchShard,
		},
	}
}

// seedable returns randperm(n) under manual_seed(S + epoch). S is data_seed if it is given, else initial_seed().
func (a *args) seedable() (orderer, error) {
	if a.n == 0 {
		return nil, a.errorf("n is 0; torch's RandomSampler refuses an empty dataset")
	}
	if a.given("state") {
		return nil, a.errorf("the seedable sampler makes its generator from a seed in each epoch; a state has no part in it")
	}
	release, err := a.release()
	if err != nil {
		return nil, err
	}
	if a.given(paramSeed) {
		if _, err := a.torchSeed(a.big(paramSeed)); err != nil {
			return nil, err
		}
	}
	switch {
	case a.given("data_seed"):
		return a.epochSeeded(a.big("data_seed"), true, release), nil
	case a.given(paramSeed):
		return a.epochSeeded(new(big.Int).Mod(a.big(paramSeed), mod64), true, release), nil
	}
	return nil, a.recipe.usage("%s is missing: give --seed S, or --param data_seed=S", paramSeed)
}

func buildSeedable(a *args) (*plan, error) {
	epochs, err := a.seedable()
	if err != nil {
		return nil, err
	}
	return &plan{epochs: epochs, permutation: true, size: always(a.n), batch: a.batch, dropShort: a.bool("loader_drop_last")}, nil
}

func buildBatchShard(a *args) (*plan, error) {
	if a.batch == 0 {
		return nil, a.errorf("batch_size is 0; accelerate deals batches, so there must be some")
	}
	if a.bool("even_batches") && a.batch > max(a.n, maxPadding) {
		return nil, a.errorf("batch_size is %d, n %d: an epoch would be nearly all padding", a.batch, a.n)
	}
	p := &plan{permutation: true, size: always(a.n)}
	var err error
	if a.bool("use_seedable_sampler") {
		p.epochs, err = a.seedable()
	} else {
		p.epochs, err = a.preparedSampler()
	}
	if err != nil {
		return nil, err
	}
	s := shard{n: a.n, batch: a.batch, world: a.world, dropLast: a.bool(paramDropLast), even: a.bool("even_batches")}
	if a.bool("split_batches") {
		if a.batch%a.world != 0 {
			return nil, a.errorf("batch_size %d is not a multiple of world %d; split_batches needs that", a.batch, a.world)
		}
		p.batch = a.batch / a.world
		p.deal = func(int) dealer { return splitShard{s} }
	} else {
		p.batch = a.batch
		p.deal = func(int) dealer { return s }
	}
	return p, nil
}

// preparedSampler returns the RandomSampler that accelerate keeps without a seedable one. Its generator is made
// from the default one in prepare(), or is the DataLoader's own, which also draws each epoch's base seed.
func (a *args) preparedSampler() (orderer, error) {
	if a.given("data_seed") {
		return nil, a.errorf("data_seed has no part without the seedable sampler")
	}
	s, err := a.newRandomSampler()
	if err != nil {
		return nil, err
	}
	if s.own {
		return &live{first: &dataLoader{randomSampler: *s}}, nil
	}
	s.g, s.own = s.g.spawn(), true
	return &live{first: s}, nil
}

// shard deals whole batches, batch k to rank k mod W, as long as all ranks get a full one. The samples after those
// rounds are dropped, or cut into one more batch for each rank. With even batches each of these is filled up with the
// samples of the first W batches, repeated; otherwise it has only the remaining samples.
type shard struct {
	n, batch, world int
	dropLast, even  bool
}

// rounds is the number of rounds in which each rank gets a full batch.
func (s shard) rounds() int { return s.n / s.batch / s.world }

// left is the number of samples after the full rounds.
func (s shard) left() int {
	if s.dropLast {
		return 0
	}
	return s.n - s.rounds()*s.world*s.batch
}

func (s shard) length(rank int) int {
	full, left := s.rounds()*s.batch, s.left()
	switch {
	case left == 0:
		return full
	case s.even:
		return full + s.batch
	}
	// The product may be larger than an int: both factors may be 2^31.
	if uint64(rank)*uint64(s.batch) >= uint64(left) {
		return full
	}
	return full + min(s.batch, left-rank*s.batch)
}

func (s shard) fill(rank, from, to int, dst []uint64) []uint64 {
	dealt := uint64(s.rounds()) * uint64(s.world) * uint64(s.batch)
	left := uint64(s.left())
	pool := min(uint64(s.world)*uint64(s.batch), uint64(s.n))
	for k := from; k < to; k++ {
		round, i := k/s.batch, k%s.batch
		j := uint64(rank)*uint64(s.batch) + uint64(i) // within the round
		switch {
		case round < s.rounds():
			dst = append(dst, uint64(round)*uint64(s.world)*uint64(s.batch)+j)
		case j < left:
			dst = append(dst, dealt+j)
		default:
			dst = append(dst, (j-left)%pool)
		}
	}
	return dst
}

// splitShard deals each batch over the ranks in consecutive slices. A last, short batch is dropped, filled up with
// the first batch, repeated, or cut as it is.
type splitShard struct{ shard }

func (s splitShard) length(rank int) int {
	slice := s.batch / s.world
	full, left := s.n/s.batch, s.n%s.batch
	switch {
	case left == 0 || s.dropLast:
		return full * slice
	case s.even:
		return (full + 1) * slice
	}
	return full*slice + max(0, min(slice, left-rank*slice))
}

func (s splitShard) fill(rank, from, to int, dst []uint64) []uint64 {
	slice := s.batch / s.world
	full, left := s.n/s.batch, s.n%s.batch
	for k := from; k < to; k++ {
		b, j := k/slice, rank*slice+k%slice
		if b < full || j < left {
			dst = append(dst, uint64(b*s.batch+j))
		} else {
			dst = append(dst, uint64((j-left)%min(s.batch, s.n)))
		}
	}
	return dst
}
