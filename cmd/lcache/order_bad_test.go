package main

import (
	"fmt"
	"strings"
	"testing"

	"lcache/shuffle"
)

// TestOrderDiffBad: states with different lists of bad samples are not equal; the case of a digest does not matter.
func TestOrderDiffBad(t *testing.T) {
	state := func(more string) loaderState {
		s, err := parseState([]byte(`{"v": 1, "seed": 0, "epoch": 1, "consumed": 2, "world": 1, "batch_size": 4, "fingerprint": "f"` + more + `}`))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	digest := strings.Repeat("a", 64)
	const order = `, "order_digest": null, "bad": %q`
	for _, c := range []struct {
		a, b  string
		equal bool
	}{
		{fmt.Sprintf(order, digest), fmt.Sprintf(order, digest), true},
		{fmt.Sprintf(order, digest), fmt.Sprintf(order, ""), false},
		{fmt.Sprintf(order, digest), `, "order_digest": null`, false},
		{`, "order_digest": "` + digest + `"`, `, "order_digest": "` + strings.ToUpper(digest) + `"`, true},
	} {
		d, err := diffStates(t.Context(), state(c.a), state(c.b), shuffle.Spec{})
		if err != nil || d.Equal != c.equal {
			t.Errorf("%s and %s: equal %t, %v", c.a, c.b, d.Equal, err)
		}
		if !c.equal && !d.differs("bad") {
			t.Errorf("%s and %s: bad is not among %v", c.a, c.b, d.Options)
		}
	}
}
