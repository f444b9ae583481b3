package fetch_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"lcache/blockio"
	"lcache/fetch"
	"lcache/fetch/fetchtest"
	"lcache/logfile"
	"lcache/sample"
	"lcache/staging"
)

// roomBed has 16 samples of 3000 bytes at the source, and side memory for four of them.
func roomBed(t *testing.T, o fetch.Options) *bed {
	t.Helper()
	io := openIO(t)
	b := &bed{io: io, Bed: fetchtest.New(t, fetchtest.Options{Sizes: slices.Repeat([]uint32{3000}, 16), Log: logfile.Options{IO: io}, Fetch: o,
		Staging: staging.Options{Slots: 1, SlotBytes: 4096, SideBytes: 4 * 8192, SpareBytes: 8192}})}
	t.Cleanup(func() { blockio.Inject(b.io, nil) })
	return b
}

// A small request does not pass a large one that waits: else the large one might starve.
func TestRoomInOrder(t *testing.T) {
	b := roomBed(t, fetch.Options{})
	first, err := b.Fetcher.Room(t.Context(), 8192)
	if err != nil {
		t.Fatal(err)
	}
	large := make(chan *staging.Extent)
	go func() {
		x, err := b.Fetcher.Room(t.Context(), 4*8192)
		if err != nil {
			t.Error(err)
		}
		large <- x
	}()
	for { // until the large one waits; before, a small one has room
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		x, err := b.Fetcher.Room(ctx, 8192)
		cancel()
		if errors.Is(err, fetch.ErrNoRoom) {
			break
		}
		b.Staging.Drop(x)
	}
	b.Staging.Drop(first)
	b.Staging.Drop(<-large)
}

// The pass waits for no client: where leases hold all side memory, it gets its samples through the spare part.
func TestThePassWaitsForNoLease(t *testing.T) {
	b := roomBed(t, fetch.Options{})
	leased, err := b.Fetcher.Room(t.Context(), 4*8192)
	if err != nil {
		t.Fatal(err)
	}
	b.get(t, 7)
	x, data, err := b.Fetcher.Aside(t.Context(), 8)
	if err != nil {
		t.Fatal(err)
	}
	b.Is(8, data)
	if n := b.Fetcher.Fitting([]sample.Index{1, 2}); n != 1 {
		t.Errorf("%d samples fit the spare part, want one", n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if _, err := b.Fetcher.SpareRoom(ctx); !errors.Is(err, fetch.ErrNoRoom) {
		t.Errorf("the spare part was given twice: %v", err)
	}
	b.Staging.Drop(x)
	b.Staging.Drop(leased)
}
