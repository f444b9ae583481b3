package shuffle

import "math"

// maxCategories is how many weights torch.multinomial takes.
const maxCategories = 1 << 24

func subsetRecipes() []Recipe {
	return []Recipe{
		{
			Name:  "torch.subset_random_sampler",
			About: "SubsetRandomSampler(indices, generator).",
			Epoch: epochIsCounted,
			Params: append([]Param{
				{Name: paramSamples, Type: Int, Meaning: "number of samples in the dataset; if given, the indices are checked against it"},
				torchSeedParam(), stateParam(),
				{Name: "indices", Type: Ints, Meaning: "the subset, as a list or a file of little-endian uint32"},
				{Name: "indices_range", Type: Range, Meaning: "the subset as Python's range: [start, stop, step]"},
				releaseParam(),
			}, batchParams()...),
			build: buildSubset,
		},
		{
			Name:  "torch.weighted_random_sampler",
			About: "WeightedRandomSampler with replacement.",
			Epoch: epochIsCounted,
			Params: append([]Param{
				{Name: paramSamples, Type: Int, Meaning: "number of samples in the dataset; if given, it limits the number of weights"},
				torchSeedParam(), stateParam(),
				{Name: "weights", Type: Numbers, Required: true, Meaning: "a weight for each sample, as a list or a file of little-endian float64"},
				{Name: "num_samples", Type: Int, Required: true, Meaning: "samples per epoch, at least 2: a single one is drawn in another way, which cannot be replayed"},
				{Name: "replacement", Type: Bool, Default: "true", refuse: map[string]string{"false": "torch.multinomial without replacement: " + refused["torch.multinomial"]}, Meaning: "draw with replacement"},
			}, batchParams()...),
			build: buildWeighted,
		},
		{
			Name:  "torch.random_split",
			About: "random_split(dataset, lengths, generator): the indices of one of the splits.",
			Epoch: "the number of the split, from 0",
			Params: append([]Param{
				{Name: paramSamples, Type: Int, Meaning: "number of samples in the dataset; absent: the sum of lengths"},
				torchSeedParam(), stateParam(),
				{Name: "lengths", Type: Numbers, Required: true, Meaning: "lengths of the splits, or fractions that sum to 1"},
				releaseParam(),
			}, batchParams()...),
			build: buildRandomSplit,
		},
	}
}

// subset is SubsetRandomSampler.
type subset struct {
	randpermStream
	at func(i uint32) uint32 // the i-th index
}

func (s *subset) next(dst []uint32) ([]uint32, error) {
	dst, err := s.randpermStream.next(dst)
	for i, p := range dst {
		dst[i] = s.at(p)
	}
	return dst, err
}

func (s *subset) clone() stream { c := *s; return &c }

func buildSubset(a *args) (*plan, error) {
	g, err := a.generator()
	if err != nil {
		return nil, err
	}
	release, err := a.release()
	if err != nil {
		return nil, err
	}
	if a.given("indices") == a.given("indices_range") {
		return nil, a.recipe.usage("give either indices or indices_range")
	}
	s := &subset{randpermStream: randpermStream{g: g, release: release}}
	if a.given("indices") {
		list := a.ints("indices")
		for i, x := range list {
			if a.n > 0 && int(x) >= a.n {
				return nil, a.errorf("indices: number %d is %d; n is %d", i, x, a.n)
			}
		}
		s.n, s.at = len(list), func(i uint32) uint32 { return list[i] }
	} else {
		r := a.values["indices_range"].span
		if a.n > 0 && int(r.max()) >= a.n {
			return nil, a.errorf("indices_range goes up to %d; n is %d", r.max(), a.n)
		}
		if err := a.checkCount("indices_range", r.count, a.n); err != nil {
			return nil, err
		}
		s.n, s.at = r.count, func(i uint32) uint32 { return uint32(r.start + int64(i)*r.step) }
	}
	return a.counted(s, s.n, false), nil
}

// weighted is torch.multinomial(weights, count, replacement=True): a binary search in the cumulative weights
// for each draw.
type weighted struct {
	g     torchGen
	sums  []float64 // cumulative, divided by their last
	count int
}

