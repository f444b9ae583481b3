package object

import (
	"testing"
	"time"
)

func TestStartControl(t *testing.T) {
	for _, c := range []struct {
		median int64
		want   int
	}{{0, 64}, {1, 64}, {100_000, 64}, {1 << 20, 50}, {2 << 20, 25}, {4 << 20, 16}, {1 << 30, 16}} {
		if got := startControl(c.median).limit; got != c.want {
			t.Errorf("objects of %d bytes: %d requests, want %d", c.median, got, c.want)
		}
	}
}

// Each case is a sequence of windows: the bytes of a second, and the next limit.
func TestControlStories(t *testing.T) {
	type step struct {
		mb   int64
		full bool
		slow time.Duration // if not 0: instead of a window, the store was slow at this time
		want int
	}
	for name, story := range map[string][]step{
		"a store that scales":                             {{100, true, 0, 72}, {110, true, 0, 81}, {125, true, 0, 91}, {140, true, 0, 102}},
		"a link that is full":                             {{100, true, 0, 72}, {100, true, 0, 72}, {102, true, 0, 72}, {101, true, 0, 72}},
		"few readers: more requests would change nothing": {{100, false, 0, 64}, {200, false, 0, 64}, {400, false, 0, 64}},
		"a storm of 503 halves once a second":             {{100, true, 0, 72}, {0, false, 2 * time.Second, 36}, {0, false, 2100 * time.Millisecond, 36}, {0, false, 2999 * time.Millisecond, 36}, {0, false, 3 * time.Second, 18}},
		"never below 8":                                   {{0, false, 1 * time.Second, 32}, {0, false, 2 * time.Second, 16}, {0, false, 3 * time.Second, 8}, {0, false, 4 * time.Second, 8}},
		"after trouble it grows again":                    {{100, true, 0, 72}, {0, false, 2 * time.Second, 36}, {50, true, 0, 40}, {60, true, 0, 45}},
	} {
		c := startControl(0)
		for i, s := range story {
			if s.slow > 0 {
				c = c.slowed(s.slow)
			} else {
				c = c.after(time.Second, s.mb*1_000_000, s.full)
			}
			if c.limit != s.want {
				t.Errorf("%s: step %d: %d requests, want %d", name, i, c.limit, s.want)
			}
		}
	}
	c := startControl(0)
	for i := range int64(40) {
		c = c.after(time.Second, (i+1)*(i+1)*1_000_000, true)
	}
	if c.limit != 256 {
		t.Errorf("a store without a limit: %d requests, want 256", c.limit)
	}
}
