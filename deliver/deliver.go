// Package deliver hands chunks to the processes attached here: it collects a chunk's samples in staging, waits for those that the
// pass is about to bring, has the others fetched by index, and answers with columns of offsets into the shared memory.
//
// A Client is one session of one process. What it was given it holds by leases, which end by Release or with the process, never
// with a connection alone. The Window, which the engine supplies, says what an epoch's chunks are and what is on its way; deliver
// itself knows nothing of Logfiles or of the order in which they are read. All methods may be called concurrently.
package deliver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"lcache/fetch"
	"lcache/sample"
	"lcache/staging"
)

// A Position names a chunk.
type Position struct{ Epoch, Rank, Batch int }

// Coming says what may be expected of a sample that staging lacks.
type Coming uint8

const (
	Gone    Coming = iota // not on its way: fetch it by index
	Loading               // being read
	Queued                // its segment is next, but no slot is free
)

// Window is what the engine knows and deliver asks. at is nil for a request without a position.
type Window struct {
	// Chunk is what a position means to a session; io.EOF past the end of a rank's epoch.
	Chunk func(session string, at Position) ([]sample.Index, error)
	// Asked is told of a request before it is served, with the process that asks.
	Asked func(at *Position, indices []sample.Index, pid int)
	// Coming fills coming[i] for the samples that are not there yet.
	Coming func(at *Position, indices []sample.Index, have []bool, coming []Coming)
	// Starved is told that a scheduled request has waited for a slot; it makes room if it can.
	Starved func(at *Position)
	// Delivered is told of what was handed out.
	Delivered func(at *Position, d Delivery)
}

// A Delivery counts the samples of one answer: InWindow lay in staging or came there while the request waited, Misses came from
// the source, and Skipped were asked for beside them and can't be had.
type Delivery struct{ Samples, InWindow, Misses, Skipped int }

// Options are what a Deliver works with.
type Options struct {
	Staging  *staging.Staging
	Fetcher  *fetch.Fetcher
	Manifest *sample.Manifest
	Window   Window
	Timeout  time.Duration // of a request, 60 s
	Patience time.Duration // that a scheduled request waits for a slot, 1 s
	Logger   *slog.Logger
	// SkipErrors leaves samples that can't be had out of their answers, which are shorter then, instead of ending the request. Each is
	// counted, and logged once.
	SkipErrors bool
}

// Stats only grow.
type Stats struct {
	Chunks, Samples, Bytes atomic.Int64
	Hits, Misses           atomic.Int64
	Skipped                atomic.Int64
	Stall                  Clock // wall time with at least one request waiting
}

// A Batch is what a request is answered with: columns, one entry a sample. Offsets are into the shared memory. Pinned is how many
// bytes of it the lease keeps from other use: in side memory whole pages, which is more than the samples' own.
type Batch struct {
	Lease   uint64
	Pinned  int64
	Offsets []uint64
	Lengths []uint32
	Indices []uint32
	Labels  []int32
}

// ErrClosing is the answer once the server stops.
var ErrClosing = errors.New("the server is stopping")

// An ArgumentError is a request that makes no sense for this dataset or job.
type ArgumentError struct{ Reason string }

func (e *ArgumentError) Error() string { return e.Reason }

// A TimeoutError names what a request waited for.
type TimeoutError struct {
	Waited time.Duration
	For    string
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("waited %.0f s for %s", e.Waited.Seconds(), e.For)
}

// A Deliver serves all clients of one dataset.
type Deliver struct {
	Options
	Stats Stats

	watch *watcher
	skips skips

	mu        sync.Mutex // guards the fields that follow
	clients   map[string]*Client
	nextLease uint64
	closed    bool
	ctx       context.Context // ends at Close
	cancel    context.CancelFunc
	requests  sync.WaitGroup
}

// New makes a Deliver without clients.
func New(o Options) (*Deliver, error) {
	if o.Timeout == 0 {
		o.Timeout = 60 * time.Second
	}
	if o.Patience == 0 {
		o.Patience = time.Second
	}
	d := &Deliver{Options: o, clients: map[string]*Client{}}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	var err error
	d.watch, err = newWatcher(d.gone)
	return d, err
}

// Close ends all requests, which get ErrClosing, and joins them.
func (d *Deliver) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.cancel()
	d.requests.Wait()
	d.watch.close()
}

