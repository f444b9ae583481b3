package fetch

import (
	"context"
	"errors"
	"fmt"

	"lcache/internal/serve/staging"
	"lcache/logfile"
	"lcache/sample"
)

// ErrNoRoom means that side memory had no room for a request before its deadline.
var ErrNoRoom = errors.New("side memory is full")

// TooLargeError means that a request can never be served. Limit is the largest possible request.
type TooLargeError struct{ Need, Limit int64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("request of %d bytes is larger than side memory (%d): ask for fewer samples at once, or give the server more --memory", e.Need, e.Limit)
}

// SideBytes returns the side memory that a sample may take: an aligned read adds up to a page at each end.
func SideBytes(size uint32) int { return logfile.Span(4095, int(size)) }

// Need returns the bytes of side memory that a request for these samples takes.
func (f *Fetcher) Need(indices []sample.Index) (n int64) {
	for _, i := range indices {
		n += int64(SideBytes(f.o.Manifest.Size(i)))
	}
	return n
}

// Fitting returns how many of the first samples fit the spare part.
func (f *Fetcher) Fitting(indices []sample.Index) (n int) {
	left := f.o.Staging.SpareBytes()
	for _, i := range indices {
		if size := f.o.Manifest.Size(i); size > 0 {
			left -= int64(SideBytes(size))
		}
		if left < 0 {
			break
		}
		n++
	}
	return n
}

// Room waits for need bytes of side memory in one piece. Callers are served in order of arrival, so that small requests do not starve a
// large one. Callers must hold nothing that others wait for. The caller gets a reference to the extent.
func (f *Fetcher) Room(ctx context.Context, need int64) (*staging.Extent, error) {
	if limit := f.o.Staging.SideBytes(); need > limit {
		return nil, &TooLargeError{Need: need, Limit: limit}
	}
	x, err := f.inTurn(ctx, staging.Side, need)
	if err != nil {
		err = fmt.Errorf("%w: %d of %d bytes are in use, the largest free piece has %d, and %d are needed: %w",
			ErrNoRoom, f.o.Staging.SideUsed(), f.o.Staging.SideBytes(), f.o.Staging.SideLargest(), need, err)
	}
	return x, err
}

// TryRoom is Room without waiting. It never overtakes a waiting caller. Prefetched chunks in side memory are evicted if necessary.
func (f *Fetcher) TryRoom(need int64) (*staging.Extent, bool) {
	return f.sideNow(need, func() bool { return f.yieldOne(sample.FromLog) })
}

// ReadNow calls use with the bytes of a sample, if there is side memory to read it into now.
func (f *Fetcher) ReadNow(ctx context.Context, index sample.Index, use func(data []byte)) error {
	one := []sample.Index{index}
	x, ok := f.TryRoom(f.Need(one))
	if !ok {
		return nil
	}
	extents, got := f.Into(ctx, x, one)
	defer func() {
		for _, x := range extents {
			f.o.Staging.Drop(x)
		}
	}()
	if got[0].Err == nil {
		use(got[0].Data)
	}
	return got[0].Err
}

// sideNow takes side memory if no other caller waits for it, and if there is room or yield makes some.
func (f *Fetcher) sideNow(need int64, yield func() bool) (*staging.Extent, bool) {
	turn := f.turns[staging.Side]
	if !turn.TryAcquire(1) {
		return nil, false
	}
	defer turn.Release(1)
	for {
		x, ok := f.o.Staging.Alloc(staging.Side, sample.None, int(need))
		if ok || !yield() {
			return x, ok
		}
	}
}

// A Yielder uses side memory until a request needs it.
type Yielder interface {
	// YieldOne frees some side memory with samples from one origin. It returns false if there was none.
	YieldOne(from sample.Origin) bool
	// YieldAny frees some side memory: first samples that cost least to read again.
	YieldAny() bool
}

// SetYielder sets the other user of side memory, which must give it back to requests.
func (f *Fetcher) SetYielder(y Yielder) { f.yielder.Store(&y) }

func (f *Fetcher) yieldOne(from sample.Origin) bool {
	y := f.yielder.Load()
	return y != nil && (*y).YieldOne(from)
}

func (f *Fetcher) yieldAny() bool {
	y := f.yielder.Load()
	return y != nil && (*y).YieldAny()
}

// TrySide takes side memory if no request waits for it and there is room.
func (f *Fetcher) TrySide(need int64) (*staging.Extent, bool) {
	return f.sideNow(need, func() bool { return false })
}

// roomTogether is TryRoom for callers that must not overtake each other either. Reads for other machines may wait for their memory, if they have none yet.
func (f *Fetcher) roomTogether(ctx context.Context, need int, mayWait bool) (*staging.Extent, bool) {
	switch pool := f.poolOf(ctx, int64(need)); {
	case pool == staging.Peers && mayWait:
		x, err := f.inTurn(ctx, pool, int64(need))
		return x, err == nil
	case pool == staging.Peers:
		return f.o.Staging.Alloc(pool, sample.None, need)
	}
	f.together.Lock()
	defer f.together.Unlock()
	return f.TryRoom(int64(need))
}

// SpareRoom waits for the spare part of side memory, in order of arrival. No client holds it for long, so every caller gets it.
func (f *Fetcher) SpareRoom(ctx context.Context) (*staging.Extent, error) {
	x, err := f.inTurn(ctx, staging.Spare, f.o.Staging.SpareBytes())
	if err != nil {
		err = fmt.Errorf("%w: other requests use the spare part: %w", ErrNoRoom, err)
	}
	return x, err
}

// inTurn waits until a pool has n bytes and all earlier callers have theirs. Prefetched chunks in side memory are evicted if necessary.
func (f *Fetcher) inTurn(ctx context.Context, pool staging.Pool, n int64) (*staging.Extent, error) {
	turn := f.turns[pool]
	if !turn.TryAcquire(1) {
		if err := turn.Acquire(ctx, 1); err != nil {
			return nil, err
		}
	}
	defer turn.Release(1)
	for {
		changed := f.o.Staging.Changed()
		if x, ok := f.o.Staging.Alloc(pool, sample.None, int(n)); ok {
			return x, nil
		}
		if pool == staging.Side && f.yieldAny() {
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// oneRoom is Room for one sample. Its callers, such as the scan, must not wait for clients to release memory, because others wait for them.
// oneRoom waits at most as long as a read of the source may be silent.
func (f *Fetcher) oneRoom(ctx context.Context, n int64) (*staging.Extent, error) {
	pool := f.poolOf(ctx, n)
	if pool == staging.Side {
		if x, ok := f.TryRoom(n); ok {
			return x, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, f.o.SourceTimeout)
	defer cancel()
	if pool == staging.Peers {
		return f.inTurn(ctx, staging.Peers, n)
	}
	if n > f.o.Staging.SpareBytes() {
		return f.Room(ctx, n)
	}
	return f.SpareRoom(ctx)
}
