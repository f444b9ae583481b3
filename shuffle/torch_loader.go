package shuffle

import "math/big"

func loaderRecipes() []Recipe {
	return []Recipe{
		{
			Name:  "torch.random_sampler",
			About: "RandomSampler by itself, torch 1.11 and later.",
			Epoch: epochIsCounted,
			Params: append([]Param{
				samplesParam(), torchSeedParam(), stateParam(), generatorParam(),
				{Name: "replacement", Type: Bool, Default: "false", Meaning: "draw with replacement"},
				{Name: "num_samples", Type: Int, Meaning: "samples an epoch; absent: n"},
				releaseParam(),
			}, batchParams()...),
			build: buildRandomSampler,
		},
		{
			Name:  "torch.dataloader",
			About: "DataLoader(shuffle=True) in one process, torch 1.11 and later.",
			Epoch: "iterations of the loader, from 0; every earlier one ran to its end, but for those in abandoned",
			Params: []Param{
				samplesParam(), torchSeedParam(), stateParam(), generatorParam(),
				{Name: paramBatch, Type: Int, Meaning: "batch size; absent: None, no batches"},
				{Name: paramDropLast, Type: Bool, Default: "false", Meaning: "drop the last, short batch"},
				{Name: "num_workers", Type: Int, Default: "0", Meaning: "workers of the loader; how many does not matter, but for abandoned"},
				{Name: "persistent_workers", Type: Bool, Default: "false", Meaning: "workers outlive an epoch; needs num_workers"},
				{Name: "prefetch_factor", Type: Int, Default: "2", Meaning: "batches each worker is asked for ahead; matters for abandoned only"},
				{Name: "abandoned", Type: Pairs, Meaning: "epochs that were left early, as [[epoch, batches taken], …]"},
				{Name: "in_order", Type: Bool, Default: "true", refuse: map[string]string{"false": refused["torch.dataloader_random"]}, Meaning: "batches come in the sampler's order"},
				releaseParam(),
			},
			build: buildDataLoader,
		},
		{
			Name:  "torch.distributed_sampler",
			About: "DistributedSampler; also what Lightning and Fabric put in on more than one device.",
			Epoch: epochIsSet,
			Params: append([]Param{
				samplesParam(),
				{Name: paramSeed, Type: Integer, Default: "0", Meaning: "the sampler's seed; torch.manual_seed has no part in it"},
				{Name: paramWorld, Type: Int, Default: "1", Meaning: "number of ranks (num_replicas)"},
				{Name: paramDropLast, Type: Bool, Default: "false", Meaning: "the sampler's drop_last: cut to a multiple of world instead of padding"},
				{Name: "shuffle", Type: Bool, Default: "true", Meaning: "false: 0..n-1 in each epoch"},
				{Name: "semantics", Type: Word, Default: "torch>=1.8", Values: []string{"torch>=1.8", "torch1.6-1.7", "torch<=1.5"}, Meaning: "release of torch; 1.6 and 1.7 refuse padding beyond n, 1.5 has neither seed nor drop_last"},
				releaseParam(),
			}, batchParams()...),
			build: buildDistributed,
		},
	}
}

// randomSampler is torch.utils.data.RandomSampler.
type randomSampler struct {
	g           torchGen // its own, or the default generator
	own         bool     // generator given
	n, count    int      // count is num_samples
	replacement bool
	release     torchRelease
}

// epoch fills dst, which has length count and room for draws to work in, from g.
func (s *randomSampler) epoch(g *torchGen, dst []uint32) []uint32 {
	if s.replacement {
		dst = resize(dst, s.count)
		s.release.randint(g, uint64(s.n), dst)
		return dst
	}
	// As many permutations as fit, then always one more, of which what is left is used: maybe nothing.
	rest := s.count % s.n
	full := s.count - rest
	if rest > 0 {
		dst = resize(dst, full+s.n)
	} else {
		dst = resize(dst, full)
	}
	for at := 0; at < full; at += s.n {
		s.release.permute(g, dst[at:at+s.n], s.n)
	}
	if rest > 0 {
		s.release.permute(g, dst[full:], rest)
	} else if s.own {
		g.skip(s.release.permuteDraws(s.n))
	}
	return dst[:s.count]
}

