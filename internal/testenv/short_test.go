package testenv

import (
	"slices"
	"testing"
)

// TestShort: under the race detector, and with -short, a fixed part of the cases runs, spread over all; otherwise
// all.
func TestShort(t *testing.T) {
	cases := []int{0, 1, 2, 3, 4, 5, 6}
	want := map[string][]int{"three": cases, "more than there are": cases, "the ninth in turn": cases, "five or two": {5}}
	if Race || testing.Short() {
		want = map[string][]int{"three": {0, 2, 4}, "more than there are": cases, "the ninth in turn": {2}, "five or two": {2}}
	}
	for name, got := range map[string][]int{"three": Some(cases, 3), "more than there are": Some(cases, 8), "the ninth in turn": One(cases, 9), "five or two": {Pick(5, 2)}} {
		if !slices.Equal(got, want[name]) {
			t.Errorf("%s: %v, want %v", name, got, want[name])
		}
	}
}

// TestLeftOut: each test that is skipped in one of the two runs of make test runs in the other: under the race
// detector, or on pread without it.
func TestLeftOut(t *testing.T) {
	skipped := func(skip func(testing.TB)) (is bool) {
		t.Run("", func(t *testing.T) {
			t.Cleanup(func() { is = t.Skipped() })
			skip(t)
		})
		return is
	}
	if got := skipped(Long); got != testing.Short() {
		t.Errorf("Long skips: %v, with -short: %v", got, testing.Short())
	}
	if got := skipped(WithoutRace); got != Race {
		t.Errorf("WithoutRace skips: %v, under the race detector: %v", got, Race)
	}
	for io, want := range map[string]bool{"": false, "uring": false, "pread": true} {
		t.Setenv("LCACHE_IO", io)
		if got := skipped(AnyIO); got != want {
			t.Errorf("AnyIO skips: %v, where LCACHE_IO=%s", got, io)
		}
	}
}
