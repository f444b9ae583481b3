package shuffle

// The releases whose RandomSampler draws differently.
const (
	upTo16   = "torch<=1.6"
	from17   = "torch1.7-1.8"
	from19   = "torch1.9-1.10"
	oldTorch = "2.5" // randperm and randint draw as in torch 2.5 and earlier
)

func legacyRecipes() []Recipe {
	return []Recipe{{
		Name:  "torch.random_sampler_legacy",
		About: "RandomSampler of torch 1.10 and earlier, alone or in a DataLoader(shuffle=True).",
		Epoch: epochIsCounted,
		Params: append([]Param{
			samplesParam(), torchSeedParam(), stateParam(),
			{Name: "semantics", Type: Word, Required: true, Values: []string{upTo16, from17, from19}, Meaning: "release of torch"},
			generatorParam(),
			{Name: "dataloader", Type: Bool, Default: "false", Meaning: "a DataLoader iterates it, which draws its workers' base seed first"},
			replacementParam(),
			{Name: "num_samples", Type: Int, Meaning: "samples per epoch, with replacement only; absent: n"},
		}, batchParams()...),
		build: buildLegacy,
	}}
}

// legacySampler is RandomSampler before torch 1.11: one permutation an epoch, and none is discarded.
type legacySampler struct {
	randomSampler
	semantics string
	loader    bool
}

func (s *legacySampler) next(dst []uint32) ([]uint32, error) {
	if s.loader {
		s.g.skip(2)
	}
	g := &s.g
	if !s.own && s.semantics != upTo16 {
		// torch 1.7 and 1.8 seed a generator for the epoch, but then permute with the default one.
		fresh := s.g.spawn()
		if s.semantics == from19 || s.replacement {
			g = &fresh
		}
	}
	dst = resize(dst, s.count)
	if s.replacement {
		s.release.randint(g, uint64(s.n), dst)
	} else {
		s.release.permute(g, dst, s.n)
	}
	return dst, nil
}

func (s *legacySampler) skip() {
	var draws uint64
	if s.loader {
		draws = 2
	}
	if !s.own && s.semantics != upTo16 {
		draws += 2
	}
	if s.own || s.semantics == upTo16 || s.semantics == from17 && !s.replacement {
		if s.replacement {
			draws += s.release.randintDraws(uint64(s.n), s.count)
		} else {
			draws += s.release.permuteDraws(s.n)
		}
	}
	s.g.skip(draws)
}

func (s *legacySampler) clone() stream { c := *s; return &c }

func buildLegacy(a *args) (*plan, error) {
	s, err := a.newRandomSampler()
	if err != nil {
		return nil, err
	}
	if a.given("num_samples") && !s.replacement {
		return nil, a.errorf("num_samples is for replacement=true: torch before 1.11 refuses it otherwise")
	}
	if s.release, err = parseRelease(oldTorch); err != nil {
		return nil, err
	}
	l := &legacySampler{randomSampler: *s, semantics: a.word("semantics"), loader: a.bool("dataloader")}
	return a.counted(l, l.count, !l.replacement), nil
}
