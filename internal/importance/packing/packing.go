// Package packing moves L-samples of a job into packages while the job is served, so that they can be read in large pieces (ImPACT §III-D, docs/adr/0032-packages-while-served.md). A Packer packs
// copies of samples that were delivered or read from the source, and empties segments of Logfiles and packages in which few samples live. Units lists the samples that lie together, which an epoch
// loads together.
//
// What to do next, where a sample goes and which piece is emptied are functions of values (decide.go). The Packer's one goroutine, its worker, does the I/O. The package decides neither which samples are
// L-samples nor when packing is allowed: its owner passes H-samples and a Turn. Where a sample lies is known by the cache's Locations and the store alone; pieces count bytes.
//
// All methods of a Packer may be called concurrently, except Begin and Close: these are for one goroutine.
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
	// Try waits until no other goroutine has the turn, and takes it if packing is allowed then.
	Try() bool
	// EndAppends is called with the turn, before samples are moved: no other goroutine appends to Logfiles until Release.
	EndAppends()
	// Release returns the turn.
	Release()
}

// Options are what a Packer needs of its owner.
type Options struct {
	Cache  *cache.Cache
	Logger *slog.Logger
	Turn   Turn
	Seed   uint64 // of the choice among open packages
	Memory int64  // bytes of --memory that are left for packing

	AppendTimeout, ReadTimeout time.Duration // for one sample, and for one run of samples that are read

	// Slice returns bytes of the shared memory.
	Slice func(offset uint64, n int) []byte
	// Register registers the write buffers of packages with the I/O engine.
	Register func(*logfile.Logfile) error
	// Bad makes a sample a miss whose stored copy has a wrong checksum.
	Bad func(index sample.Index, at metaindex.Loc, half int)
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// A Packer packs the L-samples of one job. It writes no more bytes than the job consumes, and nothing without free places. Deliveries hand it copies and never wait.
//
// A nil Packer packs nothing.
type Packer struct {
	o        Options
	geometry geometry
	cancel   context.CancelFunc
	wake     chan struct{}
	ended    chan struct{} // closed when the worker has ended

	ring ring

	mu       sync.Mutex    // guards the fields that follow
	high     *sample.Set   // H-samples; nil before the job's first drawn epoch
	retired  []*sample.Set // H-samples of earlier epochs, which the worker may still use
	loose    *sample.Set   // packages that had few L-samples when the epoch began
	consumed int64         // bytes that were delivered since the worker looked last
	begins   bool          // an epoch has begun since the worker looked last

	written, cleaned atomic.Int64 // packages begun; bytes moved out of emptied pieces
}

// New allocates the memory of a Packer and starts its worker. The Packer is nil if too little memory is left.
func New(o Options) (*Packer, error) {
	g, ok := chooseGeometry(factsOf(o.Cache), o.Memory)
	if !ok {
		o.Logger.Warn("importance: memory has no room for write buffers of packages; samples stay where they are", "left", o.Memory, "need", g.memory)
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

// Close ends the worker and frees the memory. Packages stay.
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

// Memory returns the bytes of --memory that the Packer takes. The cache's sizing does not count them.
func (p *Packer) Memory() int64 {
	if p == nil {
		return 0
	}
	return p.geometry.memory
}

// Buffers returns the part of Memory that is buffers, in bytes.
func (p *Packer) Buffers() int64 {
	if p == nil {
		return 0
	}
	return int64(p.geometry.ring + p.geometry.buffer)
}

// Counts returns how many packages were begun, and how many bytes were moved out of emptied pieces.
func (p *Packer) Counts() (written, cleaned int64) {
	if p == nil {
		return 0, 0
	}
	return p.written.Load(), p.cleaned.Load()
}

// Begin starts an epoch that was drawn. The Packer owns high, the epoch's H-samples, from then on.
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

// Delivered counts the bytes that the job consumed, and copies the L-samples among them that are to be packed. addresses is nil where the memory may have another use by now. It never waits.
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

// wants reports whether a delivered sample is to be copied: an L-sample that lies in a Logfile, or in a package of H-samples. Samples that lie nowhere come by Missed.
func (p *Packer) wants(index sample.Index) bool {
	l := p.o.Cache.Locations
	half, number, _, ok := l.Split(l.Get(index))
	p.mu.Lock()
	defer p.mu.Unlock()
	return ok && p.high != nil && !p.high.Has(index) && (half != logfile.PackageHalf || p.loose.Has(uint32(number)))
}

// Missed copies a sample that was read from the source. It reports whether the Packer stores it; if not, the caller may.
func (p *Packer) Missed(index sample.Index, data []byte) bool {
	if _, known := p.IsHigh(index); !known || !IsRecorded(p.o.Cache) {
		return false
	}
	if p.ring.put(index, data) {
		p.nudge()
	}
	return true
}

// IsRecorded reports whether packed samples outlive a restart of the server, as those in Logfiles do.
func IsRecorded(c *cache.Cache) bool {
	packages := c.Store.Packages()
	return packages == nil || packages.IsRecorded()
}

// current returns the epoch's H-samples, and closes the sets before them: the worker uses them no longer.
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

// drain returns how many bytes were delivered and whether an epoch has begun since the last call.
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
