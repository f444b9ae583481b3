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
	// Chunk is the content of a chunk; io.EOF past the end of a rank's epoch.
	Chunk func(at Position) ([]sample.Index, error)
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
// the source.
type Delivery struct{ Samples, InWindow, Misses int }

// Options are what a Deliver works with.
type Options struct {
	Staging  *staging.Staging
	Fetcher  *fetch.Fetcher
	Manifest *sample.Manifest
	Window   Window
	Timeout  time.Duration // of a request, 60 s
	Patience time.Duration // that a scheduled request waits for a slot, 1 s
	Logger   *slog.Logger
}

// Stats only grow.
type Stats struct {
	Chunks, Samples, Bytes atomic.Int64
	Hits, Misses           atomic.Int64
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
	indices, err := c.d.Window.Chunk(at)
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

// mostPatience is how often a request is told to wait on for a slot before it is served by index, whatever the window says.
const mostPatience = 10

// collected is a request on its way: what was found so far, and what keeps it there.
type collected struct {
	indices []sample.Index
	have    []bool // held, or empty
	there   []bool // in staging when it was last looked up
	addr    []staging.Address
	hold    staging.Hold
	fetched int // brought by index
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
	d.Window.Delivered(at, Delivery{Samples: len(indices), InWindow: len(indices) - r.fetched, Misses: misses})
	return b, nil
}

// collect takes what is in staging, fetches what is not on its way, and waits for the rest: for a slot only as long as patience
// lasts, so that no wait depends on another rank's progress, and for what is being read for a third of the request's time: a disk
// that hangs may hold up the pass, but the log's other places and the source can still be asked.
func (d *Deliver) collect(ctx context.Context, r *collected, at *Position) error {
	coming := make([]Coming, len(r.indices))
	var patience *time.Timer
	var hungry <-chan time.Time
	var slow <-chan time.Time
	starved := 0
	stalled, hopeless := false, false
	defer func() {
		if patience != nil {
			patience.Stop()
		}
		if stalled {
			d.Stats.Stall.Leave()
		}
	}()
	for {
		changed := d.Staging.Changed()
		if d.Staging.Take(&r.hold, r.indices, r.have, r.there, r.addr) == 0 {
			return nil
		}
		if !stalled {
			stalled = true
			d.Stats.Stall.Enter()
			slow = time.After(d.Timeout / 3)
		}
		d.Window.Coming(at, r.indices, r.there, coming)
		var now []int
		queued := false
		for i := range r.indices {
			switch {
			case r.there[i]:
			case coming[i] == Gone || coming[i] == Queued && starved > mostPatience || coming[i] == Loading && hopeless:
				now = append(now, i)
			case coming[i] == Queued:
				queued = true
			}
		}
		if len(now) > 0 {
			if d.Staging.Take(&r.hold, r.indices, r.have, r.there, r.addr) == 0 {
				return nil
			}
			if err := d.fetch(ctx, r, now); err != nil { // less what came between the two looks
				return err
			}
			continue
		}
		if queued && hungry == nil {
			patience = time.NewTimer(d.Patience)
			hungry = patience.C
		}
		select {
		case <-changed:
		case <-hungry:
			if queued { // and not meanwhile being read
				starved++
				d.Window.Starved(at)
			}
			patience.Reset(d.Patience)
		case <-slow:
			hopeless = true
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// fetch brings samples by index into side memory.
func (d *Deliver) fetch(ctx context.Context, r *collected, which []int) error {
	var want []sample.Index
	var at []int
	for _, i := range which {
		if !r.there[i] {
			want, at = append(want, r.indices[i]), append(at, i)
		}
	}
	if len(want) == 0 {
		return nil
	}
	extents, got, err := d.Fetcher.Many(ctx, want)
	if err != nil {
		return err
	}
	for _, x := range extents {
		r.hold.Add(x)
	}
	for k, i := range at {
		r.have[i] = true
		r.addr[i] = staging.Address{Offset: d.Staging.OffsetOf(got[k].Data), FromSource: got[k].FromSource}
	}
	r.fetched += len(want)
	return nil
}

func (d *Deliver) columns(r *collected) *Batch {
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

// A Clock adds up the wall time during which at least one Enter was not yet followed by its Leave.
type Clock struct {
	mu    sync.Mutex // guards the fields that follow
	n     int
	since time.Time
	total time.Duration
}

// Enter begins a wait.
func (c *Clock) Enter() {
	c.mu.Lock()
	if c.n == 0 {
		c.since = time.Now()
	}
	c.n++
	c.mu.Unlock()
}

// Leave ends one.
func (c *Clock) Leave() {
	c.mu.Lock()
	if c.n--; c.n == 0 {
		c.total += time.Since(c.since)
	}
	c.mu.Unlock()
}

// Total is the time so far.
func (c *Clock) Total() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n > 0 {
		return c.total + time.Since(c.since)
	}
	return c.total
}
