package shuffle

func torchdataRecipes() []Recipe {
	return []Recipe{{
		Name:  "torchdata.stateful_dataloader",
		About: "torchdata's StatefulDataLoader(shuffle=True) in one process.",
		Epoch: epochIsCounted,
		Params: append([]Param{samplesParam(), torchSeedParam(), stateParam(), generatorParam()},
			append(workerParams(), releaseParam())...),
		build: buildStateful,
	}}
}

// statefulLoader is StatefulDataLoader. Its sampler permutes when it is made into an iterator, discards no
// permutation at an epoch's end, and with workers is made into an iterator twice.
type statefulLoader struct {
	g          torchGen // the sampler's
	n          int
	release    torchRelease
	shared     bool // the base seed comes from g too
	workers    bool
	persistent bool
	epochs     int // begun so far
}

// before is how many words are drawn before the permutation that is used.
func (s *statefulLoader) before() uint64 {
	if !s.workers || s.persistent && s.epochs > 0 {
		return 0
	}
	draws := s.release.permuteDraws(s.n)
	if s.shared {
		draws += 2
	}
	return draws
}

func (s *statefulLoader) next(dst []uint32) ([]uint32, error) {
	s.g.skip(s.before())
	dst = resize(dst, s.n)
	s.release.permute(&s.g, dst, s.n)
	s.end()
	return dst, nil
}

func (s *statefulLoader) skip() {
	s.g.skip(s.before() + s.release.permuteDraws(s.n))
	s.end()
}

// end draws the base seed that comes after the permutation without workers.
func (s *statefulLoader) end() {
	if s.shared && !s.workers {
		s.g.skip(2)
	}
	s.epochs++
}

func (s *statefulLoader) clone() stream { c := *s; return &c }

func buildStateful(a *args) (*plan, error) {
	r, err := a.newRandomSampler()
	if err != nil {
		return nil, err
	}
	if err := a.checkWorkers(); err != nil {
		return nil, err
	}
	s := &statefulLoader{g: r.g, n: r.n, release: r.release, shared: r.own,
		workers: a.int("num_workers") > 0, persistent: a.bool("persistent_workers")}
	if !r.own {
		s.g = r.g.spawn() // once, when the sampler is made
	}
	p := a.counted(s, a.n, true)
	p.dropShort = a.bool(paramDropLast)
	return p, nil
}
