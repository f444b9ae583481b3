// Package packing moves L-samples of a job into packages while the job is served, so that they can be read in large
// pieces (ImPACT §III-D, docs/adr/0032-packages-while-served.md). A Packer packs copies of samples that were
// delivered, or read from the source. It also empties segments and packages with few live samples. Units lists the
// groups of samples that are stored together, which an epoch loads together.
//
// Pure functions decide the next step, the fate of a sample and the next piece to empty (decide.go). One goroutine,
// the worker, does the I/O. The package does not decide which samples are L-samples, or when packing is allowed: its
// owner passes the H-samples and a Turn. Only the cache's Locations and the store know where a sample is stored; the
// package itself counts bytes for each piece.
//
// All methods of a Packer may be called concurrently, except Begin and Close: one goroutine must call these.
package packing

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"lcache/internal/importance/substitute"
	"lcache/internal/serve/staging"
	"lcache/internal/store/cache"
	"lcache/logfile"
	"lcache/metaindex"
	"lcache/sample"
)

// A Turn is the right to change Logfiles and packages. One goroutine has it at a time.
type Turn interface {
	// Try waits until no other goroutine has the turn. It takes the turn if packing is allowed then.
	Try() bool
	// EndAppends stops all other appends to Logfiles until Release. The holder of the turn calls it before it moves
	// samples.
	EndAppends()
	// Release gives the turn back.
	Release()
}

