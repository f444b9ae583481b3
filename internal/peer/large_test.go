package peer

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lcache/sample"
)

// counted is a shelf that counts the calls of Bring that are under way.
type counted struct {
	shelf
	now, most atomic.Int64
}

func (c *counted) Bring(ctx context.Context, indices []sample.Index, to func(Brought)) {
	n := c.now.Add(1)
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
	}
	defer c.now.Add(-1)
	c.shelf.Bring(ctx, indices, to)
}

// largeShelf has a small sample 0. All others are larger than what a stream may hold.
func largeShelf(n, large int, pause time.Duration) *counted {
	return &counted{shelf: shelf{n: n, pause: pause, size: func(i sample.Index) int {
		if i == 0 {
			return 100
		}
		return large
	}}}
}

// TestLargeSamplesShareMemory: samples that are larger than what a stream may hold take turns, whichever streams they are for, and a consumer whose turn takes
// long to come does not take the home for a late one.
func TestLargeSamplesShareMemory(t *testing.T) {
	t.Parallel()
	const largeSize = 2 << 20
	for _, c := range []struct {
		room, most int64
		pause      time.Duration
	}{{1, 1, 500 * time.Millisecond}, {largeSize, 1, 50 * time.Millisecond}, {2*largeSize + 1, 2, 100 * time.Millisecond}} {
		s := largeShelf(10, largeSize, c.pause)
		_, address := serve(t, s, ServerOptions{Stream: func() int64 { return 64 << 10 }, Large: c.room})
		var all sync.WaitGroup
		for i := sample.Index(1); i <= 8; i++ {
			all.Go(func() {
				h := newHeap()
				missing, err := client(t, s.n, ClientOptions{Late: 3 * time.Second}).Fetch(t.Context(), address, []sample.Index{i}, h)
				if missing != 0 || err != nil || !bytes.Equal(h.got[i], content(i, largeSize)) {
					t.Errorf("sample %d of %d: %d missing, %v", i, s.n, missing, err)
				}
			})
		}
		all.Wait()
		if most := s.most.Load(); most != c.most {
			t.Errorf("%d large samples were in memory at once with room for %d bytes, want %d", most, c.room, c.most)
		}
		released(t, &s.shelf)
	}
}

// TestLargeSampleThatIsNotTaken: a consumer that takes nothing of a large sample holds up no small ones, and large ones only until its request has ended.
func TestLargeSampleThatIsNotTaken(t *testing.T) {
	t.Parallel()
	s := largeShelf(10, 10<<20, 0) // gRPC queues two messages for a consumer that takes nothing, at most 4 MiB
	_, address := serve(t, s, ServerOptions{Stream: func() int64 { return 64 << 10 }, Large: 1})
	stuck := newHeap()
	stuck.block = make(chan struct{})
	defer close(stuck.block)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go client(t, s.n, ClientOptions{Window: func() int32 { return 64 << 10 }}).Fetch(ctx, address, indices(1, 1), stuck)
	eventually(t, "the large sample is not brought", func() bool { return s.asked.Load() == 1 })
	other := client(t, s.n, ClientOptions{})
	if missing, err := other.Fetch(t.Context(), address, indices(0, 1), newHeap()); missing != 0 || err != nil {
		t.Errorf("a small sample: %d missing, %v", missing, err)
	}
	short, end := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer end()
	if missing, _ := other.Fetch(short, address, indices(2, 1), newHeap()); missing != 1 || s.asked.Load() != 2 {
		t.Errorf("a second large sample came, or was brought: %d", s.asked.Load())
	}
}
