package shuffle

// int64Recipe is the name of the stream from which samplers and loaders take their seeds.
const int64Recipe = "torch.random_int64"

func int64Recipes() []Recipe {
	return []Recipe{{
		Name:  int64Recipe,
		About: "torch.empty((), dtype=torch.int64).random_(generator=g): seeds, not an order; RandomSampler and DataLoader draw theirs so.",
		Epoch: "none",
		Params: []Param{
			{Name: paramSamples, Type: Int, Required: true, Meaning: "number of seeds"},
			torchSeedParam(), stateParam(),
			{Name: "skip_u32", Type: Int, Default: "0", Meaning: "words of the generator drawn before"},
			{Name: "full_range", Type: Bool, Default: "false", Meaning: "random_(-2**63, None) instead"},
		},
	}}
}

// RandomInt64 returns the first spec.Samples numbers of the recipe torch.random_int64.
func RandomInt64(spec Spec) ([]int64, error) {
	recipe, err := Lookup(spec.Recipe)
	if err != nil {
		return nil, err
	}
	a, err := recipe.read(spec)
	if err != nil {
		return nil, err
	}
	if recipe.Name != int64Recipe {
		return nil, a.errorf("it gives an order, not numbers")
	}
	g, err := a.generator()
	if err != nil {
		return nil, err
	}
	g.skip(uint64(a.int("skip_u32")))
	out := make([]int64, a.n)
	for i := range out {
		if a.bool("full_range") {
			out[i] = int64(g.uint64())
		} else {
			out[i] = int64(g.int64())
		}
	}
	return out, nil
}
