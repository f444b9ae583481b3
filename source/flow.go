package source

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/zeebo/xxh3"

	"lcache/sample"
	"lcache/source/internal/object"
	"lcache/source/internal/tarshard"
)

const (
	// MostFlows is the number of shards without random access that are read at once. More readers would evict each
	// other's flows.
	MostFlows = 8

	flowIdle  = 30 * time.Second // a flow that is not read for this long is closed
	flowBlock = 1 << 20
	flowAhead = 3 // number of blocks that a flow reads ahead
)

// flowTrusted is the time for which a flow is continued without checking whether its shard has changed. A flow reads
// one version of the shard in any case.
var flowTrusted = time.Second

// flows reads shards without random access at any position: from the start of the shard to that position. If an open
// flow has not passed the position, it is continued. So a reader that goes through a shard in order reads the shard
// once. A single read at a position costs everything before it.
type flows struct {
	turns chan struct{} // one for each flow in use

	mu     sync.Mutex // guards the fields that follow
	idle   []*flow    // in order of use, last used last
	sweep  *time.Timer
	closed bool

	closing sync.WaitGroup // goroutines that close unused flows

	decoded func(ctx context.Context, name string, o openShard) (io.ReadCloser, error) // nil: shards are not decoded
}

func newFlows(of *shards) *flows {
	f := &flows{turns: make(chan struct{}, MostFlows)}
	if of.opts.decode {
		f.decoded = of.decoded
	}
	return f
}

// A flow reads one shard from front to back in a goroutine, a few blocks ahead.
type flow struct {
	shard  sample.Shard
	at     int64 // position of rest in the shard
	rest   []byte
	whole  []byte      // the block that rest belongs to
	blocks chan []byte // closed at the end
	err    error       // why the flow ended; valid once blocks is closed
	free   chan []byte
	cancel context.CancelFunc
	unused time.Time
}

// begin starts to read a shard from its beginning. The flow closes o.
func (s *flows) begin(shard sample.Shard, o openShard) *flow {
	ctx, cancel := context.WithCancel(context.Background())
	f := &flow{shard: shard, blocks: make(chan []byte, flowAhead-1), free: make(chan []byte, flowAhead), cancel: cancel}
	for range flowAhead {
		f.free <- nil
	}
	go f.fill(ctx, o, s.decoded)
	return f
}

// fill reads the shard into blocks.
func (f *flow) fill(ctx context.Context, o openShard, decoded func(context.Context, string, openShard) (io.ReadCloser, error)) {
	defer close(f.blocks) // deferred, so that err is set before
	defer o.close()
	from, raw, err := f.open(ctx, o, decoded)
	if err != nil {
		f.err = err
		return
	}
	defer from.Close()
	if raw != nil {
		defer raw.Close()
		defer func() {
			if raw.err != nil { // the decompressor may have reworded the error
				f.err = raw.err
			}
		}()
	}
	for {
		var block []byte
		select {
		case block = <-f.free:
		case <-ctx.Done():
			f.err = ctx.Err()
			return
		}
		if block == nil {
			block = make([]byte, flowBlock)
		}
		n, err := io.ReadFull(from, block[:flowBlock])
		if n > 0 {
			select {
			case f.blocks <- block[:n]:
			case <-ctx.Done():
				f.err = ctx.Err()
				return
			}
		}
		if err != nil {
			f.err = err
			return
		}
	}
}

// open returns a reader of the unpacked shard. raw is the packed shard; nil if the shard is decoded.
func (f *flow) open(ctx context.Context, o openShard, decoded func(context.Context, string, openShard) (io.ReadCloser, error)) (from io.ReadCloser, raw *noted, err error) {
	if decoded != nil {
		from, err = decoded(ctx, f.shard.Name, o)
		return from, nil, err
	}
	raw = &noted{ReadCloser: o.stream(ctx)}
	buffered := bufio.NewReaderSize(raw, flowBlock)
	packing := tarshard.Packing(f.shard.Name)
	if packing == "" {
		return io.NopCloser(buffered), raw, nil
	}
	if from, err = tarshard.Unpack(packing, buffered); err != nil {
		if raw.err != nil {
			err = raw.err
		}
		raw.Close()
	}
	return from, raw, err
}

// noted keeps the error that ended the raw stream early.
type noted struct {
	io.ReadCloser
	err error
}

func (r *noted) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}

