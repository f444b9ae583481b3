package score

import (
	"math/rand/v2"
	"testing"
)

// TestElasticStays: the ratio does not change without the number of epochs, or while the spread grows, and it never
// rises.
func TestElasticStays(t *testing.T) {
	e := NewElastic(0.9, 0.8, 0.01, 5)
	for k := range 20 {
		if r := e.EndEpoch(1/float64(k+1), nil, 0); r != 0.9 {
			t.Fatalf("the number of epochs is not known, and the ratio is %v", r)
		}
	}
	e = NewElastic(0.9, 0.8, 0.01, 5)
	for k := range 20 {
		if r := e.EndEpoch(float64(k), nil, 20); r != 0.9 {
			t.Fatalf("values spread more and more, and the ratio is %v", r)
		}
	}
	e = NewElastic(0.9, 0.8, 0.01, 5)
	last := 0.9
	r := rand.New(rand.NewPCG(1, 1))
	for k := range 60 { // longer than announced
		a := r.Float64()
		sigma := 1 / float64(k+1)
		if k > 10 {
			sigma = r.Float64()
		}
		ratio := e.EndEpoch(sigma, &a, 40)
		if ratio > last || ratio < 0.8-1e-12 {
			t.Fatalf("epoch %d: the ratio goes from %v to %v", k, last, ratio)
		}
		last = ratio
	}
	if last > 0.801 {
		t.Errorf("after all epochs the ratio is %v, want 0.8", last)
	}
}
