// Package fetch reads samples that no producer has loaded. It tries a list of suppliers in order (memory, then either Logfile with random
// reads, then peers on other machines, then the source), each with its own deadline, and returns only bytes that match the manifest's checksum.
//
// FetchAll loads samples that are requested by index into side memory. Source and FromLog fill memory that the caller has reserved. If
// a supplier does not answer by its deadline, the next one is tried. A quarantined device is skipped at once. A buffer that a late
// answer may still write to is not reused before that answer. All methods may be called concurrently.
package fetch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"lcache/internal/compress"
	"lcache/internal/serve/staging"
	"lcache/logfile"
	"lcache/metaindex"
	"lcache/sample"
	"lcache/source"
)

// Options configure a Fetcher.
type Options struct {
	Staging       *staging.Staging
	Locations     *metaindex.Locations
	Manifest      *sample.Manifest
	Sums          *sample.Sums
	Form          *compress.Form // nil: without compression
	PackedBytes   int64          // with compression: memory for compressed bytes on their way into side memory; at least the largest sample
	Source        source.Source
	Logfile       func(num int) *logfile.Logfile // nil: no such Logfile
	Recovered     func(num int) bool             // an earlier process began the Logfile: its checksum mismatches are stale, not corrupt
	Peers         Peers                          // other machines that have samples; nil: none
	PeerTime      time.Duration                  // of a request to a peer for a sample that a client waits for: the source must have time after it; 0: PeerTime
	Jobs          int                            // reads from the source at once
	LogTimeout    time.Duration
	SourceTimeout time.Duration // without a byte from the source; 0: 30 s
	Logger        *slog.Logger
	// Learn receives the inode of the file that a sample was read from, and whether its bytes match the sample's checksum. It must not block, and may be nil.
	Learn func(index sample.Index, inode uint64, right bool)
	// OnRead receives each verified sample that was neither in this machine's log nor in memory, before it is returned. data is valid only during the call. OnRead may be nil.
	OnRead func(from sample.Origin, index sample.Index, data []byte)
}

// Stats only grow.
type Stats struct {
	Reads                      Counts // of the log: only random reads for requests, not prefetches
	ForPeers                   Counts // the part of Reads for other machines
	CorruptSamples, StaleReads atomic.Int64
	PeerCorrupt                atomic.Int64 // samples whose bytes were wrong when a peer had sent them
	Timeouts                   atomic.Int64
}

// A Holder has the bytes of some samples in memory of its own. They are verified.
type Holder interface {
	Has(index sample.Index) bool
	// Copy copies a sample's bytes to dst, which has the sample's size. It returns false if it does not have the sample.
	Copy(index sample.Index, dst []byte) bool
}

// Holders are tried in order. Nil is an empty list.
type Holders []Holder

// Has reports whether a Holder has a sample.
func (h *Holders) Has(index sample.Index) bool {
	return h != nil && slices.ContainsFunc(*h, func(one Holder) bool { return one.Has(index) })
}

// Copy copies a sample that a Holder has. It returns false if none has it.
func (h *Holders) Copy(index sample.Index, dst []byte) bool {
	return h != nil && slices.ContainsFunc(*h, func(one Holder) bool { return one.Copy(index, dst) })
}

// A supplier reads a sample. If ok is false, the next supplier is tried. buf has room for the bytes, and req keeps track of reads that may still write
// to it.
type supplier func(ctx context.Context, index sample.Index, buf []byte, req *request) (got Got, ok bool, err error)

// A Fetcher is described in the package comment.
type Fetcher struct {
	o     Options
	Stats Stats
	Held  atomic.Pointer[Holders] // the list is replaced as a whole, never changed
	Rest  atomic.Pointer[Counts]  // counts this machine's reads without Counts of their own; nil: they count only in Stats

	suppliers []supplier // in the order in which they are tried

	began time.Time
	moved atomic.Int64 // time of the last bytes from the source, in nanoseconds since began

	reads   chan *read                           // of the source, to an idle reader
	readers atomic.Int64                         // at most Jobs, except for a moment in start
	leave   func()                               // closes left
	left    chan struct{}                        // closed when readers must end
	logs    chan struct{}                        // a token for each random read
	packed  *packedMemory                        // nil without compression
	turns   map[staging.Pool]*semaphore.Weighted // to take room from a pool, first come, first served
	late    sync.WaitGroup

	underWay  underWay      // used only with peers
	copying   chan struct{} // a token for each read of a large sample by copyFromLog
	peerReads peerReads

	yielder  atomic.Pointer[Yielder] // nil: only requests use side memory
	together sync.Mutex              // held while Together takes room
}