// enter begins a request.
func (d *Deliver) enter(ctx context.Context) (context.Context, func(), error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, nil, ErrClosing
	}
	d.requests.Add(1)
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	stop := context.AfterFunc(d.ctx, cancel)
	return ctx, func() { stop(); cancel(); d.requests.Done() }, nil
}

// Chunk delivers a chunk of an epoch; io.EOF means that the rank has no such batch.
func (c *Client) Chunk(ctx context.Context, epoch, rank, batch int) (*Batch, error) {
	ctx, leave, err := c.d.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	at := Position{epoch, rank, batch}
	indices, err := c.d.Window.Chunk(c.Token, at)
	if err != nil {
		return nil, err
	}
	return c.serve(ctx, indices, &at)
}

// Get delivers any indices, at any time. at is a hint that only speed depends on; nil is allowed.
func (c *Client) Get(ctx context.Context, indices []sample.Index, at *Position) (*Batch, error) {
	ctx, leave, err := c.d.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	for i, index := range indices {
		if int(index) >= c.d.Manifest.Len() {
			return nil, &ArgumentError{fmt.Sprintf("index %d at position %d is not in the dataset of %d samples", index, i, c.d.Manifest.Len())}
		}
	}
	return c.serve(ctx, indices, at)
}

func (c *Client) serve(ctx context.Context, indices []sample.Index, at *Position) (*Batch, error) {
	d := c.d
	d.Window.Asked(at, indices, c.Pid)
	r := &collected{indices: indices, have: make([]bool, len(indices)), there: make([]bool, len(indices)), addr: make([]staging.Address, len(indices))}
	for i, index := range indices {
		r.have[i] = d.Manifest.Size(index) == 0 // nothing to bring: always a hit
	}
	if err := d.collect(ctx, r, at); err != nil {
		d.Staging.Release(&r.hold)
		return nil, d.explain(ctx, err, at)
	}
	b := d.columns(r)
	if !c.lease(b, &r.hold) {
		d.Staging.Release(&r.hold)
		return nil, ErrClosing
	}
	misses := d.count(r, b)
	d.Window.Delivered(at, Delivery{Samples: len(b.Indices), InWindow: len(indices) - r.fetched, Misses: misses, Skipped: len(indices) - len(b.Indices)})
	return b, nil
}

func (d *Deliver) columns(r *collected) *Batch {
	r.compact()
	n := len(r.indices)
	b := &Batch{Offsets: make([]uint64, n), Lengths: make([]uint32, n), Indices: r.indices, Labels: make([]int32, n)}
	for i, index := range r.indices {
		b.Offsets[i] = r.addr[i].Offset
		b.Lengths[i] = d.Manifest.Size(index)
		b.Labels[i] = d.Manifest.Label(index)
		b.Pinned += int64(b.Lengths[i])
	}
	b.Pinned = max(b.Pinned, r.hold.ExtentBytes())
	return b
}

func (d *Deliver) count(r *collected, b *Batch) (misses int) {
	bytes := int64(0)
	for i := range r.indices {
		bytes += int64(b.Lengths[i])
		if r.addr[i].FromSource {
			misses++
		}
	}
	d.Stats.Chunks.Add(1)
	d.Stats.Samples.Add(int64(len(r.indices)))
	d.Stats.Bytes.Add(bytes)
	d.Stats.Misses.Add(int64(misses))
	d.Stats.Hits.Add(int64(len(r.indices) - misses))
	return misses
}

// explain turns what ended a request into an error that says what it waited for.
func (d *Deliver) explain(ctx context.Context, err error, at *Position) error {
	if d.ctx.Err() != nil {
		return ErrClosing
	}
	var large *fetch.TooLargeError
	switch {
	case errors.As(err, &large):
		return &ArgumentError{large.Error()}
	case errors.Is(err, fetch.ErrNoRoom):
		pid, held := d.mostHeld()
		return &TimeoutError{d.Timeout, fmt.Sprintf("room in side memory: %v; process %d holds %d bytes of batches that it has not released", err, pid, held)}
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil:
		what := "samples by index"
		if at != nil {
			what = fmt.Sprintf("epoch %d rank %d batch %d", at.Epoch, at.Rank, at.Batch)
		}
		return &TimeoutError{d.Timeout, fmt.Sprintf("%s: %v", what, err)}
	}
	return err
}
