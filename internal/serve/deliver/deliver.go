// Package deliver delivers chunks to the attached processes. It collects a chunk's samples in staging, waits for
// samples that the scan or the prefetcher is about to load, reads the others by index, and answers with columns of
// offsets into shared memory.
//
// A Client is one session of one process. It holds its batches by leases. A lease ends with Release or with the
// process, not with a connection. The engine provides the Window, which knows an epoch's chunks and the samples in
// flight. Package deliver knows nothing of Logfiles or of the order in which they are read. All methods may be called
// concurrently.
//
// # What waits for what
//
// Leases may hold all slots, all of the miss ring and all side memory, for as long as processes live. The scan and
// the prefetcher wait for them. A request waits for them until its patience runs out; then its samples are lent in
// parts. All other waits have an order: the holder of one resource waits only for resources further down this list,
// so deadlock is impossible.
//
//  1. The prefetch window: samples that a producer loads. A request that waits for it holds nothing.
//  2. A slot, for the scan; a piece of the miss ring, for the prefetcher.
//  3. Tokens of the scan for blocks in flight, and buffers for blocks that are being read, which one load at a time takes.
//  4. Side memory: all that a request needs, in one piece and in the order of arrival. Or the spare part, in the order of arrival; it is
//     freed without a client's help. The scan takes free side memory, else the spare part. No request waits for a second piece: if
//     the kernel may still write to the first one, the request gives everything back and starts over.
//  5. A token to read the log, or one of the reads of the source.
//  6. Memory for compressed bytes that are unpacked into side memory or the ring.
//  7. Write buffers of the log and blocks of its arena. The tokens of 3 bound the number of blocks in use before the oldest is freed.
//  8. The disk and the source, each read and append with a deadline.
//
// No mutex is held during any of these waits, with two exceptions, both for data on its way into the log: the scan's buffer for large
// samples, and a segment's lock. Their holders wait only for resources further down.
package deliver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"lcache/chunker"
	"lcache/internal/serve/fetch"
	"lcache/internal/serve/staging"
	"lcache/sample"
)

// Position names a chunk.
type Position = chunker.Position

// Options configure a Deliver.
type Options struct {
	Staging   *staging.Staging
	Fetcher   *fetch.Fetcher
	Manifest  *sample.Manifest
	Window    Window
	Timeout   time.Duration // of a request, 60 s
	Patience  time.Duration // how long a scheduled request waits for a slot, and a copying client's request for room; 1 s
	LeaseTime time.Duration // the duration of a temporary lease, 1 s
	Logger    *slog.Logger
	// SkipErrors leaves samples that can't be read out of the answers, instead of ending the request. The answers are
	// then shorter. Each such sample is counted, and logged once.
	SkipErrors bool
	// RequestBytes is the maximum side memory for a request of a client that copies. A larger request is lent piece by
	// piece. 0: the size of side memory.
	RequestBytes int64
}

// Stats only grow.
type Stats struct {
	Chunks, Samples, Bytes atomic.Int64
	From                   [sample.Origins]atomic.Int64 // of Samples
	Skipped                atomic.Int64
	Prefetched             atomic.Int64 // samples in memory when they were requested
	Ready                  atomic.Int64 // chunks whose samples were all in memory when they were requested
	Reads                  fetch.Counts // reads for this job
	Stall                  Clock        // wall time with at least one request waiting
	Waits                  WaitTimes    // of the requests of all jobs; only Deliver.Stats has them
}

// Misses returns how many samples came from the source.
func (s *Stats) Misses() int64 { return s.From[sample.FromSource].Load() }

// Hits returns how many samples came from elsewhere: memory, the log or a peer.
func (s *Stats) Hits() (n int64) {
	for from := range s.From {
		if sample.Origin(from) != sample.FromSource {
			n += s.From[from].Load()
		}
	}
	return n
}

// A Batch is the answer to a request: columns, with one entry for each sample. Offsets are into shared memory. Pinned is the number of
// bytes of shared memory that the lease keeps from reuse. In side memory it counts whole pages, which is more than the samples' bytes.
type Batch struct {
	Lease   uint64
	Pinned  int64
	Offsets []uint64
	Lengths []uint32
	Indices []uint32
	Labels  []int32

	Requested []uint32 // the requested samples, if others were served in their place; nil: the same
}

