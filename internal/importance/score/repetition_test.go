package score

import "testing"

func TestRepetition(t *testing.T) {
	var r Repetition
	a := func(x float64) *float64 { return &x }
	for k, c := range []struct {
		accuracy *float64
		want     float64
	}{{nil, 1}, {a(0.5), 3}, {a(0.6), 3}, {a(0.6), 3}, {a(0.5), 1}, {a(0.7), 3}, {a(0.6), 1}, {nil, 1}, {a(0.1), 3}} {
		r.EndEpoch(c.accuracy)
		if got := r.Allow(3); got != c.want {
			t.Errorf("after epoch %d: %v times, want %v", k, got, c.want)
		}
	}
	if got := r.Allow(1); got != 1 {
		t.Errorf("without a request for repetition: got %v, want 1", got)
	}
}
