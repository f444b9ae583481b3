package lanes

import (
	"slices"
	"testing"
)

// TestCases: under the race detector a fixed part of the cases, spread over them; without it all.
func TestCases(t *testing.T) {
	cases := []int{0, 1, 2, 3, 4, 5, 6}
	want := map[string][]int{"three": {0, 2, 4}, "more than there are": cases, "the ninth in turn": {2}}
	if !Race {
		want = map[string][]int{"three": cases, "more than there are": cases, "the ninth in turn": cases}
	}
	for name, got := range map[string][]int{"three": Some(cases, 3), "more than there are": Some(cases, 8), "the ninth in turn": Turn(cases, 9)} {
		if !slices.Equal(got, want[name]) {
			t.Errorf("%s: %v, want %v", name, got, want[name])
		}
	}
	if n := Count(5, 2); Race != (n == 2) || Race == (n == 5) {
		t.Errorf("%d times, with the race detector: %v", n, Race)
	}
}
