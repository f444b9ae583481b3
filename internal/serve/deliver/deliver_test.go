package deliver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lcache/internal/serve/deliver"
	"lcache/internal/serve/fetch"
	"lcache/internal/serve/staging"
	"lcache/sample"
	"lcache/source"
)

func TestChunk(t *testing.T) {
	b := newBed(t, deliver.Options{})
	b.chunks[deliver.Position{Epoch: 2, Rank: 1, Batch: 0}] = []sample.Index{4, 3, 5, 0, 4}
	b.bring(0, 4, 5)
	c := b.attach(os.Getpid())
	batch, err := c.Chunk(t.Context(), 2, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	b.is(batch, 4, 3, 5, 0, 4)
	if batch.Offsets[0] != batch.Offsets[4] || b.held() != 1 || batch.Pinned != 777+64+100+777 {
		t.Errorf("offsets %v, held %d times, %d bytes pinned", batch.Offsets, b.held(), batch.Pinned)
	}
	if _, err := c.Chunk(t.Context(), 2, 1, 1); !errors.Is(err, io.EOF) {
		t.Errorf("past the end: %v, want EOF", err)
	}
	st := &b.d.Stats
	if st.Chunks.Load() != 1 || st.Samples.Load() != 5 || st.Misses() != 1 || st.Hits() != 4 || st.Bytes.Load() != 777+64+100+777 {
		t.Errorf("counted %d chunks, %d samples, %d misses, %d hits, %d bytes", st.Chunks.Load(), st.Samples.Load(), st.Misses(), st.Hits(), st.Bytes.Load())
	}
	if d := b.delivered[0]; !reflect.DeepEqual(d, deliver.Delivery{Samples: 5, Ahead: 5, From: origins(4, 1), Prefetched: 4, Ready: true}) || b.asked[0] != os.Getpid() {
		t.Errorf("notified the window of %+v for %v", d, b.asked)
	}
	c.Release(batch.Lease, batch.Lease, 999)
	if b.held() != 0 || b.d.Held()[os.Getpid()] != 0 {
		t.Errorf("held %d times, %v bytes after Release", b.held(), b.d.Held())
	}
}

// Get takes samples in staging from there, and reads the others into side memory. The request has duplicates and
// empty samples.
func TestGet(t *testing.T) {
	b := newBed(t, deliver.Options{})
	b.bring(0, 4)
	c := b.attach(os.Getpid())
	batch := b.get(c, 7, 0, 7, 3, 1, 4, 3)
	if batch.Pinned < 9000+9000+5000 || b.d.Held()[os.Getpid()] != batch.Pinned {
		t.Errorf("%d bytes are pinned, %v held", batch.Pinned, b.d.Held())
	}
	if d := b.delivered[0]; !reflect.DeepEqual(d, deliver.Delivery{Samples: 7, Ahead: 4, From: origins(4, 3), Prefetched: 2}) {
		t.Errorf("notified the window of %+v", d)
	}
	empty := b.get(c, 3, 3)
	none := b.get(c)
	other := b.get(c, 0)
	c.Release(other.Lease, empty.Lease, none.Lease)
	b.is(batch, 7, 0, 7, 3, 1, 4, 3) // still valid
	c.Release(batch.Lease)
	b.untilFree()
	for _, indices := range [][]sample.Index{{12}, {0, sample.None}} {
		_, err := c.Get(t.Context(), indices, nil)
		var bad *deliver.ArgumentError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), fmt.Sprint(indices[len(indices)-1])) {
			t.Errorf("indices %v: %v, want an error that names the wrong one", indices, err)
		}
	}
}

// A position that is not trusted counts as none, for a request that is served at once and for one that needs a
// lookup.
func TestPositionsThatAreNotBelieved(t *testing.T) {
	b := newBed(t, deliver.Options{})
	b.bring(0)
	c := b.attach(os.Getpid())
	for _, index := range []sample.Index{0, 7} {
		batch, err := c.Get(t.Context(), []sample.Index{index}, &deliver.Position{Epoch: 1000})
		if err != nil {
			t.Fatal(err)
		}
		c.Release(batch.Lease)
	}
	if len(b.delivered) != 2 {
		t.Errorf("the window was notified of %d answers, want 2", len(b.delivered))
	}
}

