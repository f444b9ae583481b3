package chunker_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"lcache/chunker"
	"lcache/sample"
	"lcache/shuffle"
)

// dealt is an explicit split: the positions of each batch, by rank.
type dealt [][][]uint64

func (d dealt) Batches(rank int) int { return len(d[rank]) }

func (d dealt) Positions(rank, batch int, dst []uint64) []uint64 {
	return append(dst[:0], d[rank][batch]...)
}

// randomDeal deals n positions to some ranks in a way that no framework does: ragged batches, some positions never and some twice.
func randomDeal(r *rand.Rand, n, world int) dealt {
	d := make(dealt, world)
	for rank := range d {
		for range r.IntN(6) {
			var batch []uint64
			for range r.IntN(7) {
				if n > 0 {
					batch = append(batch, uint64(r.IntN(n)))
				}
			}
			d[rank] = append(d[rank], batch)
		}
	}
	return d
}

// randomChunks draws an epoch over n samples: a permutation, or with replacement, then dealt by a recipe's split or by none.
func randomChunks(t *testing.T, r *rand.Rand, n, world int) *chunker.Chunks {
	t.Helper()
	global := make([]sample.Index, n)
	replace := r.IntN(3) == 0
	for i, p := range r.Perm(n) {
		global[i] = sample.Index(p)
		if replace {
			global[i] = sample.Index(r.IntN(n))
		}
	}
	if n == 0 || r.IntN(2) == 0 {
		return &chunker.Chunks{Global: global, Split: randomDeal(r, n, world)}
	}
	replay, err := shuffle.New(shuffle.Spec{Recipe: "torch.distributed_sampler", Samples: n, Seed: "1", World: world, BatchSize: 1 + r.IntN(9), DropLast: r.IntN(2) == 0})
	if err != nil {
		t.Fatal(err)
	}
	split, err := replay.Split(0)
	if err != nil {
		t.Fatal(err)
	}
	return &chunker.Chunks{Global: global, Split: split}
}

func TestLayoutHoldsEveryKeptSampleOnce(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 3))
		n, world := r.IntN(200), 1+r.IntN(5)
		c := randomChunks(t, r, n, world)
		ranks := r.Perm(world)[:1+r.IntN(world)]
		align := []int{8, 64}[r.IntN(2)]
		sizes := make([]uint32, n)
		for i := range sizes {
			sizes[i] = uint32(r.IntN(5000))
		}
		kept := make([]bool, n)
		for i := range kept {
			kept[i] = sizes[i] > 0 && r.IntN(4) > 0
		}
		cut := chunker.Cut{Sizes: sizes, Align: align, Capacity: chunker.Padded(5000, align) + uint64(r.IntN(40_000)), Keep: func(i sample.Index) bool { return kept[i] }}
		layout, err := chunker.NewEpochLayout(c, ranks, cut)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if want := naiveOrder(c, ranks, kept); !slices.Equal(layout.Order, want.order) || layout.Used != want.used {
			t.Errorf("seed %d: order %v, %d used; want %v and %d", seed, layout.Order, layout.Used, want.order, want.used)
		}
		checkCut(t, seed, layout, cut, kept)
		layout.Free()
	}
}

type naive struct {
	order []sample.Index
	used  int
}

// naiveOrder is the definition: first uses in the order of the global positions that some rank delivers, then the other samples by index.
func naiveOrder(c *chunker.Chunks, ranks []int, kept []bool) (want naive) {
	delivered := map[uint64]bool{}
	for _, rank := range ranks {
		for b := range c.Batches(rank) {
			for _, p := range c.Split.Positions(rank, b, nil) {
				delivered[p] = true
			}
		}
	}
	seen := map[sample.Index]bool{}
	for p, index := range c.Global {
		if delivered[uint64(p)] && kept[index] && !seen[index] {
			seen[index] = true
			want.order = append(want.order, index)
		}
	}
	want.used = len(want.order)
	for i := range kept {
		if kept[i] && !seen[sample.Index(i)] {
			want.order = append(want.order, sample.Index(i))
		}
	}
	return want
}