// bytes returns the sum of the samples' lengths.
func (b *Batch) bytes() (n int64) {
	for _, length := range b.Lengths {
		n += int64(length)
	}
	return n
}

// ErrClosing is the error of requests after the server has begun to stop.
var ErrClosing = errors.New("the server is stopping")

// An ArgumentError means that a request is wrong for this dataset or job.
type ArgumentError struct {
	Reason   string
	TooLarge bool // too large for the memory or the frame of one answer: a request for fewer samples may fit
}

func (e *ArgumentError) Error() string { return e.Reason }

// A TimeoutError means that a request's deadline passed. For names the awaited resource.
type TimeoutError struct {
	Waited time.Duration
	For    string
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("waited %.0f s for %s", e.Waited.Seconds(), e.For)
}

// A Deliver serves all clients of one dataset.
type Deliver struct {
	o     Options
	Stats Stats

	watch *watcher
	skips skips

	mu        sync.Mutex // guards the fields that follow
	clients   map[string]*Client
	jobs      map[int]*Stats // by number
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
	if o.LeaseTime == 0 {
		o.LeaseTime = time.Second
	}
	d := &Deliver{o: o, clients: map[string]*Client{}, jobs: map[int]*Stats{}}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	var err error
	d.watch, err = newWatcher(d.gone)
	return d, err
}

// Timeout returns the maximum duration of a request.
func (d *Deliver) Timeout() time.Duration { return d.o.Timeout }

// Patience returns how long a scheduled request waits for a slot.
func (d *Deliver) Patience() time.Duration { return d.o.Patience }

// Close ends all requests, which get ErrClosing, and joins them.
func (d *Deliver) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.cancel()
	d.requests.Wait()
	d.endAllTemporary()
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
	ctx, cancel := context.WithTimeout(ctx, d.o.Timeout)
	stop := context.AfterFunc(d.ctx, cancel)
	return ctx, func() { stop(); cancel(); d.requests.Done() }, nil
}

// Chunk is ChunkAt for the job with the server's own recipe.
func (c *Client) Chunk(ctx context.Context, epoch, rank, batch int) (*Batch, error) {
	return c.ChunkAt(ctx, Position{Epoch: epoch, Rank: rank, Batch: batch})
}

// ChunkAt delivers the chunk at a position. io.EOF means that the rank has no such batch.
func (c *Client) ChunkAt(ctx context.Context, at Position) (*Batch, error) {
	return c.serve(ctx, &Request{At: &at, ByPosition: true})
}

// Get delivers any indices at any time. at is a hint, and may be nil; a negative rank names only the job. Usually the
// hint affects only speed. In a job with substitutes, it matters: if the client takes substitutes and names the
// samples of that position, it gets the result of ChunkAt.
func (c *Client) Get(ctx context.Context, indices []sample.Index, at *Position) (*Batch, error) {
	if err := c.d.known(indices); err != nil {
		return nil, err
	}
	return c.serve(ctx, &Request{At: at, Indices: indices})
}

// TakesOthers notes that this session's process takes substitutes for the samples that it names, if its job allows them. Other processes get the named samples, by index.
func (c *Client) TakesOthers() {
	c.d.mu.Lock()
	c.others = true
	c.d.mu.Unlock()
}

// begin completes a request and begins it.
func (c *Client) begin(ctx context.Context, q *Request) (Plan, error) {
	q.Pid, q.Session = c.Pid, c.Token
	if !q.ByPosition {
		c.d.mu.Lock()
		q.Takes = c.others
		c.d.mu.Unlock()
	}
	plan, err := c.d.o.Window.Begin(ctx, q)
	if err != nil {
		return nil, c.d.explain(ctx, err, q.At)
	}
	return plan, nil
}

// known returns an error for indices that the dataset does not have.
func (d *Deliver) known(indices []sample.Index) error {
	for i, index := range indices {
		if int(index) >= d.o.Manifest.Len() {
			return &ArgumentError{Reason: fmt.Sprintf("index %d at position %d is not in the dataset of %d samples", index, i, d.o.Manifest.Len())}
		}
	}
	return nil
}

