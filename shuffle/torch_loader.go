package shuffle

func loaderRecipes() []Recipe {
	return []Recipe{{
		Name:  "torch.dataloader",
		About: "DataLoader(shuffle=True) in one process, torch 1.11 and later.",
		Epoch: "iterations of the loader, from 0; every earlier one ran to its end, but for those in abandoned",
		Params: append([]Param{
			samplesParam(), torchSeedParam(), stateParam(), generatorParam(),
		}, append(workerParams(),
			Param{Name: "prefetch_factor", Type: Int, Default: "2", Meaning: "batches requested ahead from each worker; matters for abandoned only"},
			Param{Name: "abandoned", Type: Pairs, Meaning: "epochs that were left early, as [[epoch, batches taken], …]"},
			releaseParam())...),
		build: buildDataLoader,
	}}
}

// workerParams are the parameters of a loader's workers.
func workerParams() []Param {
	return []Param{
		{Name: paramBatch, Type: Int, Meaning: "batch size; absent: None, no batches"},
		{Name: paramDropLast, Type: Bool, Default: "false", Meaning: "drop the last, short batch"},
		{Name: "num_workers", Type: Int, Default: "0", Meaning: "workers of the loader"},
		{Name: "persistent_workers", Type: Bool, Default: "false", Meaning: "workers outlive an epoch; needs num_workers"},
		{Name: "in_order", Type: Bool, Default: "true", refuse: map[string]string{"false": refused["torch.dataloader_random"]}, Meaning: "batches come in the sampler's order"},
	}
}

// dataLoader is a DataLoader with shuffle=True. Each iteration first draws the workers' base seed from the
// loader's generator. The sampler draws when its first batch is requested.
type dataLoader struct {
	randomSampler
	batches    int  // an epoch
	short      bool // the last of them is short
	ahead      int  // batches requested from the sampler before the first is taken
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
		// The order is the whole epoch's, but the generator ends where the abandoned epoch left it.
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

// skipAbandoned moves past an epoch from which only some batches were taken. The sampler is a Python generator. It
// draws its permutation when its first batch is requested. It draws the permutation that it discards only when more
// samples are requested than it has.
func (l *dataLoader) skipAbandoned(taken int) {
	l.begin()
	asked := taken + l.ahead
	last := l.batches + 1
	if l.short {
		last = l.batches // to fill a short batch it must run to its end
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

// checkWorkers refuses the values that the constructors of loaders refuse.
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
