package simulate

import (
	"math"
	"math/rand/v2"
	"testing"

	"lcache/internal/testenv"
)

// TestFrequencyAgainstDraws: 300 drawn workers read as many samples more than 7 times as the formula says, and scatter as
// much.
func TestFrequencyAgainstDraws(t *testing.T) {
	testenv.WithoutRace(t)
	const samples, epochs, workers, above, runs = 4096, 40, 8, 7, 300
	r := rand.New(rand.NewPCG(1, 2))
	sum, squares := 0.0, 0.0
	for range runs {
		counts := make([]int, samples)
		for range epochs {
			for _, k := range r.Perm(samples)[:samples/workers] {
				counts[k]++
			}
		}
		n := 0.0
		for _, c := range counts {
			if c > above {
				n++
			}
		}
		sum, squares = sum+n, squares+n*n
	}
	mean := sum / runs
	sd := math.Sqrt(squares/runs - mean*mean)
	expected, stddev, err := Frequency(samples, epochs, workers, above)
	if err != nil || math.Abs(mean-expected) > 4*stddev/math.Sqrt(runs) || math.Abs(sd-stddev) > 0.15*stddev {
		t.Errorf("drawn %.1f ± %.2f, by formula %.1f ± %.2f, %v", mean, sd, expected, stddev, err)
	}
}

// TestLemma1 on random deals of epochs: some other worker stays within the bounds, and within the sharp ones.
func TestLemma1(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		epochs, workers := 1+r.IntN(100), 2+r.IntN(30)
		x, err := Lemma1(float64(epochs), float64(workers), r.Float64()*float64(workers-1))
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range []float64{x.Many, x.Few} {
			counts := make([]float64, workers-1)
			for range epochs - int(one) {
				counts[r.IntN(workers-1)]++
			}
			least, most := math.Inf(1), 0.0
			for _, c := range counts {
				least, most = min(least, c), max(most, c)
			}
			if one == x.Many && (least > x.OtherAtMost || least > x.SharpAtMost) || one == x.Few && (most < x.OtherAtLeast || most < x.SharpAtLeast) {
				t.Fatalf("%d epochs, %d workers, one reads it %g times, the others %v: %+v", epochs, workers, one, counts, x)
			}
		}
	}
}

func TestAccessRefuses(t *testing.T) {
	for name, call := range map[string]func() error{
		"epochs":  func() error { _, _, err := Frequency(10, 0, 2, 1); return err },
		"many":    func() error { _, _, err := Frequency(10, 1e18, 2, 1); return err },
		"NaN":     func() error { _, _, err := Frequency(math.NaN(), 5, 2, 1); return err },
		"share":   func() error { _, _, err := Placement(5, 4, 1.5); return err },
		"long":    func() error { _, _, err := Placement(1e6, 4, 0.5); return err },
		"delta":   func() error { _, err := Lemma1(5, 4, 9); return err },
		"alone":   func() error { _, err := Lemma1(5, 1, 0); return err },
		"consume": func() error { _, _, err := Consume([]float64{1}, nil, 5); return err },
	} {
		if call() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
