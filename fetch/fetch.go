// Package fetch is the one path for what the pass over the log did not bring: it asks an ordered list of suppliers, either Logfile
// by place and then the source, each with a deadline of its own, and hands out only bytes that have the manifest's sum.
//
// Many brings samples asked for by index into side memory; Source fills a place that somebody else has reserved; Ahead reads the
// samples that the log does not keep, in the order in which they will be needed, into the miss ring. A supplier that hangs loses
// its turn at the deadline: its buffer stays quarantined until the late answer is in. All methods may be called concurrently.
package fetch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"lcache/logfile"
	"lcache/metaindex"
	"lcache/sample"
	"lcache/source"
	"lcache/staging"
)

// Options are what a Fetcher works with.
type Options struct {
	Staging       *staging.Staging
	Locations     *metaindex.Locations
	Manifest      *sample.Manifest
	Sums          *sample.Sums
	Source        source.Source
	Logfile       func(slot int) *logfile.Logfile // nil where the slot is empty
	Recovered     func(slot int) bool             // a Logfile that this process did not begin: its failures are stale, not corrupt
	Jobs          int                             // reads from the source at once
	LogTimeout    time.Duration
	SourceTimeout time.Duration
	Logger        *slog.Logger
}

// Stats only grow.
type Stats struct {
	SourceReads, SourceBytes   atomic.Int64
	RandomReads, RandomBytes   atomic.Int64
	CorruptSamples, StaleReads atomic.Int64
	Timeouts                   atomic.Int64
}

// A Fetcher: see the package's comment.
type Fetcher struct {
	Options
	Stats Stats

	jobs chan struct{} // a token for each read from the source
	logs chan struct{} // a token for each read by place
	hung atomic.Int64  // when a read by place last met its deadline, in Unix nanoseconds
	late sync.WaitGroup
}

// ErrNoRoom says that side memory had no room for a request before its deadline.
var ErrNoRoom = errors.New("side memory is full")

// TooLargeError says that a request can never be served, and how large one may be.
type TooLargeError struct{ Need, Limit int64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("request of %d bytes is larger than side memory (%d): ask for fewer samples at once, or give the server more --memory", e.Need, e.Limit)
}

// New makes a Fetcher. It owns no goroutine until it is asked for something.
func New(o Options) *Fetcher {
	if o.Jobs <= 0 {
		o.Jobs = 16
	}
	if o.LogTimeout == 0 {
		o.LogTimeout = 5 * time.Second
	}
	if o.SourceTimeout == 0 {
		o.SourceTimeout = 30 * time.Second
	}
	return &Fetcher{Options: o, jobs: make(chan struct{}, o.Jobs), logs: make(chan struct{}, 64)}
}

// Close waits for late answers, at most until ctx ends.
func (f *Fetcher) Close(ctx context.Context) error {
	done := make(chan struct{})
	go func() { f.late.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("a read from %s has not come back: %w", f.Options.Source, ctx.Err())
	}
}

// Got is one sample that Many brought.
type Got struct {
	Data       []byte
	FromSource bool
}

// room is what a sample may take in side memory: aligned reads bring up to a page more at each end.
func room(size uint32) int { return logfile.Span(4095, int(size)) }

// Need is the side memory that a request for these samples takes.
func (f *Fetcher) Need(indices []sample.Index) (n int64) {
	for _, i := range indices {
		n += int64(room(f.Manifest.Size(i)))
	}
	return n
}

// request is one call of Many: the extents that its samples lie in, and the late reads that may still write to them.
type request struct {
	lateReads
	extentsMu sync.Mutex
	extents   []*staging.Extent
}