// readAt fills dst from a position that the flow has not passed. After an error that is not ctx's, the flow must not
// be used.
func (f *flow) readAt(ctx context.Context, dst []byte, off int64) error {
	for end := off + int64(len(dst)); f.at < end; {
		if len(f.rest) == 0 {
			if f.whole != nil {
				f.free <- f.whole
				f.whole = nil
			}
			select {
			case block, more := <-f.blocks:
				if !more {
					return f.ended()
				}
				f.whole, f.rest = block, block
				object.Moved(ctx)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		n := int64(len(f.rest))
		if f.at < off {
			n = min(n, off-f.at)
		} else {
			n = int64(copy(dst[f.at-off:], f.rest))
		}
		f.at, f.rest = f.at+n, f.rest[n:]
	}
	return nil
}

func (f *flow) ended() error {
	if !errors.As(f.err, new(*object.Error)) && (errors.Is(f.err, io.EOF) || errors.Is(f.err, io.ErrUnexpectedEOF)) {
		return errors.New("it is shorter than when it was listed: copy or write it again")
	}
	return f.err
}

// close ends the goroutine and waits for it.
func (f *flow) close() {
	f.cancel()
	for range f.blocks {
	}
}

// read fills dst with bytes of a shard.
func (f *flows) read(ctx context.Context, store shardStore, shard sample.Shard, dst []byte, off int64) error {
	if err := ctx.Err(); err != nil { // select would choose at random among ready channels
		return err
	}
	select {
	case f.turns <- struct{}{}:
		defer func() { <-f.turns }()
	case <-ctx.Done():
		return ctx.Err()
	}
	one := f.take(shard, off)
	if one != nil && time.Since(one.unused) >= flowTrusted {
		if err := store.check(ctx, shard); err != nil {
			one.close()
			return err
		}
	}
	if one == nil {
		o, err := store.openListed(ctx, shard)
		if err != nil {
			return err
		}
		one = f.begin(shard, o)
	}
	start := one.at
	err := one.readAt(ctx, dst, off)
	if err != nil && (ctx.Err() == nil || one.at == start) {
		one.close()
		return err
	}
	f.give(one)
	return err
}

// take takes the idle flow that has the least to read up to a position; nil: there is none.
func (f *flows) take(shard sample.Shard, off int64) *flow {
	f.mu.Lock()
	defer f.mu.Unlock()
	best := -1
	for i, one := range f.idle {
		if one.shard == shard && one.at <= off && (best < 0 || one.at > f.idle[best].at) {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	one := f.idle[best]
	f.idle = slices.Delete(f.idle, best, best+1)
	return one
}

// give makes a flow idle. If there are too many, it closes the oldest one.
func (f *flows) give(one *flow) {
	one.unused = time.Now()
	f.mu.Lock()
	var old *flow
	switch {
	case f.closed:
		old = one
	default:
		if f.idle = append(f.idle, one); len(f.idle) > MostFlows {
			old = f.idle[0]
			f.idle = slices.Delete(f.idle, 0, 1)
		}
		if f.sweep == nil {
			f.sweep = time.AfterFunc(flowIdle, f.closeUnused)
		}
	}
	f.mu.Unlock()
	if old != nil {
		old.close()
	}
}

// closeUnused closes flows that were not read for flowIdle.
func (f *flows) closeUnused() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sweep = nil; f.closed {
		return
	}
	n := 0
	for n < len(f.idle) && time.Since(f.idle[n].unused) >= flowIdle {
		f.closing.Go(f.idle[n].close)
		n++
	}
	if f.idle = slices.Delete(f.idle, 0, n); len(f.idle) > 0 {
		f.sweep = time.AfterFunc(flowIdle-time.Since(f.idle[0].unused), f.closeUnused)
	}
}

// close closes all flows. None may be in use.
func (f *flows) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	if f.sweep != nil {
		f.sweep.Stop()
	}
	for _, one := range f.idle {
		one.close()
	}
	f.idle = nil
	f.closing.Wait()
}

// inOrder reads a shard from front to back, with ranges.
type inOrder struct {
	ctx   context.Context // of the flow, or of the listing
	shard openShard
	size  int64
	at    int64
}

func (r *inOrder) Read(p []byte) (int, error) {
	n := min(int64(len(p)), r.size-r.at)
	if n <= 0 {
		return 0, io.EOF
	}
	if err := r.shard.ReadAt(r.ctx, p[:n], r.at); err != nil {
		return 0, err
	}
	r.at += n
	return int(n), nil
}

func (r *inOrder) Close() error { return nil }

// isPacking reports whether a shard with this name is read from front to back wherever it is.
func (o Options) isPacking(name string) bool { return o.decode || tarshard.Packing(name) != "" }

// packedVersion returns the version of a packed shard. The list has no field for the compressed size, so the version
// includes it. If the shard is decoded, it includes that too, because then positions mean something else.
func (o Options) packedVersion(name string, size int64, version uint64) uint64 {
	if !o.isPacking(name) {
		return version
	}
	var b [24]byte
	binary.LittleEndian.PutUint64(b[:], version)
	binary.LittleEndian.PutUint64(b[8:], uint64(size))
	if o.decode {
		b[16] = decodeRules
		return xxh3.Hash(b[:])
	}
	return xxh3.Hash(b[:16])
}

// Streamed implements [Sharded].
func (s *shards) Streamed(shard sample.Shard) bool {
	if s.opts.isPacking(shard.Name) {
		return true
	}
	o, far := s.store.(*shardObjects)
	return far && o.noRanges.Load()
}

// openAt opens a listed shard for reads at any position. A flow opens its shard itself.
func (s *shards) openAt(ctx context.Context, shard sample.Shard) (openShard, error) {
	if s.Streamed(shard) {
		return noShard{}, nil
	}
	return s.store.openListed(ctx, shard)
}

// readAt reads bytes of a shard that openAt has opened.
func (s *shards) readAt(ctx context.Context, o openShard, shard sample.Shard, dst []byte, off int64) error {
	if _, none := o.(noShard); !none {
		err := o.ReadAt(ctx, dst, off)
		if !errors.Is(err, object.ErrNoRanges) {
			return err
		}
		s.store.(*shardObjects).noRanges.Store(true)
	}
	return s.flows.read(ctx, s.store, shard, dst, off)
}

// noShard is the openShard for shards that only flows open.
type noShard struct{ openShard }

func (noShard) close() {}