// Options configure a Packer.
type Options struct {
	Cache  *cache.Cache
	Logger *slog.Logger
	Turn   Turn
	Seed   uint64 // for the choice among open packages
	Memory int64  // bytes of --memory that are available to packing

	AppendTimeout, ReadTimeout time.Duration // AppendTimeout: for one sample; ReadTimeout: for one read of a run of samples

	// Slice returns bytes of the shared memory.
	Slice func(offset uint64, n int) []byte
	// Register registers the write buffers of packages with the I/O engine.
	Register func(*logfile.Logfile) error
	// Bad turns a sample into a miss after its stored copy failed the checksum.
	Bad func(index sample.Index, at metaindex.Loc, num int)
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// A Packer packs the L-samples of one job. It writes no more bytes than the job consumes, and writes nothing if no
// arena block is free. Deliveries give it copies and never wait for it.
//
// A nil Packer packs nothing.
type Packer struct {
	o        Options
	geometry geometry
	cancel   context.CancelFunc
	wake     chan struct{}
	ended    chan struct{} // closed when the worker ends

	ring ring

	mu       sync.Mutex    // guards the fields that follow
	high     *sample.Set   // H-samples; nil before the job's first drawn epoch
	retired  []*sample.Set // H-samples of earlier epochs that the worker may still use
	loose    *sample.Set   // packages that had few L-samples at the start of the epoch
	consumed int64         // bytes delivered since the worker last looked
	begins   bool          // an epoch has begun since the worker last looked

	written, cleaned atomic.Int64 // written: packages begun; cleaned: bytes moved out of emptied pieces
}

// New allocates the memory of a Packer and starts its worker. It returns nil if too little memory is left.
func New(o Options) (*Packer, error) {
	g, ok := chooseGeometry(factsOf(o.Cache), o.Memory)
	if !ok {
		o.Logger.Warn("importance: packing is off, because too little of --memory is left for its buffers; give more --memory to turn it on", "left", o.Memory, "need", g.memory)
		return nil, nil
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	buffer, err := cache.NewBuffer(g.buffer)
	if err != nil {
		return nil, err
	}
	p := &Packer{o: o, geometry: g, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	if err = p.ring.init(g.ring); err != nil {
		buffer.Free()
		return nil, err
	}
	w := &worker{p: p, buffer: buffer, packing: substitute.NewPacking(g.openForLow(), o.Seed)}
	w.ctx, p.cancel = context.WithCancel(context.Background())
	go w.run()
	return p, nil
}

// Close ends the worker and frees the memory. The packages on disk stay.
func (p *Packer) Close() {
	if p == nil {
		return
	}
	p.cancel()
	<-p.ended
	p.ring.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, set := range append(p.retired, p.high, p.loose) {
		set.Close()
	}
	p.high, p.loose, p.retired = nil, nil, nil
}

// Memory returns the bytes of --memory that the Packer uses. The cache's sizing does not count them.
func (p *Packer) Memory() int64 {
	if p == nil {
		return 0
	}
	return p.geometry.memory
}

// Buffers returns the bytes of Memory that are write buffers.
func (p *Packer) Buffers() int64 {
	if p == nil {
		return 0
	}
	return int64(p.geometry.ring + p.geometry.buffer)
}

// Counts returns the number of packages begun, and the bytes moved out of emptied pieces.
func (p *Packer) Counts() (written, cleaned int64) {
	if p == nil {
		return 0, 0
	}
	return p.written.Load(), p.cleaned.Load()
}

// Begin starts a drawn epoch. From then on the Packer owns high, the epoch's H-samples.
func (p *Packer) Begin(high *sample.Set) {
	if p == nil {
		high.Close()
		return
	}
	p.mu.Lock()
	p.retired = append(p.retired, p.high)
	p.high, p.begins = high, true
	p.mu.Unlock()
	p.nudge()
}

func (p *Packer) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// IsHigh reports whether a sample is an H-sample. known is false before the job's first drawn epoch.
func (p *Packer) IsHigh(index sample.Index) (high, known bool) {
	if p == nil {
		return false, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.high.Has(index), p.high != nil
}

// Delivered counts the bytes that the job consumed, and copies the delivered L-samples that should be packed.
// addresses is nil if the samples' memory may already have another use. Delivered never waits.
func (p *Packer) Delivered(indices []sample.Index, addresses []staging.Address) {
	if p == nil {
		return
	}
	bytes := int64(0)
	for i, index := range indices {
		size := p.o.Cache.Manifest.Size(index)
		bytes += int64(size)
		if addresses != nil && size > 0 && p.wants(index) {
			p.ring.put(index, p.o.Slice(addresses[i].Offset, int(size)))
		}
	}
	if bytes == 0 {
		return
	}
	p.mu.Lock()
	p.consumed += bytes
	p.mu.Unlock()
	p.nudge()
}

// wants reports whether a delivered sample should be copied: an L-sample in a Logfile, or in a package of H-samples.
// A sample that is not in the log comes through Missed.
func (p *Packer) wants(index sample.Index) bool {
	l := p.o.Cache.Locations
	num, number, _, ok := l.Split(l.Get(index))
	p.mu.Lock()
	defer p.mu.Unlock()
	return ok && p.high != nil && !p.high.Has(index) && (num != logfile.PackagesNum || p.loose.Has(uint32(number)))
}

// Missed copies a sample that was read from the source. It reports whether the Packer stores the sample. If it does
// not, the caller may.
func (p *Packer) Missed(index sample.Index, data []byte) bool {
	if _, known := p.IsHigh(index); !known || !IsRecorded(p.o.Cache) {
		return false
	}
	if p.ring.put(index, data) {
		p.nudge()
	}
	return true
}

// IsRecorded reports whether packed samples survive a restart of the server, as samples in Logfiles do.
func IsRecorded(c *cache.Cache) bool {
	packages := c.Store.Packages()
	return packages == nil || packages.IsRecorded()
}

// current returns the epoch's H-samples, and closes the sets of earlier epochs, because the worker no longer uses
// them.
func (p *Packer) current() *sample.Set {
	p.mu.Lock()
	high, retired := p.high, p.retired
	p.retired = nil
	p.mu.Unlock()
	for _, set := range retired {
		set.Close()
	}
	return high
}

// drain returns the bytes delivered since the last call, and whether an epoch has begun since then.
func (p *Packer) drain() (consumed int64, begins bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	consumed, begins = p.consumed, p.begins
	p.consumed, p.begins = 0, false
	return consumed, begins
}

// setLoose replaces the set of packages whose L-samples are packed again.
func (p *Packer) setLoose(loose *sample.Set) {
	p.mu.Lock()
	loose, p.loose = p.loose, loose
	p.mu.Unlock()
	loose.Close()
}