// A request waits for samples that are being read. It does not read them, and holds nothing meanwhile.
func TestWaitsForSamplesBeingRead(t *testing.T) {
	b := newBed(t, deliver.Options{})
	for _, i := range []sample.Index{4, 5} {
		b.set(i, deliver.Loading)
	}
	b.bring(0)
	c := b.attach(os.Getpid())
	waiting := make(chan struct{})
	go func() {
		defer close(waiting)
		b.get(c, 0, 4, 5)
	}()
	for b.d.Stats.Stall.Total() == 0 { // until the request waits
		b.Staging.Notify()
	}
	if b.held() != 0 {
		t.Errorf("slots are held %d times by a request that waits", b.held())
	}
	b.bring(4, 5)
	<-waiting
	if len(b.Source.Reads()) != 0 || b.held() != 2 {
		t.Errorf("source %v, held %d times", b.Source.Reads(), b.held())
	}
	releaseAll(c)
	before := b.d.Stats.Stall.Total()
	releaseAll(c)
	if b.d.Stats.Stall.Total() != before {
		t.Error("the clock of waits runs on")
	}
}

// releaseAll ends all leases of a client.
func releaseAll(c *deliver.Client) {
	for n := range uint64(1000) {
		c.Release(n)
	}
}

// If a hung disk stops the scan, a request reads from elsewhere after a third of its time.
func TestLoadingThatNeverEnds(t *testing.T) {
	b := newBed(t, deliver.Options{Timeout: time.Second})
	b.set(4, deliver.Loading)
	c := b.attach(os.Getpid())
	b.get(c, 4)
	if b.Source.Reads()[b.Name(4)] != 1 {
		t.Errorf("source %v", b.Source.Reads())
	}
	releaseAll(c)
}

// A request that waits for a slot reports lost patience again and again, and is finally served by index. While its
// segment is being read, it reports nothing.
func TestStarved(t *testing.T) {
	b := newBed(t, deliver.Options{Patience: time.Millisecond})
	b.set(4, deliver.Queued)
	c := b.attach(os.Getpid())
	batch := b.get(c, 4)
	if b.starves < 2 || b.Source.Reads()[b.Name(4)] != 1 {
		t.Errorf("starved %d times, source %v", b.starves, b.Source.Reads())
	}
	c.Release(batch.Lease)

	// Regression: the request kept reporting lost patience while the segment was being read.
	b.set(5, deliver.Queued)
	b.mu.Lock()
	b.starves = 0
	b.starved = func(int) { b.set(5, deliver.Loading); b.Staging.Notify() }
	b.mu.Unlock()
	done := make(chan struct{})
	go func() { defer close(done); b.get(c, 5) }()
	ticks := time.NewTicker(time.Millisecond)
	defer ticks.Stop()
	for n := 0; n < 20; { // twenty times its patience
		<-ticks.C
		b.mu.Lock()
		if b.starves > 0 {
			n++
		}
		b.mu.Unlock()
	}
	b.bring(5)
	<-done
	if b.starves != 1 {
		t.Errorf("starved %d times, want once", b.starves)
	}
	releaseAll(c)
}

// A wait ends at its deadline. The error names the awaited resource, and the process that holds the memory.
func TestTimeouts(t *testing.T) {
	b := newBed(t, deliver.Options{Timeout: 20 * soon})
	c := b.attach(os.Getpid())
	x, ok := b.Staging.Alloc(staging.Side, 0, 3<<15) // leaves a quarter of side memory
	if !ok {
		t.Fatal("no room to begin with")
	}
	held := b.get(c, 7, 7)
	_, err := c.Get(t.Context(), []sample.Index{7}, nil)
	var late *deliver.TimeoutError
	if want := fmt.Sprintf("process %d holds %d bytes", os.Getpid(), held.Pinned); !errors.As(err, &late) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	c.Release(held.Lease)
	b.Staging.Drop(x)

	hung := make(chan struct{})
	b.Source.Before(func(context.Context, sample.Entry, []byte) error { <-hung; return nil })
	_, err = c.Get(t.Context(), []sample.Index{7}, &deliver.Position{Epoch: 3, Rank: 1, Batch: 17})
	if !errors.As(err, &late) || !strings.Contains(err.Error(), "epoch 3 rank 1 batch 17") || !strings.Contains(err.Error(), b.Name(7)) {
		t.Errorf("a hung source: %v, want the position and the sample", err)
	}
	close(hung)
	b.untilFree()
}