// draws is the number of words that epoch takes.
func (s *randomSampler) draws() uint64 {
	if s.replacement {
		return s.release.randintDraws(uint64(s.n), s.count)
	}
	return uint64(s.count/s.n+1) * s.release.permuteDraws(s.n)
}

func (s *randomSampler) next(dst []uint32) ([]uint32, error) {
	if s.own {
		return s.epoch(&s.g, dst), nil
	}
	g := s.g.spawn()
	return s.epoch(&g, dst), nil
}

func (s *randomSampler) skip() {
	if s.own {
		s.g.skip(s.draws())
	} else {
		s.g.skip(2)
	}
}

func (s *randomSampler) clone() stream { c := *s; return &c }

// newRandomSampler reads the parameters of a RandomSampler; num_samples and replacement may be unknown to the recipe.
func (a *args) newRandomSampler() (*randomSampler, error) {
	if a.n == 0 {
		return nil, a.errorf("n is 0; torch's RandomSampler refuses an empty dataset")
	}
	g, err := a.generator()
	if err != nil {
		return nil, err
	}
	release, err := a.release()
	if err != nil {
		return nil, err
	}
	s := &randomSampler{g: g, own: a.word("generator") == "explicit", n: a.n, count: a.n, replacement: a.bool("replacement"), release: release}
	if a.given("num_samples") {
		if s.count = a.int("num_samples"); s.count == 0 {
			return nil, a.errorf("num_samples is 0; torch wants at least 1")
		}
	}
	return s, nil
}

func buildRandomSampler(a *args) (*plan, error) {
	s, err := a.newRandomSampler()
	if err != nil {
		return nil, err
	}
	return a.counted(s, s.count, !s.replacement && s.count == s.n), nil
}

// dataLoader is a DataLoader with shuffle=True. Each iteration first draws the workers' base seed from the
// loader's generator; the sampler draws when the first batch is asked of it.
type dataLoader struct {
	randomSampler
	batches    int  // an epoch
	short      bool // the last of them is short
	ahead      int  // batches asked of the sampler before the first is taken
	persistent bool
	abandoned  map[int]int // epoch → batches taken
	epochs     int         // begun so far
}

// begin draws the base seed, which persistent workers need once.
func (l *dataLoader) begin() (baseSeed uint64, drawn bool) {
	l.epochs++
	if l.persistent && l.epochs > 1 {
		return 0, false
	}
	return l.g.int64(), true
}

func (l *dataLoader) next(dst []uint32) ([]uint32, error) {
	before := *l
	l.begin()
	dst, err := l.randomSampler.next(dst)
	if taken, ok := l.abandoned[before.epochs]; ok && err == nil {
		// What it would have yielded is the whole order; where it leaves the generator is another matter.
		*l = before
		l.skipAbandoned(taken)
	}
	return dst, err
}

func (l *dataLoader) skip() {
	if taken, ok := l.abandoned[l.epochs]; ok {
		l.skipAbandoned(taken)
		return
	}
	l.begin()
	l.randomSampler.skip()
}

// skipAbandoned moves past an epoch of which only so many batches were taken. The sampler is a Python
// generator: it has drawn its permutation when the first batch was asked of it, and the one that it discards
// at the end only when it was asked for more than there is.
func (l *dataLoader) skipAbandoned(taken int) {
	l.begin()
	asked := taken + l.ahead
	last := l.batches + 1
	if l.short {
		last = l.batches // to fill a short batch it had to run to its end
	}
	switch {
	case asked == 0:
	case !l.own:
		l.g.skip(2)
	case asked >= last:
		l.g.skip(l.draws())
	default:
		l.g.skip(l.release.permuteDraws(l.n))
	}
}

