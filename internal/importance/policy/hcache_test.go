package policy_test

import (
	"testing"

	"lcache/internal/importance/policy"
)

func TestHBytes(t *testing.T) {
	for _, c := range []struct{ total, high, low, pack, want int64 }{
		{1000, 2, 1, 100, 666}, {1000, 1, 0, 100, 900}, {1000, 0, 5, 100, 0}, {50, 9, 1, 100, 0}, {0, 1, 1, 0, 0},
		{1 << 62, 1 << 62, 1 << 62, 0, 1 << 61},
	} {
		if got := policy.HBytes(c.total, c.high, c.low, c.pack); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
