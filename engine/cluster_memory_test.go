package engine

import (
	"context"
	"slices"
	"testing"
	"time"

	"lcache/internal/peer"
	"lcache/internal/serve/staging"
	"lcache/sample"
)

// fill takes all memory of some pools, and returns what gives it back.
func fill(e *Engine, pools ...staging.Pool) (release func()) {
	var held []*staging.Extent
	for _, p := range pools {
		for n := 1 << 30; n >= 4096; {
			if x, ok := e.staging.Alloc(p, sample.None, n); ok {
				held = append(held, x)
			} else {
				n /= 2
			}
		}
	}
	return func() {
		for _, x := range held {
			e.staging.Drop(x)
		}
	}
}

// TestHomeHasMemoryOfItsOwn: a machine whose clients hold all memory for requests by index answers its peers in time, from its source and from its log. One
// whose peers use all of their memory answers its clients.
func TestHomeHasMemoryOfItsOwn(t *testing.T) {
	const n = 200
	d := makeDataset(t, n, fileSizes)
	f := newFleet(t, d, samplerJob(9, 16, 1, true), 1, 0)
	defer f.close(t)
	e := f.machines[0].Engine
	var all []sample.Index
	for i := range sample.Index(n) {
		all = append(all, i)
	}
	bring := func(indices []sample.Index) (ok int) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // a peer gives a second, which a busy test machine may not have
		defer cancel()
		e.Home().Bring(ctx, indices, func(b peer.Brought) {
			if !b.Why.IsAbsent() && slices.Equal(b.Bytes, d.bytes[b.Index]) {
				ok++
			}
			if b.Release != nil {
				b.Release()
			}
		})
		return ok
	}
	release := fill(e, staging.Side, staging.Spare)
	for _, from := range []string{"the source", "the log"} {
		if got := bring(all[:n/2]); got != n/2 {
			t.Errorf("%d of %d samples were brought from %s while clients held all memory for requests", got, n/2, from)
		}
	}
	release()
	release = fill(e, staging.Peers)
	defer release()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	extents, got, err := e.fetcher.FetchAll(ctx, all[n/2:n/2+20])
	if err != nil {
		t.Fatalf("a request while peers use all of their memory: %v", err)
	}
	for i, g := range got {
		if !slices.Equal(g.Data, d.bytes[n/2+i]) {
			t.Errorf("sample %d is wrong", n/2+i)
		}
	}
	for _, x := range extents {
		e.staging.Drop(x)
	}
}