func (l *dataLoader) clone() stream { c := *l; return &c }

func buildDataLoader(a *args) (*plan, error) {
	s, err := a.newRandomSampler()
	if err != nil {
		return nil, err
	}
	if err := a.checkWorkers(); err != nil {
		return nil, err
	}
	l := &dataLoader{randomSampler: *s, batches: a.n, persistent: a.bool("persistent_workers")}
	dropLast := a.bool(paramDropLast)
	if a.batch > 0 {
		l.batches = a.n / a.batch
		if a.n%a.batch > 0 && !dropLast {
			l.batches++
			l.short = true
		}
	}
	if workers := a.int("num_workers"); workers > 0 {
		l.ahead = workers * a.int("prefetch_factor")
	}
	if l.abandoned, err = a.pairs("abandoned"); err != nil {
		return nil, err
	}
	p := a.counted(l, a.n, true)
	p.dropShort = dropLast
	return p, nil
}

// checkWorkers refuses what the constructors of loaders refuse.
func (a *args) checkWorkers() error {
	if a.bool("persistent_workers") && a.int("num_workers") == 0 {
		return a.errorf("persistent_workers needs num_workers of at least 1")
	}
	if a.bool(paramDropLast) && a.batch == 0 {
		return a.errorf("drop_last needs a batch_size")
	}
	if a.int("num_workers") > maxRanks || a.int("prefetch_factor") > maxRanks {
		return a.errorf("num_workers and prefetch_factor are at most %d", maxRanks)
	}
	return nil
}

// pairs reads a list of pairs as a map; a first of a pair may occur once.
func (a *args) pairs(name string) (map[int]int, error) {
	m := make(map[int]int)
	for _, p := range a.values[name].pairs {
		if _, ok := m[int(p[0])]; ok || p[0] < 0 || p[1] < 0 || p[1] > maxSamples {
			return nil, a.errorf("%s: the pair [%d, %d] is out of range or its first number occurs twice", name, p[0], p[1])
		}
		m[int(p[0])] = int(p[1])
	}
	return m, nil
}

// epochSeeded gives randperm(n) under manual_seed(seed + epoch); with shuffle false 0..n-1.
func (a *args) epochSeeded(seed *big.Int, shuffle bool, release torchRelease) ordererFunc {
	return func(epoch int, dst []uint32) ([]uint32, error) {
		dst = resize(dst, a.n)
		if !shuffle {
			iota32(dst)
			return dst, nil
		}
		s, err := a.torchSeed(new(big.Int).Add(seed, big.NewInt(int64(epoch))))
		if err != nil {
			return nil, err
		}
		g := manualSeed(s)
		release.permute(&g, dst, a.n)
		return dst, nil
	}
}

func buildDistributed(a *args) (*plan, error) {
	release, err := a.release()
	if err != nil {
		return nil, err
	}
	seed := a.big(paramSeed)
	if _, err := a.torchSeed(seed); err != nil && a.bool("shuffle") {
		return nil, err
	}
	n, world, dropLast := a.n, a.world, a.bool(paramDropLast)
	each := (n + world - 1) / world
	if dropLast {
		each = n / world
	}
	switch a.word("semantics") {
	case "torch1.6-1.7":
		if pad := each*world - n; pad > n {
			return nil, a.errorf("with n %d and world %d torch 1.6 and 1.7 fail: they cannot pad by more than n", n, world)
		}
	case "torch<=1.5":
		if dropLast || seed.Sign() != 0 {
			return nil, a.errorf("torch up to 1.5 has neither seed nor drop_last in its DistributedSampler")
		}
	}
	return &plan{
		epochs:      a.epochSeeded(seed, a.bool("shuffle"), release),
		permutation: true,
		size:        always(n),
		deal:        func(size int) dealer { return strided{size, world, each} },
		batch:       a.batch,
		dropShort:   a.bool("loader_drop_last"),
	}, nil
}
