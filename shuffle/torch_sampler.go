package shuffle

func samplerRecipes() []Recipe {
	return []Recipe{
		{
			Name:   "torch.randperm",
			About:  "torch.randperm(n, generator=g) once an epoch.",
			Epoch:  epochIsCounted,
			Params: append([]Param{samplesParam(), torchSeedParam(), stateParam(), deviceParam(), releaseParam()}, batchParams()...),
			build:  buildRandperm,
		},
		{
			Name:   "torch.randperm_inside_out",
			About:  "the algorithm that torch.randperm has from 214,748,364 samples on since torch 2.6, for any n.",
			Epoch:  epochIsCounted,
			Params: append([]Param{samplesParam(), torchSeedParam(), stateParam()}, batchParams()...),
			build:  buildInsideOut,
		},
		{
			Name:  "torch.random_sampler",
			About: "RandomSampler alone, torch 1.11 and later.",
			Epoch: epochIsCounted,
			Params: append([]Param{
				samplesParam(), torchSeedParam(), stateParam(), generatorParam(),
				replacementParam(), numSamplesParam(), releaseParam(),
			}, batchParams()...),
			build: buildRandomSampler,
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

// insideOutStream is the branch of randperm for large n, whatever n is.
type insideOutStream struct {
	g torchGen
	n int
}

func (s *insideOutStream) next(dst []uint32) ([]uint32, error) {
	dst = resize(dst, s.n)
	permuteInsideOut(&s.g, dst)
	return dst, nil
}

func (s *insideOutStream) skip() { s.g.skip(2 * uint64(s.n)) }

func (s *insideOutStream) clone() stream { c := *s; return &c }

func buildInsideOut(a *args) (*plan, error) {
	g, err := a.generator()
	if err != nil {
		return nil, err
	}
	return a.counted(&insideOutStream{g, a.n}, a.n, true), nil
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
	// It draws the permutations that fit, and always one more. The rest of the epoch, which may be empty, comes from that one.
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
		if err := a.checkCount("num_samples", s.count, a.n); err != nil {
			return nil, err
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
