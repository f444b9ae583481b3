package losses

import (
	"math"
	"slices"
	"testing"
)

// TestLosses: the same seed gives the same losses, a fifth of them vary strongly, and they fall.
func TestLosses(t *testing.T) {
	const n = 20_000
	a, b, other := New(n, 1), New(n, 1), New(n, 2)
	first := a.Epoch(0)
	if !slices.Equal(first, b.Epoch(0)) || slices.Equal(first, other.Epoch(0)) {
		t.Error("a seed does not decide the losses, or all seeds give the same")
	}
	far := 0
	for i := range n {
		if a.Far(i) {
			far++
		}
	}
	if share := float64(far) / n; math.Abs(share-0.2) > 0.02 {
		t.Errorf("%.3f of the losses wander far, want a fifth", share)
	}
	var last []float32
	for e := 1; e < 40; e++ {
		last = a.Epoch(e)
	}
	if was, is := median(first), median(last); was < 0.9 || was > 1.1 || is < 0.25 || is > 0.4 {
		t.Errorf("the median loss falls from %.2f to %.2f, want from 1 to about a third", was, is)
	}
}

func median(losses []float32) float32 { return slices.Sorted(slices.Values(losses))[len(losses)/2] }