// A request larger than all memory can never be served, and fails at once.
func TestTooLarge(t *testing.T) {
	b := newBed(t, deliver.Options{})
	c := b.attach(os.Getpid())
	indices := make([]sample.Index, 100)
	var bad *deliver.ArgumentError
	if _, err := c.Get(t.Context(), indices, nil); !errors.As(err, &bad) || !bad.TooLarge || !strings.Contains(err.Error(), "side memory") {
		t.Errorf("got %v", err)
	}
	large := &fetch.TooLargeError{}
	if errors.As(bad, &large) {
		t.Error("want only an ArgumentError to reach clients")
	}
}

// If one sample can't be read, the request fails with its name, and no lease is left.
func TestErrorLeasesNothing(t *testing.T) {
	b := newBed(t, deliver.Options{})
	b.bring(0, 4)
	b.Source.Before(func(_ context.Context, e sample.Entry, _ []byte) error {
		if e.Name == b.Name(7) {
			return &source.SampleError{Name: e.Name, Op: "read", Err: unix.EIO}
		}
		return nil
	})
	c := b.attach(os.Getpid())
	for range 3 {
		_, err := c.Get(t.Context(), []sample.Index{0, 1, 7, 4}, nil)
		var named *source.SampleError
		if !errors.As(err, &named) || named.Name != b.Name(7) || !errors.Is(err, unix.EIO) {
			t.Errorf("got %v", err)
		}
		if b.held() != 0 || b.Staging.SideUsed() != 0 || b.d.Held()[os.Getpid()] != 0 {
			t.Errorf("slots held %d times, %d bytes of side memory, %v leased", b.held(), b.Staging.SideUsed(), b.d.Held())
		}
	}
	if b.d.Stats.Chunks.Load() != 0 {
		t.Error("a request that failed was counted as delivered")
	}
}

// Close ends waiting and later requests with ErrClosing.
func TestClosing(t *testing.T) {
	b := newBed(t, deliver.Options{})
	b.set(4, deliver.Loading)
	b.set(5, deliver.Queued)
	b.bring(0)
	c := b.attach(os.Getpid())
	var wg sync.WaitGroup
	for _, i := range []sample.Index{4, 5} {
		wg.Go(func() {
			if _, err := c.Get(context.Background(), []sample.Index{0, i}, nil); !errors.Is(err, deliver.ErrClosing) {
				t.Errorf("sample %d: %v, want ErrClosing", i, err)
			}
		})
	}
	for b.d.Stats.Stall.Total() == 0 {
		b.Staging.Notify()
	}
	b.d.Close()
	wg.Wait()
	if _, err := c.Get(context.Background(), []sample.Index{0}, nil); !errors.Is(err, deliver.ErrClosing) {
		t.Errorf("after Close: %v", err)
	}
	if _, err := b.d.Attach(os.Getpid(), ""); !errors.Is(err, deliver.ErrClosing) {
		t.Errorf("attach after Close: %v", err)
	}
	c.Disconnected()
}

// The caller's context ends a request, and nothing stays held.
func TestCancel(t *testing.T) {
	b := newBed(t, deliver.Options{})
	b.set(4, deliver.Loading)
	b.bring(0)
	c := b.attach(os.Getpid())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := c.Get(ctx, []sample.Index{0, 4}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if b.held() != 0 {
		t.Error("slots are still held")
	}
}
