package draw

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"lcache/internal/disk/offheap"
	"lcache/internal/importance/numeric"
	"lcache/internal/testenv"
	"lcache/sample"
)

// uses counts the uses of each sample in an order.
func uses(order []uint32, n int) []int {
	out := make([]int, n)
	for _, i := range order {
		out[i]++
	}
	return out
}

// TestSystematic: each sample is drawn ⌊t⌋ or ⌈t⌉ times, an epoch has exactly its length, and over many epochs each
// sample is drawn t times on average.
func TestSystematic(t *testing.T) {
	const n, epochs = 50, 4000
	r := rand.New(rand.NewPCG(3, 4))
	targets := make([]float64, n)
	for i := range targets {
		targets[i] = r.Float64() * []float64{0, 0.5, 3}[i%3]
	}
	m := Length(targets)
	scale := float64(m) / numeric.Total(targets)
	sums := make([]float64, n)
	for e := range epochs {
		order := testenv.OK[[]uint32](t)(Order(slices.Clone(targets), 9, e, Systematic))
		if len(order) != m {
			t.Fatalf("epoch %d has %d samples, want %d", e, len(order), m)
		}
		for i, c := range uses(order, n) {
			want := targets[i] * scale
			if float64(c) < math.Floor(want-1e-9) || float64(c) > math.Ceil(want+1e-9) {
				t.Fatalf("epoch %d: sample %d comes %d times, its target is %v", e, i, c, want)
			}
			sums[i] += float64(c)
		}
		offheap.Free(order)
	}
	for i, s := range sums {
		if got, want := s/epochs, targets[i]*scale; math.Abs(got-want) > 0.05 {
			t.Errorf("sample %d comes %.3f times on average, want %.3f", i, got, want)
		}
	}
}

// TestMultinomial compares with a draw that follows the definition literally.
func TestMultinomial(t *testing.T) {
	testenv.WithoutRace(t)
	r := rand.New(rand.NewPCG(5, 6))
	for trial := range 200 {
		n := 1 + r.IntN(60)
		targets := make([]float64, n)
		for i := range targets {
			targets[i] = math.Exp(3*r.NormFloat64()) * float64(r.IntN(3))
		}
		s := numeric.NewStream(1, uint64(trial), numeric.ForOrder)
		sum := numeric.Total(targets)
		want := []uint32{}
		for range Length(targets) {
			x := s.Uniform() * sum
			at, reached := 0, 0.0
			for i, w := range targets {
				if reached += w; reached > x {
					at = i
					break
				}
			}
			want = append(want, uint32(at))
		}
		slices.Sort(want)
		s.Shuffle(want)
		got := testenv.OK[[]uint32](t)(Order(slices.Clone(targets), 1, trial, Multinomial))
		if !slices.Equal(got, want) {
			t.Errorf("trial %d of %d samples: %v, want %v", trial, n, got, want)
		}
		offheap.Free(got)
	}
}

func TestDrawOfNothing(t *testing.T) {
	for _, d := range []Draw{Systematic, Multinomial} {
		for _, n := range []int{0, 1, 5} {
			order := testenv.OK[[]uint32](t)(Order(make([]float64, n), 1, 1, d))
			if len(order) != 0 {
				t.Errorf("%s of %d targets of 0: %v, want nothing", d, n, order)
			}
			offheap.Free(order)
		}
	}
	if order, err := Order([]float64{1, 2}, 1, 1, "dice"); err == nil {
		t.Errorf("an unknown draw gave %v", order)
	}
	if _, err := Order([]float64{1e300, 1e300}, 1, 1, Systematic); err == nil {
		t.Error("an epoch of 1e300 samples was drawn")
	}
}

