package shuffle

import "math/big"

func distributedRecipes() []Recipe {
	return []Recipe{{
		Name:  "torch.distributed_sampler",
		About: "DistributedSampler; also used by Lightning and Fabric on more than one device.",
		Epoch: epochIsSet,
		Params: append([]Param{
			samplesParam(),
			{Name: paramSeed, Type: Integer, Default: "0", Meaning: "the sampler's seed; torch.manual_seed does not change it"},
			worldParam(),
			{Name: paramDropLast, Type: Bool, Default: "false", Meaning: "the sampler's drop_last: cut to a multiple of world instead of padding"},
			shuffleParam(),
			{Name: "semantics", Type: Word, Default: "torch>=1.8", Values: []string{"torch>=1.8", "torch1.6-1.7", "torch<=1.5"}, Meaning: "release of torch; 1.6 and 1.7 refuse padding beyond n, 1.5 has neither seed nor drop_last"},
			releaseParam(),
		}, batchParams()...),
		build: buildDistributed,
	}}
}

// epochSeeded returns randperm(n) under manual_seed(seed + epoch); without shuffle, 0..n-1.
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
	if seed.Cmp(maxSeed) > 0 && a.bool("shuffle") {
		_, err := a.torchSeed(seed) // a seed that is too large is invalid in all epochs; one that is too small is valid in later epochs
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
	p := &plan{
		epochs:      a.epochSeeded(seed, a.bool("shuffle"), release),
		permutation: true,
		size:        always(n),
		batch:       a.batch,
		dropShort:   a.bool("loader_drop_last"),
	}
	if world > 1 {
		p.deal = func(size int) dealer { return strided{size, world, each} }
	}
	return p, nil
}