// New makes a Fetcher. It starts no goroutine before the first request.
func New(o Options) *Fetcher {
	if o.Jobs <= 0 {
		o.Jobs = 16
	}
	if o.LogTimeout == 0 {
		o.LogTimeout = 5 * time.Second
	}
	if o.PeerTime == 0 {
		o.PeerTime = PeerTime
	}
	if o.SourceTimeout == 0 {
		o.SourceTimeout = 30 * time.Second
	}
	f := &Fetcher{o: o, began: time.Now(), reads: make(chan *read), left: make(chan struct{}), logs: make(chan struct{}, 64), copying: make(chan struct{}, 1),
		turns: map[staging.Pool]*semaphore.Weighted{staging.Side: semaphore.NewWeighted(1), staging.Spare: semaphore.NewWeighted(1), staging.Peers: semaphore.NewWeighted(1)}}
	f.suppliers = []supplier{f.fromMemory, f.byPlace, f.fromPeers, f.fromSource}
	f.leave = sync.OnceFunc(func() { close(f.left) })
	if o.Form != nil {
		f.packed = newPackedMemory(o.PackedBytes)
	}
	return f
}

// Options returns the options, with defaults filled in.
func (f *Fetcher) Options() Options { return f.o }

// LogReads returns the number of single reads from the log that run at once.
func (f *Fetcher) LogReads() int { return cap(f.logs) }

// Jobs returns the number of reads from the source that run at once.
func (f *Fetcher) Jobs() int { return f.o.Jobs }

// LogTimeout returns the time limit of a read from the log.
func (f *Fetcher) LogTimeout() time.Duration { return f.o.LogTimeout }

// SetLogTimeout changes the time limit of a read from the log. It is for tests, before any read.
func (f *Fetcher) SetLogTimeout(d time.Duration) { f.o.LogTimeout = d }

