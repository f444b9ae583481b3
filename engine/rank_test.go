package engine

import (
	"slices"
	"testing"

	"lcache/sample"
)

// TestRankFront: the samples that a rank needs next, for any order in which its workers send requests and get answers.
func TestRankFront(t *testing.T) {
	of := func(batch int) []sample.Index { return []sample.Index{sample.Index(batch)} }
	type step struct {
		ask, deliver int // a batch; -1: not
		batch        int // that is first then
		front        int // whose samples are in front
	}
	for name, steps := range map[string][]step{
		"in order":          {{0, -1, 0, 0}, {-1, 0, 1, 0}, {1, -1, 1, 1}, {-1, 1, 2, 1}},
		"a worker is ahead": {{0, -1, 0, 0}, {2, -1, 0, 0}, {-1, 2, 0, 0}, {-1, 0, 1, 0}, {1, -1, 1, 1}, {-1, 1, 3, 2}},
		"the first is slow": {{3, -1, 3, 3}, {1, -1, 1, 1}, {2, -1, 1, 1}, {-1, 2, 1, 1}, {-1, 3, 1, 1}, {-1, 1, 4, 3}},
		"the first is late": {{1, -1, 1, 1}, {2, -1, 1, 1}, {-1, 1, 2, 2}, {-1, 2, 3, 2}, {0, -1, 0, 0}, {-1, 0, 3, 2}},
		"begun again":       {{0, -1, 0, 0}, {-1, 0, 1, 0}, {1, -1, 1, 1}, {-1, 1, 2, 1}, {2, -1, 2, 2}, {-1, 2, 3, 2}, {0, -1, 0, 0}, {-1, 0, 3, 2}, {1, -1, 1, 1}, {-1, 1, 2, 1}, {2, -1, 2, 2}},
		"begun later":       {{500, -1, 500, 500}, {-1, 500, 501, 500}, {501, -1, 501, 501}},
		"some left out":     {{0, -1, 0, 0}, {-1, 0, 1, 0}, {1 + spread, -1, 1 + spread, 1 + spread}, {-1, 1 + spread, 2 + spread, 1 + spread}},
		"back":              {{200, -1, 200, 200}, {-1, 200, 201, 200}, {0, -1, 0, 0}, {-1, 0, 1, 0}, {1, -1, 1, 1}},
		"twice":             {{0, -1, 0, 0}, {-1, 0, 1, 0}, {0, -1, 0, 0}, {-1, 0, 1, 0}, {1, -1, 1, 1}},
	} {
		r := &rank{}
		for i, s := range steps {
			if s.ask >= 0 {
				r.ask(0, s.ask, of(s.ask))
			}
			if s.deliver >= 0 {
				r.deliver(s.deliver)
			}
			if r.batch != s.batch || !slices.Equal(r.front(), of(s.front)) {
				t.Errorf("%s, step %d: batch %d, front %v; want %d and that of %d", name, i, r.batch, r.front(), s.batch, s.front)
			}
		}
		if r.ask(1, 0, of(0)); r.batch != 0 || !r.waits() {
			t.Errorf("%s, the next epoch: batch %d", name, r.batch)
		}
	}
}
