package hitratio

import (
	"slices"

	"lcache/internal/importance/policy"
	"lcache/internal/importance/substitute"
	"lcache/sample"
)

// packages is the name of ImPACT's policy with its L-cache: samples of small loss are in packages on the disk. A package is read whole, and its samples serve for each other.
const packages = "packages"

// packageSamples is how many samples a package has, as a server's has at least.
const packageSamples = 50

// highRoom is what of the memory is the H-cache's: nine tenths, as in the paper at first. The rest, at least a package, is for L-samples.
func highRoom(capacity int64) int64 { return policy.HBytes(capacity, 0, 0, packageSamples) }

// pack puts all samples into packages, at random.
func pack(samples int, seed uint64) [][]sample.Index {
	all := make([]sample.Index, samples)
	for i := range all {
		all[i] = sample.Index(i)
	}
	substitute.Mix(all, seed, 0)
	return slices.Collect(slices.Chunk(all, packageSamples))
}

// load plans a drawn epoch as a server does: which requests loaded packages serve, and with which samples. The H-list has the most important samples that fit into the H-cache; other samples
// have no value there.
func (t *training) load(p *player, e int, values []float64, order []sample.Index) ([]sample.Index, error) {
	capacity := t.room(p.cache)
	high, err := policy.Top(values, highRoom(capacity), unit)
	if err != nil {
		return nil, err
	}
	defer high.Close()
	var units [][]sample.Index
	for _, members := range pack(t.samples, t.boundary.Seed) {
		units = append(units, slices.Clone(members))
	}
	depth := int(capacity-highRoom(capacity)) / packageSamples
	loading, err := substitute.NewLoading(units, substitute.LoadingOptions{Samples: t.samples, Size: unit, High: high.Has, Depth: depth, Seed: t.boundary.Seed, Epoch: e})
	if err != nil {
		return nil, err
	}
	defer loading.Close()
	plan, err := substitute.NewRules(substitute.Low, loading, high.Has).Serve(order, substitute.Cut{World: 1, Batch: t.batch})
	if err != nil {
		return nil, err
	}
	defer plan.Close()
	p.kinds, p.most = slices.Clone(plan.Kinds), max(p.most, loading.Most())
	for i := range values {
		if !high.Has(sample.Index(i)) {
			values[i] = 0
		}
	}
	return slices.Clone(plan.Indices), nil
}