// Close ends idle readers and waits for late answers, until ctx ends.
func (f *Fetcher) Close(ctx context.Context) error {
	f.leave()
	done := make(chan struct{})
	go func() { f.late.Wait(); close(done) }()
	select {
	case <-done:
		if f.packed != nil {
			f.packed.close()
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("a read from %s has not ended: %w", f.o.Source, ctx.Err())
	}
}

// Got is one sample that FetchAll or Into read.
type Got struct {
	Data []byte
	From sample.Origin
	Err  error // of Into: why Data is nil
}

// request is one call of Into: the extents of its samples, and the late reads that may still write to them.
type request struct {
	lateReads
	extentsMu sync.Mutex
	extents   []*staging.Extent
}

// FetchAll reads samples into memory that it allocates. The caller gets a reference to each returned extent. No sample may be empty. If a
// sample can't be read, the error names it and nothing is kept. For one sample it does not wait for
// clients to release memory.
func (f *Fetcher) FetchAll(ctx context.Context, indices []sample.Index) ([]*staging.Extent, []Got, error) {
	x, err := f.oneRoom(ctx, f.Need(indices))
	if err != nil {
		return nil, nil, err
	}
	extents, got := f.Into(ctx, x, indices)
	for _, g := range got {
		if g.Err != nil {
			for _, x := range extents {
				f.o.Staging.Drop(x)
			}
			return nil, nil, g.Err
		}
	}
	return extents, got, nil
}

// Unavailable reports whether an error means that a sample can't be read. If it is false, only the wait for it ended.
func Unavailable(err error) bool {
	var named *source.SampleError
	return errors.As(err, &named) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
}

// readsAtOnce is the number of samples of one request that are read at once. A request may have 100,000 samples, and each read has a goroutine with a stack.
const readsAtOnce = 256

// Into reads samples into x, which has room for them. It takes over the caller's reference to x, and returns extents with one reference
// each, x among them. Each sample has its own error. ErrNoRoom means that the kernel may still write to the sample's room and that
// side memory has no other room now: the caller must release all its memory and start over.
func (f *Fetcher) Into(ctx context.Context, x *staging.Extent, indices []sample.Index) ([]*staging.Extent, []Got) {
	req := &request{extents: []*staging.Extent{x}}
	got := make([]Got, len(indices))
	var wg sync.WaitGroup
	turn := make(chan struct{}, readsAtOnce)
	at := 0
	for i, index := range indices {
		n := SideBytes(f.o.Manifest.Size(index))
		buf := x.Buf[at : at+n : at+n]
		at += n
		turn <- struct{}{} // no deadline here: each read ends by its own
		wg.Go(func() {
			defer func() { <-turn }()
			var err error
			got[i], err = f.one(ctx, index, buf, req)
			got[i].Err = err
		})
	}
	wg.Wait()
	for _, x := range req.extents {
		if req.any() { // the memory is not reused before the last late answer
			f.o.Staging.Share(x)
			f.dropLater(x, &req.lateReads)
		}
	}
	return req.extents, got
}

// FromSourceOnly reads one sample from the source into side memory. It skips the log, which is known not to answer. The caller gets a
// reference to the extent.
func (f *Fetcher) FromSourceOnly(ctx context.Context, index sample.Index) (*staging.Extent, []byte, error) {
	size := f.o.Manifest.Size(index)
	x, err := f.oneRoom(ctx, int64(size))
	if err != nil {
		return nil, nil, err
	}
	dst := x.Buf[:size:size]
	late, err := f.source(ctx, index, dst)
	switch {
	case err == nil:
		return x, dst, nil
	case late != nil:
		f.After(late, func() { f.o.Staging.Drop(x) })
	default:
		f.o.Staging.Drop(x)
	}
	return nil, nil, err
}

// one tries the suppliers in order.
func (f *Fetcher) one(ctx context.Context, index sample.Index, buf []byte, req *request) (Got, error) {
	for _, get := range f.suppliers {
		if got, ok, err := get(ctx, index, buf, req); ok || err != nil {
			return got, err
		}
	}
	return Got{}, fmt.Errorf("no supplier has sample %d", index)
}

func (f *Fetcher) fromMemory(_ context.Context, index sample.Index, buf []byte, _ *request) (Got, bool, error) {
	data, ok := f.FromMemory(index, buf)
	return Got{Data: data, From: sample.FromMemory}, ok, nil
}

// FromMemory copies a sample to buf if a Holder has it.
func (f *Fetcher) FromMemory(index sample.Index, buf []byte) ([]byte, bool) {
	n := int(f.o.Manifest.Size(index))
	data := buf[:n:n]
	return data, f.Held.Load().Copy(index, data)
}

func (f *Fetcher) byPlace(ctx context.Context, index sample.Index, buf []byte, req *request) (got Got, ok bool, err error) {
	began := time.Now()
	data, ok := f.fromLog(ctx, index, buf, &req.lateReads)
	if ok {
		f.count(ctx, sample.FromLog, len(data), began)
		return Got{Data: data, From: sample.FromLog}, true, nil
	}
	if err := ctx.Err(); err != nil {
		return got, false, f.waited(index, "the log", err)
	}
	return got, false, nil
}

// fromSource reads into separate memory if a late read may still write to buf.
func (f *Fetcher) fromSource(ctx context.Context, index sample.Index, buf []byte, req *request) (got Got, ok bool, err error) {
	size, read := f.o.Manifest.Size(index), f.Source
	if req.has(buf) { // the log does not answer: it is not read again
		read = f.onlySource
		x, ok := f.o.Staging.Alloc(f.poolOf(ctx, int64(size)), index, int(size))
		if !ok { // no wait: the caller holds one room, and must not wait for another
			return got, false, ErrNoRoom
		}
		req.extentsMu.Lock()
		req.extents = append(req.extents, x)
		req.extentsMu.Unlock()
		buf = x.Buf
	}
	dst := buf[:size:size]
	began := time.Now()
	from, late, err := read(ctx, index, dst)
	if late != nil {
		req.add(buf, late)
	}
	if err != nil {
		return got, false, err
	}
	if from == sample.FromLog {
		f.count(ctx, from, len(dst), began)
	}
	return Got{Data: dst, From: from}, true, nil
}