func (s *weighted) next(dst []uint32) ([]uint32, error) {
	dst = resize(dst, s.count)
	for i := range dst {
		u := float64(s.g.uint64()&(1<<53-1)) / (1 << 53)
		lo, hi := 0, len(s.sums)
		for lo < hi {
			if mid := lo + (hi-lo)/2; s.sums[mid] < u {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		dst[i] = uint32(lo)
	}
	return dst, nil
}

func (s *weighted) skip() { s.g.skip(2 * uint64(s.count)) }

func (s *weighted) clone() stream { c := *s; return &c }

func buildWeighted(a *args) (*plan, error) {
	g, err := a.generator()
	if err != nil {
		return nil, err
	}
	weights := a.numbers("weights")
	switch {
	case len(weights) == 0 || len(weights) > maxCategories:
		return nil, a.errorf("there are %d weights; torch takes 1 to %d", len(weights), maxCategories)
	case a.n > 0 && len(weights) > a.n:
		return nil, a.errorf("there are %d weights; n is %d", len(weights), a.n)
	}
	count := a.int("num_samples")
	if count == 0 {
		return nil, a.errorf("num_samples is 0; torch wants at least 1")
	}
	if count == 1 {
		return nil, a.errorf("num_samples is 1, for which torch.multinomial draws as without replacement: %s%s", refused["torch.multinomial"], pushInstead)
	}
	if err := a.checkCount("num_samples", count, len(weights)); err != nil {
		return nil, err
	}
	sums := make([]float64, len(weights))
	sum := 0.0
	for i, w := range weights {
		if w < 0 {
			return nil, a.errorf("weights: number %d is %v; torch refuses weights below 0", i, w)
		}
		sum += w
		sums[i] = sum
	}
	if sum <= 0 || math.IsInf(sum, 0) {
		return nil, a.errorf("the weights sum to %v; torch refuses that", sum)
	}
	for i := range sums {
		sums[i] /= sum
	}
	sums[len(sums)-1] = 1
	return a.counted(&weighted{g: g, sums: sums, count: count}, count, false), nil
}

func buildRandomSplit(a *args) (*plan, error) {
	g, err := a.generator()
	if err != nil {
		return nil, err
	}
	release, err := a.release()
	if err != nil {
		return nil, err
	}
	n, ends, err := a.splitEnds()
	if err != nil {
		return nil, err
	}
	bounds := func(split int) (from, to int, err error) {
		if split >= len(ends) {
			return 0, 0, a.errorf("epoch is %d, the number of a split here: there are %d", split, len(ends))
		}
		if split > 0 {
			from = ends[split-1]
		}
		return from, ends[split], nil
	}
	size := func(split int) (int, error) {
		from, to, err := bounds(split)
		return to - from, err
	}
	order := func(split int, dst []uint32) ([]uint32, error) {
		from, to, err := bounds(split)
		if err != nil {
			return nil, err
		}
		fresh := g
		dst = resize(dst, n)
		release.permute(&fresh, dst, to)
		return dst[:copy(dst, dst[from:to])], nil
	}
	return &plan{epochs: ordererFunc(order), size: size, batch: a.batch, dropShort: a.bool("loader_drop_last")}, nil
}

// splitEnds returns where each split of random_split ends in the permutation of n.
func (a *args) splitEnds() (n int, ends []int, err error) {
	lengths := a.numbers("lengths")
	sum, whole := 0.0, true
	for i, x := range lengths {
		if x < 0 || x > maxSamples {
			return 0, nil, a.errorf("lengths: number %d is %v", i, x)
		}
		sum += x
		whole = whole && x == math.Trunc(x)
	}
	switch {
	case math.Abs(sum-1) <= 1e-9*max(sum, 1) && (sum <= 1 || !whole): // [1] is a fraction, too: torch makes no difference
		n, ends, err = a.splitByFractions(lengths, sum, whole)
	case !whole:
		err = a.errorf("lengths sum to %v; give whole numbers, or fractions that sum to 1", sum)
	default:
		n, ends, err = a.splitByCounts(lengths, sum)
	}
	if err != nil {
		return 0, nil, err
	}
	for i := 1; i < len(ends); i++ {
		ends[i] += ends[i-1]
	}
	return n, ends, nil
}

// splitByFractions returns the size of each split. The samples that rounding leaves over are dealt one by one, from the first split on.
func (a *args) splitByFractions(lengths []float64, sum float64, whole bool) (n int, sizes []int, err error) {
	if n = a.n; n == 0 && whole {
		n = 1
	}
	at := 0
	sizes = make([]int, len(lengths))
	for i, x := range lengths {
		sizes[i] = int(math.Floor(float64(n) * x))
		at += sizes[i]
	}
	if at > n {
		return 0, nil, a.errorf("lengths sum to %v, above 1", sum)
	}
	for i := 0; at < n; i, at = i+1, at+1 {
		sizes[i%len(sizes)]++
	}
	return n, sizes, nil
}

// splitByCounts returns the size of each split, and the size of the dataset, which need not be given.
func (a *args) splitByCounts(lengths []float64, sum float64) (n int, sizes []int, err error) {
	for _, x := range lengths {
		sizes = append(sizes, int(x))
	}
	if n = a.n; n == 0 {
		if sum > maxSamples {
			return 0, nil, a.errorf("lengths sum to %v; a dataset has at most %d samples", sum, uint32(maxSamples))
		}
		n = int(sum)
		if err := a.checkCount("lengths", n, 0); err != nil {
			return 0, nil, err
		}
	}
	if float64(n) != sum {
		return 0, nil, a.errorf("lengths sum to %v, n is %d; torch refuses that", sum, n)
	}
	return n, sizes, nil
}
