package shuffle

func pythonRecipes() []Recipe {
	seed := Param{Name: paramSeed, Type: Integer, Required: true, Meaning: "the int given to random.Random or random.seed, of any size; its sign is ignored"}
	return []Recipe{
		{
			Name:   "python.shuffle",
			About:  "random.Random(seed).shuffle(list(range(n))) once an epoch.",
			Epoch:  epochIsCounted,
			Params: append([]Param{samplesParam(), seed}, batchParams()...),
			build: func(a *args) (*plan, error) {
				return a.counted(&shuffled{a.pythonRandom(), a.n, highBits}, a.n, true), nil
			},
		},
		{
			Name:  "python.sample",
			About: "random.Random(seed).sample(range(n), k) once an epoch.",
			Epoch: epochIsCounted,
			Params: append([]Param{
				samplesParam(), seed,
				{Name: "k", Type: Int, Required: true, Meaning: "samples per epoch, at most n"},
			}, batchParams()...),
			build: buildPythonSample,
		},
	}
}

// pythonRandom returns the words of random.Random(seed).
func (a *args) pythonRandom() words {
	var mt mt19937
	mt.seedWords(littleWords(a.big(paramSeed)))
	return newMTBuffered(mt)
}

// pythonSample is random.sample(range(n), k).
type pythonSample struct {
	w    words
	n, k int
}

// pooled reports whether random.sample shuffles a list of all items. It does if a set of k items takes more memory.
func (s *pythonSample) pooled() bool {
	setSize := 21
	if s.k > 5 {
		room := 1 // the least power of four that is not below 3k
		for room < 3*s.k {
			room *= 4
		}
		setSize += room
	}
	return s.n <= setSize
}

func (s *pythonSample) next(dst []uint32) ([]uint32, error) {
	if s.pooled() {
		dst = resize(dst, s.n)
		iota32(dst)
		// Python takes pool[j] out and puts the last item of the pool there. Here the result grows at the end of
		// the same array, in reverse.
		for left := s.n; left > s.n-s.k; left-- {
			j := below(s.w, uint32(left))
			dst[j], dst[left-1] = dst[left-1], dst[j]
		}
		for i := range s.k {
			if j := s.n - 1 - i; i < j {
				dst[i], dst[j] = dst[j], dst[i]
			}
		}
		return dst[:s.k], nil
	}
	dst = resize(dst, s.k)
	seen := make(map[uint32]struct{}, s.k)
	for i := range dst {
		j := below(s.w, uint32(s.n))
		for has(seen, j) {
			j = below(s.w, uint32(s.n))
		}
		seen[j] = struct{}{}
		dst[i] = j
	}
	return dst, nil
}

func has(set map[uint32]struct{}, x uint32) bool {
	_, ok := set[x]
	return ok
}

// skip computes the sample if a draw depends on earlier draws, and keeps nothing of it.
func (s *pythonSample) skip() {
	if !s.pooled() {
		_, _ = s.next(nil) // never an error
		return
	}
	for left := s.n; left > s.n-s.k; left-- {
		below(s.w, uint32(left))
	}
}

func (s *pythonSample) clone() stream { return &pythonSample{s.w.clone(), s.n, s.k} }

func buildPythonSample(a *args) (*plan, error) {
	k := a.int("k")
	if k > a.n {
		return nil, a.errorf("k is %d, n is %d; Python can't draw a sample that is larger than its range", k, a.n)
	}
	return a.counted(&pythonSample{a.pythonRandom(), a.n, k}, k, false), nil
}