func (c *Client) serve(ctx context.Context, q *Request) (*Batch, error) {
	d, began := c.d, time.Now()
	ctx, leave, err := d.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	plan, err := c.begin(ctx, q)
	if err != nil {
		return nil, err
	}
	r := d.newCollected(q, plan)
	if err := d.collect(ctx, r, c.waitSide); err != nil {
		return nil, d.explain(ctx, err, q.At)
	}
	b := d.columns(r)
	if err := c.lease(b, &r.hold, q.place()); err != nil {
		d.o.Staging.Release(&r.hold)
		return nil, err
	}
	d.Stats.Waits.observe(time.Since(began))
	n := r.delivery(b)
	n.Ready = !r.stalled
	d.delivered(r.stats, plan, n, b.bytes())
	return b, nil
}

// delivery counts the samples of an answer.
func (r *collected) delivery(b *Batch) Delivery {
	asked := len(r.have)
	n := Delivery{Samples: len(b.Indices), Ahead: asked - r.fetched, Skipped: asked - len(b.Indices), Prefetched: r.prefetched, Indices: b.Indices, Requested: b.Requested, Addresses: r.addr}
	for i := range b.Indices {
		n.From[r.addr[i].From]++
	}
	return n
}

// delivered counts a delivery and reports it to the window.
func (d *Deliver) delivered(of *Stats, plan Plan, n Delivery, bytes int64) {
	d.Stats.count(n, bytes)
	of.count(n, bytes)
	of.Skipped.Add(int64(n.Skipped)) // the server's total was already incremented when the sample was left out
	plan.Done(n)
}

func (s *Stats) count(n Delivery, bytes int64) {
	if !n.Part {
		s.Chunks.Add(1)
	}
	if n.Ready {
		s.Ready.Add(1)
	}
	s.Prefetched.Add(int64(n.Prefetched))
	s.Samples.Add(int64(n.Samples))
	s.Bytes.Add(bytes)
	for from, samples := range n.From {
		if samples > 0 {
			s.From[from].Add(int64(samples))
		}
	}
}

// StatsOf returns the counters of the job with a number.
func (d *Deliver) StatsOf(number int) *Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.jobs[number]
	if s == nil {
		s = &Stats{}
		d.jobs[number] = s
	}
	return s
}

// Forget drops the counters of a job.
func (d *Deliver) Forget(job int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.jobs, job)
}

func (d *Deliver) columns(r *collected) *Batch {
	r.compact()
	n := len(r.indices)
	b := &Batch{Offsets: make([]uint64, n), Lengths: make([]uint32, n), Indices: r.indices, Labels: make([]int32, n), Requested: r.requested}
	for i, index := range r.indices {
		b.Offsets[i] = r.addr[i].Offset
		b.Lengths[i] = d.o.Manifest.Size(index)
		b.Labels[i] = d.o.Manifest.Label(index)
	}
	b.Pinned = max(b.bytes(), r.hold.ExtentBytes())
	return b
}

// explain adds the awaited resource to a request's error.
func (d *Deliver) explain(ctx context.Context, err error, at *Position) error {
	if d.ctx.Err() != nil {
		return ErrClosing
	}
	var large *fetch.TooLargeError
	var noRoom *RoomError
	switch {
	case errors.As(err, &noRoom):
		return err
	case errors.As(err, &large):
		return &ArgumentError{Reason: large.Error(), TooLarge: true}
	case errors.Is(err, fetch.ErrNoRoom) && !errors.Is(err, context.Canceled):
		return &TimeoutError{d.o.Timeout, fmt.Sprintf("room in side memory: %v; %s", err, d.holder())}
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil:
		what := "samples by index"
		if at != nil && at.Rank >= 0 {
			what = fmt.Sprintf("epoch %d rank %d batch %d", at.Epoch, at.Rank, at.Batch)
		}
		return &TimeoutError{d.o.Timeout, fmt.Sprintf("%s: %v", what, err)}
	}
	return err
}