// TestSplit: the positions of L-samples do not change when the H part is filled, and only H-samples fill it.
func TestSplit(t *testing.T) {
	const n, high = 200, 60
	r := rand.New(rand.NewPCG(7, 8))
	low := make([]float64, n)
	var h []sample.Index
	for i := range low {
		if i%5 == 0 {
			h = append(h, uint32(i))
		} else {
			low[i] = r.Float64()
		}
	}
	m := Length(low)
	order := testenv.OK[[]uint32](t)(LowPart(low, high, 3, 4, Systematic))
	defer offheap.Free(order)
	if len(order) != m+high {
		t.Fatalf("%d positions, want %d", len(order), m+high)
	}
	before := slices.Clone(order)
	targets := make([]float64, len(h))
	for i := range targets {
		targets[i] = r.Float64()
	}
	if err := FillHigh(order, h, targets, 3, 4, Systematic); err != nil {
		t.Fatal(err)
	}
	open := 0
	for k, i := range before {
		if i == sample.None {
			open++
			if order[k]%5 != 0 {
				t.Errorf("position %d of the H part has sample %d, which is not in H", k, order[k])
			}
		} else if order[k] != i || i%5 == 0 {
			t.Errorf("position %d of the L part had sample %d and has %d", k, i, order[k])
		}
	}
	if open != high {
		t.Errorf("%d positions were open, want %d", open, high)
	}
	if err := FillHigh(before, nil, nil, 3, 4, Systematic); err == nil {
		t.Error("positions were filled without any sample")
	}
	if err := FillHigh(before, h, targets[:1], 3, 4, Systematic); err == nil {
		t.Error("one target was enough for all samples of H")
	}
}

func TestStriped(t *testing.T) {
	for _, c := range []struct {
		order []uint32
		world int
		drop  bool
		want  []uint32
	}{
		{[]uint32{1, 2, 3, 4}, 2, false, []uint32{1, 2, 3, 4}},
		{[]uint32{1, 2, 3, 4, 5}, 2, false, []uint32{1, 2, 3, 4, 5, 1}},
		{[]uint32{1, 2, 3, 4, 5}, 2, true, []uint32{1, 2, 3, 4}},
		{[]uint32{7}, 4, false, []uint32{7, 7, 7, 7}},
		{[]uint32{7}, 4, true, []uint32{}},
		{nil, 3, false, nil},
	} {
		if got := Striped(c.order, c.world, c.drop); !slices.Equal(got, c.want) {
			t.Errorf("%v over %d ranks, drop %v: %v, want %v", c.order, c.world, c.drop, got, c.want)
		}
	}
}

func TestShapeOf(t *testing.T) {
	s := testenv.OK[Shape](t)(ShapeOf([]uint32{3, 1, 3, 3}, 5))
	if want := (Shape{Length: 4, Distinct: 0.4, Unseen: 0.6, MaxUses: 3}); s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
	if _, err := ShapeOf([]uint32{5}, 5); err == nil {
		t.Error("an order with a sample beyond the dataset has a shape")
	}
}

// TestWeights: the weights are 1/t, with mean 1.
func TestWeights(t *testing.T) {
	got := Weights([]float64{0.5, 1, 0}, []sample.Index{0, 1, 2, 9}, nil)
	want := []float32{8. / 3, 4. / 3, 0, 0}
	for k := range want {
		if math.Abs(float64(got[k]-want[k])) > 1e-6 {
			t.Errorf("%v, want %v", got, want)
			break
		}
	}
}

// FuzzOrder: whatever the targets are, an epoch has their length, and no sample with target 0.
func FuzzOrder(f *testing.F) {
	f.Add(uint64(1), []byte{1, 2, 3, 0, 255})
	f.Add(uint64(2), []byte{0, 0, 1})
	f.Add(uint64(3), []byte{})
	f.Fuzz(func(t *testing.T, seed uint64, shares []byte) {
		targets := make([]float64, len(shares))
		for i, b := range shares {
			targets[i] = float64(b) / 85
		}
		for _, d := range []Draw{Systematic, Multinomial} {
			order, err := Order(slices.Clone(targets), seed, 3, d)
			if err != nil {
				t.Fatal(err)
			}
			if len(order) != Length(targets) {
				t.Errorf("%s: %d samples, want %d", d, len(order), Length(targets))
			}
			for _, i := range order {
				if d == Multinomial && targets[i] == 0 {
					t.Errorf("%s: sample %d has target 0 and is drawn", d, i)
				}
			}
			offheap.Free(order)
		}
	})
}
