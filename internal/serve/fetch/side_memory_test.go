package fetch_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/internal/serve/fetch"
	"lcache/internal/serve/fetch/fetchtest"
	"lcache/internal/serve/staging"
	"lcache/logfile"
	"lcache/sample"
)

// roomBed has 16 samples of 3000 bytes in the source, and side memory for four of them.
func roomBed(t *testing.T, o fetch.Options) *bed {
	t.Helper()
	io := fetchtest.OpenIO(t)
	b := &bed{io: io, Bed: fetchtest.New(t, fetchtest.Options{Sizes: slices.Repeat([]uint32{3000}, 16), Log: logfile.Options{IO: io}, Fetch: o,
		Staging: staging.Options{Slots: 1, SlotBytes: 4096, SideBytes: 4 * 8192, SpareBytes: 8192}})}
	t.Cleanup(func() { blockio.Inject(b.io, nil) })
	return b
}

// A small request does not overtake a waiting large one, which might starve otherwise.
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
	for { // until the large one waits; before that, a small one has room
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

// The scan waits for no client: if leases hold all side memory, it gets its samples through the spare part.
func TestScanWaitsForNoLease(t *testing.T) {
	b := roomBed(t, fetch.Options{})
	leased, err := b.Fetcher.Room(t.Context(), 4*8192)
	if err != nil {
		t.Fatal(err)
	}
	b.get(t, 7)
	x, data, err := b.Fetcher.FromSourceOnly(t.Context(), 8)
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

// TestReadNow: a sample is read if side memory has room now, and the memory is free again afterwards. If there is
// none, nothing is read, without an error.
func TestReadNow(t *testing.T) {
	b := roomBed(t, fetch.Options{})
	reads := 0
	read := func() {
		t.Helper()
		if err := b.Fetcher.ReadNow(t.Context(), 7, func(data []byte) { b.Is(7, data); reads++ }); err != nil {
			t.Error(err)
		}
	}
	read()
	side, ok := b.Fetcher.TryRoom(b.Staging.SideBytes())
	if !ok {
		t.Fatal("side memory is not free")
	}
	read()
	b.Staging.Drop(side)
	if read(); reads != 2 {
		t.Errorf("%d reads, want 2", reads)
	}
}

// TestRoomForOneHasADeadline: a caller that others may wait for does not wait for memory without a limit.
func TestRoomForOneHasADeadline(t *testing.T) {
	b := roomBed(t, fetch.Options{SourceTimeout: 10 * soon})
	side, ok := b.Fetcher.TryRoom(b.Staging.SideBytes())
	if !ok {
		t.Fatal("side memory is not free")
	}
	defer b.Staging.Drop(side)
	spare, err := b.Fetcher.SpareRoom(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Staging.Drop(spare)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, _, err := b.Fetcher.FetchAll(ctx, []sample.Index{1}); !errors.Is(err, fetch.ErrNoRoom) || ctx.Err() != nil {
		t.Errorf("without room: %v, and its caller's time is over: %v; want %v before that", err, ctx.Err(), fetch.ErrNoRoom)
	}
}
