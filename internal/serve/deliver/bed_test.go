package deliver_test

import (
	"context"
	"io"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/internal/disk/offheap"
	"lcache/internal/serve/deliver"
	"lcache/internal/serve/fetch"
	"lcache/internal/serve/fetch/fetchtest"
	"lcache/internal/serve/staging"
	"lcache/internal/testenv"
	"lcache/logfile"
	"lcache/sample"
)

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(m, testenv.Count{What: "bytes outside the heap", Now: offheap.Mapped}, testenv.Count{What: "registered bytes", Now: blockio.Registered}))
}

const (
	soon     = 20 * time.Millisecond
	slotSize = 1 << 16
)

// bed is a Deliver over a small cache. The test moves its window by hand.
type bed struct {
	*fetchtest.Bed
	t  *testing.T
	d  *deliver.Deliver
	io *blockio.IO

	mu        sync.Mutex // guards the fields that follow
	chunks    map[deliver.Position][]sample.Index
	requested map[deliver.Position][]sample.Index   // positions at which other samples are served
	coming    map[sample.Index]deliver.Availability // samples that are not listed are Gone
	asked     []int                                 // pids
	looks     map[sample.Index]int                  // number of calls of Expect, by the first sample of the request
	delivered []deliver.Delivery
	starved   func(n int) // called at the n-th lost patience
	starves   int
}

// sizes has the size of each sample. Sample 3 is empty.
var sizes = []uint32{100, 5000, 1, 0, 777, 64, 3000, 9000, 100, 100, 100, 100}

func newBed(t *testing.T, o deliver.Options) *bed {
	t.Helper()
	disk, err := blockio.Open(blockio.Options{Engine: os.Getenv("LCACHE_IO"), Direct: os.Getenv("LCACHE_DIRECT")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { disk.Close() })
	b := &bed{t: t, looks: map[sample.Index]int{}, chunks: map[deliver.Position][]sample.Index{}, coming: map[sample.Index]deliver.Availability{}}
	b.Bed = fetchtest.New(t, fetchtest.Options{Sizes: sizes, Log: logfile.Options{IO: disk}, Fetch: fetch.Options{SourceTimeout: time.Hour},
		Staging: staging.Options{Slots: 2, SlotBytes: slotSize, SideBytes: 1 << 17, SpareBytes: 1 << 14}})
	b.io = disk
	o.Staging, o.Fetcher, o.Manifest = b.Staging, b.Fetcher, b.Manifest
	if o.Logger == nil {
		o.Logger = b.Logger
	}
	o.Window = window{b}
	if b.d, err = deliver.New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.d.Close)
	return b
}

// plan is the window's part of a request.
type plan struct {
	*bed
	at *deliver.Position
}

// window makes the bed a deliver.Window.
type window struct{ *bed }

func (b window) Begin(_ context.Context, q *deliver.Request) (deliver.Plan, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case q.ByPosition:
		c, ok := b.chunks[*q.At]
		if !ok {
			return nil, io.EOF
		}
		q.Indices, q.Requested = c, b.requested[*q.At]
	case q.Takes && q.At != nil && b.requested[*q.At] != nil && slices.Equal(b.requested[*q.At], q.Indices):
		q.Indices, q.Requested = b.chunks[*q.At], q.Indices
	}
	if !q.Again {
		b.asked = append(b.asked, q.Pid)
	}
	if q.At == nil || b.wrong(*q.At) {
		return plan{b.bed, nil}, nil
	}
	q.Placed = true
	return plan{b.bed, q.At}, nil
}

func (b plan) Expect(indices []sample.Index, have []bool, coming []deliver.Availability) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.looks[indices[0]]++
	b.looked(b.at)
	for i, index := range indices {
		if !have[i] {
			coming[i] = b.coming[index]
		}
	}
}

func (b plan) LostPatience([]sample.Index, []bool) {
	b.mu.Lock()
	b.starves++
	n, f := b.starves, b.starved
	b.mu.Unlock()
	if f != nil {
		f(n)
	}
}

func (b plan) Done(d deliver.Delivery) {
	d.Indices, d.Addresses = nil, nil // the samples are compared with the client's
	b.mu.Lock()
	defer b.mu.Unlock()
	b.looked(b.at)
	b.delivered = append(b.delivered, d)
}

// wrong reports whether the schedule lacks a position.
func (b *bed) wrong(at deliver.Position) bool { return at.Epoch >= 1000 }

// looked fails the test if the window gets a position that should not be trusted. b.mu is held.
func (b *bed) looked(at *deliver.Position) {
	if at != nil && b.wrong(*at) {
		b.t.Errorf("%+v is not believed, and was handed on", *at)
	}
}

func (b *bed) set(i sample.Index, c deliver.Availability) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.coming[i] = c
}

// looksAt returns the number of calls of Expect for requests that begin with a sample.
func (b *bed) looksAt(first sample.Index) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.looks[first]
}

// bring loads samples into a slot, as the scan does.
func (b *bed) bring(indices ...sample.Index) (slot int) {
	b.t.Helper()
	slot, ok := b.Staging.Acquire(staging.Segment{Log: 1, Segment: int(indices[0])})
	if !ok {
		b.t.Fatal("no free slot")
	}
	at := 0
	for _, i := range indices {
		copy(b.Staging.Slot(slot)[at:], b.Content(i))
		from := sample.FromLog
		if i%2 == 1 {
			from = sample.FromSource
		}
		b.Staging.Publish(i, b.Staging.OffsetOf(b.Staging.Slot(slot))+uint64(at), from)
		at += (int(sizes[i]) + fetchtest.Align - 1) / fetchtest.Align * fetchtest.Align
	}
	b.Staging.Ready(slot)
	return slot
}

func (b *bed) attach(pid int) *deliver.Client {
	b.t.Helper()
	c, err := b.d.Attach(pid, "")
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

// is compares a batch's columns with the dataset.
func (b *bed) is(batch *deliver.Batch, want ...sample.Index) {
	b.t.Helper()
	if !slices.Equal(batch.Indices, want) || len(batch.Offsets) != len(want) || len(batch.Lengths) != len(want) || len(batch.Labels) != len(want) {
		b.t.Fatalf("got %+v, want %v", batch, want)
	}
	for k, i := range want {
		if batch.Lengths[k] != sizes[i] || batch.Labels[k] != b.Manifest.Label(i) {
			b.t.Errorf("sample %d: %d bytes, label %d", i, batch.Lengths[k], batch.Labels[k])
		}
		if sizes[i] > 0 {
			b.Is(i, b.Staging.Slice(batch.Offsets[k], int(sizes[i])))
		}
	}
}

// held returns the number of Holds on slots.
func (b *bed) held() (n int) {
	b.Staging.Holders(func(_ staging.Segment, refs int) { n += refs })
	return n
}

// untilFree waits until no lease holds memory. Only the test's deadline limits the wait.
func (b *bed) untilFree() {
	for {
		changed := b.Staging.Changed()
		if b.held() == 0 && b.Staging.SideUsed() == 0 {
			return
		}
		<-changed
	}
}

// get requests samples by index, without a position.
func (b *bed) get(c *deliver.Client, indices ...sample.Index) *deliver.Batch {
	b.t.Helper()
	batch, err := c.Get(context.Background(), indices, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	b.is(batch, indices...)
	return batch
}

// origins returns Delivery.From for given numbers of samples from the log and from the source.
func origins(log, source int) [sample.Origins]int {
	return [sample.Origins]int{sample.FromLog: log, sample.FromSource: source}
}