// checkCut checks the rules of segments: full in the sense that the next sample did not fit, never over capacity, unused samples separate.
func checkCut(t *testing.T, seed uint64, layout *chunker.EpochLayout, cut chunker.Cut, kept []bool) {
	t.Helper()
	segment := make([]uint32, len(cut.Sizes))
	for i := range segment {
		segment[i] = chunker.None
	}
	bytes := func(k int) (sum uint64) {
		for _, i := range layout.Members(k) {
			sum += chunker.Padded(cut.Sizes[i], cut.Align)
		}
		return sum
	}
	for k := range layout.Segments() {
		from, to := layout.Starts[k], layout.Starts[k+1]
		if to <= from && len(layout.Order) > 0 {
			t.Errorf("seed %d: segment %d is empty", seed, k)
		}
		if from < uint64(layout.Used) && to > uint64(layout.Used) {
			t.Errorf("seed %d: segment %d has samples that are delivered and samples that are not", seed, k)
		}
		for _, i := range layout.Members(k) {
			segment[i] = uint32(k)
		}
		if n := bytes(k); n > cut.Capacity {
			t.Errorf("seed %d: segment %d has %d bytes, capacity %d", seed, k, n, cut.Capacity)
		}
		if next := layout.Starts[k+1]; k+1 < layout.Segments() && next != uint64(layout.Used) {
			if n := bytes(k) + chunker.Padded(cut.Sizes[layout.Order[next]], cut.Align); n <= cut.Capacity {
				t.Errorf("seed %d: segment %d ends at %d bytes though the next sample makes it %d of %d", seed, k, bytes(k), n, cut.Capacity)
			}
		}
	}
	if !slices.Equal(segment, layout.Segment) {
		t.Errorf("seed %d: the segment map does not say what Members does", seed)
	}
	if layout.Starts[0] != 0 || layout.Starts[layout.Segments()] != uint64(len(layout.Order)) {
		t.Errorf("seed %d: segments cover [%d, %d) of %d samples", seed, layout.Starts[0], layout.Starts[layout.Segments()], len(layout.Order))
	}
}

// A layout in delivery order is the recipe's own order, if the recipe uses everything once.
func TestLayoutIsTheGlobalOrder(t *testing.T) {
	const n = 500
	for _, world := range []int{1, 2, 4} {
		replay, err := shuffle.New(shuffle.Spec{Recipe: "torch.distributed_sampler", Samples: n, Seed: "11", World: world, BatchSize: 8})
		if err != nil {
			t.Fatal(err)
		}
		global, err := replay.Global(3, nil)
		if err != nil {
			t.Fatal(err)
		}
		split, err := replay.Split(3)
		if err != nil {
			t.Fatal(err)
		}
		c := &chunker.Chunks{Global: global, Split: split}
		sizes := slices.Repeat([]uint32{100}, n)
		var ranks []int
		for rank := range world {
			ranks = append(ranks, rank)
		}
		layout, err := chunker.NewEpochLayout(c, ranks, chunker.Cut{Sizes: sizes, Align: 64, Capacity: 1 << 12, Keep: func(sample.Index) bool { return true }})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(layout.Order, global) || layout.Used != n {
			t.Errorf("world %d: the line is not the global order", world)
		}
		for _, rank := range ranks {
			want, err := replay.Rank(3, rank, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := allChunks(t, c, rank, 8); !slices.Equal(got, want) {
				t.Errorf("world %d rank %d: chunks are not the recipe's", world, rank)
			}
		}
		layout.Free()
	}
}

func allChunks(t *testing.T, c *chunker.Chunks, rank, batch int) (all []sample.Index) {
	t.Helper()
	var buf []sample.Index
	for b := range c.Batches(rank) {
		chunk, ok := c.Chunk(rank, b, buf)
		if !ok || len(chunk) == 0 || len(chunk) > batch {
			t.Fatalf("rank %d batch %d: %d samples, ok %v", rank, b, len(chunk), ok)
		}
		all = append(all, chunk...)
		buf = chunk
	}
	for _, b := range []int{-1, c.Batches(rank), c.Batches(rank) + 7} {
		if chunk, ok := c.Chunk(rank, b, nil); ok || chunk != nil {
			t.Errorf("rank %d batch %d: got %v, want none", rank, b, chunk)
		}
	}
	return all
}

func TestLayoutRefusesTooLargeSamples(t *testing.T) {
	c := &chunker.Chunks{Global: []sample.Index{0, 1}, Split: dealt{{{0, 1}}}}
	cut := chunker.Cut{Sizes: []uint32{64, 65}, Align: 64, Capacity: 64, Keep: func(sample.Index) bool { return true }}
	if _, err := chunker.NewEpochLayout(c, []int{0}, cut); err == nil || !strings.Contains(err.Error(), "sample 1 of 65 bytes") || !strings.Contains(err.Error(), "--memory") {
		t.Errorf("got %v, want an error that names the sample, its size and what to give", err)
	}
	cut.Keep = func(i sample.Index) bool { return i == 0 }
	layout, err := chunker.NewEpochLayout(c, []int{0}, cut)
	if err != nil || layout.Segments() != 1 {
		t.Errorf("without the large one: %v, %+v", err, layout)
	}
	if got := chunker.Largest(cut.Sizes, cut.Keep); got != 64 {
		t.Errorf("largest kept sample has %d bytes, want 64", got)
	}
	layout.Free()
}
