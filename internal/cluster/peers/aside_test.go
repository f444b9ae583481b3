package peers

import (
	"testing"
	"time"

	"lcache/sample"
)

// TestAside: a peer is put aside by three wrong samples within a minute, for a minute, and no other peer with it.
func TestAside(t *testing.T) {
	var a aside
	began := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	for _, step := range []struct {
		second  int
		address string
		isAside bool // by this wrong sample
	}{
		{0, "a", false}, {30, "a", false}, {60, "a", false}, // the first is a minute old
		{61, "b", false}, {62, "b", false},
		{80, "a", true}, {81, "a", false}, // one that was under way does not count
		{100, "b", true},
		{140, "a", false}, {141, "a", false}, {142, "a", true},
	} {
		if got := a.wrong(step.address, at(step.second)); got != step.isAside {
			t.Errorf("second %d: wrong bytes of %s put it aside: %v, want %v", step.second, step.address, got, step.isAside)
		}
	}
	for _, c := range []struct {
		second  int
		address string
		isAside bool
	}{{143, "a", true}, {143, "b", true}, {160, "b", false}, {201, "a", true}, {202, "a", false}, {150, "c", false}} {
		if got := a.is(c.address, at(c.second)); got != c.isAside {
			t.Errorf("second %d: %s is put aside: %v, want %v", c.second, c.address, got, c.isAside)
		}
	}
	if len(a.was) > 1 {
		t.Errorf("%d peers are remembered", len(a.was))
	}
}

// TestPeerAsideIsNotAsked: what a peer that is put aside should send comes from the peer with copies, else from the source.
func TestPeerAsideIsNotAsked(t *testing.T) {
	w := newWorld(t, 0.4, 0.4, 0.4)
	w.look()
	w.look()
	d := w.data[0]
	asked := func() (of1, of2 int) {
		for i := range sample.Index(samples) {
			for n := 0; ; n++ {
				holder, ok := d.Holder(i, n)
				if !ok {
					break
				}
				switch holder {
				case "m1":
					of1++
				case "m2":
					of2++
				}
			}
		}
		return of1, of2
	}
	one, two := asked()
	for range 3 {
		if d.IsAside("m1") {
			t.Fatal("a peer is put aside too early")
		}
		d.Wrong("m1")
	}
	if of1, of2 := asked(); one == 0 || two == 0 || of1 != 0 || of2 != two || !d.IsAside("m1") || d.IsAside("m2") {
		t.Errorf("after three wrong samples, the peer is asked for %d of %d samples, and the other one for %d of %d", of1, one, of2, two)
	}
}