// Many brings samples into side memory; of each extent returned the caller gets a reference. None of the samples is empty. If
// one cannot be had at all the error names it and nothing is kept.
func (f *Fetcher) Many(ctx context.Context, indices []sample.Index) ([]*staging.Extent, []Got, error) {
	x, err := f.alloc(ctx, indices[0], f.Need(indices))
	if err != nil {
		return nil, nil, err
	}
	req := &request{extents: []*staging.Extent{x}}
	got := make([]Got, len(indices))
	errs := make([]error, len(indices))
	var wg sync.WaitGroup
	at := 0
	for i, index := range indices {
		n := room(f.Manifest.Size(index))
		buf := x.Buf[at : at+n : at+n]
		at += n
		wg.Add(1)
		go func() {
			defer wg.Done()
			got[i], errs[i] = f.one(ctx, index, buf, req)
		}()
	}
	wg.Wait()
	err = firstError(errs)
	for _, x := range req.extents {
		if req.any() { // quarantine: the memory is not used again before the last late answer
			f.Staging.Share(x)
			f.dropLater(x, &req.lateReads)
		}
		if err != nil {
			f.Staging.Drop(x)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return req.extents, got, nil
}

// Aside brings one sample from the source into side memory, without asking the log: it is known not to answer. The caller gets a
// reference to the extent.
func (f *Fetcher) Aside(ctx context.Context, index sample.Index) (*staging.Extent, []byte, error) {
	size := f.Manifest.Size(index)
	x, err := f.alloc(ctx, index, int64(size))
	if err != nil {
		return nil, nil, err
	}
	dst := x.Buf[:size:size]
	late, err := f.Source(ctx, index, dst)
	switch {
	case err == nil:
		return x, dst, nil
	case late != nil:
		f.After(late, func() { f.Staging.Drop(x) })
	default:
		f.Staging.Drop(x)
	}
	return nil, nil, err
}

func firstError(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *Fetcher) alloc(ctx context.Context, index sample.Index, need int64) (*staging.Extent, error) {
	if limit := f.Staging.SideBytes(); need > limit {
		return nil, &TooLargeError{Need: need, Limit: limit}
	}
	for {
		changed := f.Staging.Changed()
		if x, ok := f.Staging.Alloc(staging.Side, index, int(need)); ok {
			return x, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %d bytes of %d are taken and %d more are needed: %w", ErrNoRoom, f.Staging.SideUsed(), f.Staging.SideBytes(), need, ctx.Err())
		}
	}
}

// one asks the suppliers in order. Where a late read may still write to buf, the source's bytes go to memory of their own.
func (f *Fetcher) one(ctx context.Context, index sample.Index, buf []byte, req *request) (Got, error) {
	if data, ok := f.fromLog(ctx, index, buf, &req.lateReads); ok {
		return Got{Data: data}, nil
	}
	if err := ctx.Err(); err != nil {
		return Got{}, f.waited(index, "the log", err)
	}
	size := f.Manifest.Size(index)
	if req.has(buf) {
		x, err := f.alloc(ctx, index, int64(size))
		if err != nil {
			return Got{}, err
		}
		req.extentsMu.Lock()
		req.extents = append(req.extents, x)
		req.extentsMu.Unlock()
		buf = x.Buf
	}
	dst := buf[:size:size]
	late, err := f.Source(ctx, index, dst)
	if late != nil {
		req.add(buf, late)
	}
	return Got{Data: dst, FromSource: true}, err
}

// fromLog reads a sample by its place. A sum that does not match is looked up again: only an unchanged place is corruption, and
// that is believed after a second read.
func (f *Fetcher) fromLog(ctx context.Context, index sample.Index, buf []byte, q *lateReads) ([]byte, bool) {
	f.logs <- struct{}{}
	defer func() { <-f.logs }()
	failed := 0
	for ctx.Err() == nil && !f.hangs() {
		loc := f.Locations.Get(index)
		slot, seg, off, ok := f.Locations.Split(loc)
		if !ok {
			return nil, false
		}
		lf := f.Logfile(slot)
		sum, known := f.Sums.Get(index)
		if lf == nil || !known {
			return nil, false
		}
		n := int(f.Manifest.Size(index))
		data, err := f.readPlace(ctx, lf, seg, off, n, buf, q)
		if err == nil && sample.Sum(data) == sum {
			f.Stats.RandomReads.Add(1)
			f.Stats.RandomBytes.Add(int64(n))
			return data, true
		}
		if q.has(buf) { // a late answer may still write to it, so nothing else may, wherever the sample is by now
			return nil, false
		}
		if f.Locations.Get(index) != loc {
			continue // it moved while it was read
		}
		if failed++; failed < 2 {
			continue
		}
		f.Bad(index, loc, slot, err)
		return nil, false
	}
	return nil, false
}

func (f *Fetcher) readPlace(ctx context.Context, lf *logfile.Logfile, seg int, off uint64, n int, buf []byte, q *lateReads) ([]byte, error) {
	mine, cancel := context.WithTimeout(ctx, f.LogTimeout)
	defer cancel()
	data, err := lf.Read(mine, seg, off, n, buf)
	var pending *logfile.PendingError
	if errors.As(err, &pending) {
		f.Stats.Timeouts.Add(1)
		q.add(buf, pending.Done)
		if ctx.Err() == nil {
			f.hung.Store(time.Now().UnixNano())
		}
	}
	return data, err
}

// hangs reports whether a read from the log has met its deadline just now. For as long again the log is not asked: a request for
// many samples would wait for each of them in turn.
func (f *Fetcher) hangs() bool {
	at := f.hung.Load()
	return at != 0 && time.Duration(time.Now().UnixNano()-at) < f.LogTimeout
}

// Bad counts a sample whose place does not give its bytes, and makes it a miss. A block that was lost or freed is no damage.
func (f *Fetcher) Bad(index sample.Index, loc metaindex.Loc, slot int, err error) {
	if !f.Locations.Clear(index, loc) || errors.Is(err, logfile.ErrHole) || errors.Is(err, logfile.ErrFreed) {
		return
	}
	if f.Recovered(slot) {
		f.Stats.StaleReads.Add(1)
		return
	}
	f.Stats.CorruptSamples.Add(1)
	f.Logger.Warn("a sample in the log is not what was written; it is read from the source again", "sample", index, "error", err)
}

// Source reads a sample from the source into dst, which has its size, and checks or records its sum. If the deadline comes first,
// late is closed when dst is no longer written to.
func (f *Fetcher) Source(ctx context.Context, index sample.Index, dst []byte) (late <-chan struct{}, err error) {
	entry, err := f.Manifest.Entry(index)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, f.SourceTimeout)
	select {
	case f.jobs <- struct{}{}:
	case <-ctx.Done():
		cancel()
		return nil, f.waited(index, f.Options.Source.String(), ctx.Err())
	}
	done := make(chan struct{})
	var readErr error
	f.late.Add(1)
	go func() {
		defer f.late.Done()
		defer cancel()
		readErr = f.Options.Source.Read(ctx, entry, dst)
		<-f.jobs
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		select {
		case <-done: // a source that honours ctx is back at once
		case <-time.After(50 * time.Millisecond):
			f.Stats.Timeouts.Add(1)
			return done, f.waited(index, f.Options.Source.String(), ctx.Err())
		}
	}
	if readErr != nil {
		return nil, readErr
	}
	f.Stats.SourceReads.Add(1)
	f.Stats.SourceBytes.Add(int64(len(dst)))
	sum := sample.Sum(dst)
	if want, known := f.Sums.Get(index); known && want != sum {
		return nil, &source.SampleError{Name: entry.Name, Op: "check", Err: fmt.Errorf("%w: its bytes differ from the ones ingested, though size and modification time agree; run lcache ingest --relist", source.ErrChanged)}
	} else if !known {
		f.Sums.Set(index, sum)
	}
	return nil, nil
}

func (f *Fetcher) waited(index sample.Index, on string, err error) error {
	name, nameErr := f.Manifest.Name(index)
	if nameErr != nil {
		name = fmt.Sprintf("sample %d", index)
	}
	return &source.SampleError{Name: name, Op: "read", Err: fmt.Errorf("waited for %s: %w", on, err)}
}
