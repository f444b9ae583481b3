// Package reorder scans a Logfile: it loads a segment into staging, verifies each sample, and appends it to the Logfile of the next epoch,
// at the position where that epoch needs it (LCache's Algorithm 1, lines 11–16). Delivery is a side effect: a verified sample is
// published in staging, by reference.
//
// A Scan loads the segments that the engine requests, several at a time. An EpochLog is an epoch's Logfile and its layout. A Router is
// a pure function from a sample to its next segment. Package fetch reads the samples that a segment should hold and lacks. They are then
// handled like the others. A block of the old Logfile is freed as soon as all its samples are verified and appended, so a slow client
// never holds disk space. Load may be called concurrently.
package reorder

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"lcache/chunker"
	"lcache/internal/compress"
	"lcache/internal/serve/fetch"
	"lcache/internal/serve/staging"
	"lcache/logfile"
	"lcache/metaindex"
	"lcache/sample"
)

// Options configure a Scan.
type Options struct {
	Store        *logfile.Store // of the Logfiles
	Staging      *staging.Staging
	Fetcher      *fetch.Fetcher
	Locations    *metaindex.Locations
	Sums         *sample.Sums
	Sizes        []uint32
	Form         *compress.Form // nil: without compression
	Scratch      []byte         // with compression: memory for blocks; room for a block and the largest compressed sample, and for at least three blocks
	Align        int
	Block        int
	InFlight     int           // without compression: blocks in flight; 0: 16
	Workers      int           // goroutines that verify and copy
	BlockTimeout time.Duration // after this long without progress, blocks in flight are late
	WriteTimeout time.Duration // an append that waits longer drops its sample
	Logger       *slog.Logger
}

// Stats are counters; they only grow.
type Stats struct {
	Dropped    atomic.Int64 // samples not appended: a write error, a deadline, or no room
	Verified   atomic.Int64
	LateBlocks atomic.Int64
	Supplied   atomic.Int64 // samples that were missing in a segment
	Carried    atomic.Int64 // segments that were moved to the next Logfile as a whole
}

// A Scan is described in the package comment.
type Scan struct {
	o     Options
	Stats Stats

	queue    *queue
	room     room
	places   *places
	turnMu   sync.Mutex    // guards turn
	turn     chan struct{} // closed when all blocks of the latest load have been begun
	large    sync.Mutex    // guards largeBuf
	largeBuf []byte
	full     sync.Once
	progress atomic.Int64 // time of the last completed block of any load: loads share the disk's queue
	wg       sync.WaitGroup
	loads    sync.WaitGroup
	open     context.Context // ends when Close begins, and then no task begins. It belongs to the Scan, not to a call
	end      context.CancelFunc
	ctx      context.Context // ends after closeGrace
	cancel   context.CancelFunc
	entering sync.Mutex     // held while underWay is incremented, and while open ends
	underWay sync.WaitGroup // tasks, and samples that are being supplied
}

// aheadTasks is the number of blocks that may be appended to the next Logfile before the oldest of them is freed in the old one. With
// the arena's minimum slack of 32 blocks this leaves room for blocks in flight.
const aheadTasks = 8

// New starts the workers.
func New(o Options) *Scan {
	if o.BlockTimeout == 0 {
		o.BlockTimeout = 5 * time.Second
	}
	if o.WriteTimeout == 0 {
		o.WriteTimeout = 30 * time.Second
	}
	p := &Scan{o: o, queue: newQueue(aheadTasks)}
	p.open, p.end = context.WithCancel(context.Background())
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.turn = make(chan struct{})
	close(p.turn)
	p.room.store, p.room.reserve = o.Store, p.reserve()
	p.places = newPlaces(cmp.Or(o.InFlight, 16))
	if p.o.Form != nil {
		largest := o.Form.LargestPacked()
		p.places = newBuffers(o.Scratch, o.Block, largest, slices.Max(append([]uint32{0}, o.Sizes...)) > largest)
	}
	for range max(o.Workers, 1) {
		p.wg.Add(1)
		go p.work()
	}
	return p
}

// A task is a run of a segment's samples whose blocks have all arrived or failed.
type task struct {
	load     *load
	from, to int          // of load.arrivals
	seq      int          // of the load's tasks
	open     atomic.Int32 // the worker, and samples that are being supplied
}

// close ends one of the task's open parts. The last one ends the task.
func (t *task) close() {
	if t.open.Add(-1) == 0 {
		t.load.finished(t)
	}
}

func (p *Scan) work() {
	defer p.wg.Done()
	w := &worker{}
	for {
		t, ok := p.queue.take()
		if !ok {
			return
		}
		t.open.Store(1)
		if p.enter(t.load) {
			p.workOn(t, w)
			t.close() // before underWay.Done: Close allows freeing blocks of appended samples
			p.underWay.Done()
		} else {
			t.close()
		}
	}
}

// workOn handles a task's samples in order, until the Scan is being closed.
func (p *Scan) workOn(t *task, w *worker) {
	for i := t.from; i < t.to; i++ {
		if p.open.Err() != nil {
			t.load.cut.Store(true)
			return
		}
		p.arrive(t, &t.load.arrivals[i], w)
	}
}

// arrive verifies one sample at its position in the slot, publishes it and appends it.
func (p *Scan) arrive(t *task, a *arrival, w *worker) {
	l := t.load
	size := uint64(p.o.Sizes[a.index])
	sum, known := p.o.Sums.Get(a.index)
	if !a.lost && known && a.at != noPlace {
		place := l.mem[a.at : a.at+size : a.at+size]
		data, whole := place, true
		if p.o.Form != nil {
			data, whole = l.unpack(w, a, place)
		}
		good := whole && sample.Sum(place) == sum
		if good {
			p.Stats.Verified.Add(1)
			p.publish(l, a.index, a.at, sample.FromLog)
			p.route(l, a.index, data, true)
		}
		w.done(p)
		if good {
			return
		}
	}
	// A lost device leaves many such samples, and the source is slower than the disk. Read one after the other, they would stall the scan.
	t.open.Add(1)
	p.underWay.Add(1) // in addition to the task's own
	l.inTurn(func() {
		defer p.underWay.Done()
		defer t.close()
		switch {
		case a.at == noPlace, l.inSlot: // clients may read these bytes of the slot
			p.supply(l, a.index, slotRoom{}, !a.late, true)
		case !a.late:
			p.supply(l, a.index, slotRoom{a.at, true}, true, true) // at its position in the slot, which is not published, and no transfer writes to it
		default:
			off, inSlot := l.reserve(size)
			p.supply(l, a.index, slotRoom{off, inSlot}, false, true)
		}
	})
}

// publish publishes a verified sample in its slot. Samples of a Logfile with an unknown order are only appended: no request waits for
// them, and once their blocks are freed no list tells which of the slot's addresses to withdraw. Moved samples are not published either.
func (p *Scan) publish(l *load, index sample.Index, off uint64, from sample.Origin) {
	if l.from.Layout != nil && l.use != Move {
		p.o.Staging.Publish(index, l.base+off, from)
	}
}

// route appends a sample to the next log, and publishes its new location before its old block is freed. data is the sample's bytes. If
// packed is set, it is the compressed bytes, which are moved unchanged.
func (p *Scan) route(l *load, index sample.Index, data []byte, packed bool) {
	if l.target == nil || l.staysPacked(index) {
		return
	}
	seg, ok := l.target.Router.Route(index)
	if seg == chunker.None { // the next layout leaves it out, and its block is about to be freed
		p.forget(l, index)
	}
	if !ok || !l.target.Router.Claim(index) {
		return
	}
	var err error
	if packed || p.o.Form == nil {
		err = p.append(l.target, seg, index, data)
	} else {
		err = p.appendPacked(l.target, seg, index, data)
	}
	if err == nil {
		return
	}
	l.target.Router.Unclaim(index)
	if p.ctx.Err() == nil {
		p.forget(l, index)
		p.dropped(index, err)
	}
}

// append adds a sample's bytes, as stored, to the next log.
func (p *Scan) append(t *EpochLog, seg uint32, index sample.Index, data []byte) error {
	ctx, cancel := context.WithTimeout(p.ctx, p.o.WriteTimeout)
	defer cancel()
	off, err := t.Log.Append(ctx, int(seg), index, data)
	if err == nil {
		p.o.Locations.Set(index, p.o.Locations.At(t.Log.Num(), int(seg), off))
	}
	return err
}

// forget clears the location of a sample that was not appended, because its old block is about to be freed.
func (p *Scan) forget(l *load, index sample.Index) {
	loc := p.o.Locations.Get(index)
	if slot, seg, _, ok := p.o.Locations.Split(loc); ok && slot == l.from.Log.Num() && seg == l.seg {
		p.o.Locations.Clear(index, loc)
	}
}

// pinUntil pins a slot until a late read from the source has ended.
func (p *Scan) pinUntil(slot int, late <-chan struct{}) {
	p.o.Staging.Pin(slot)
	p.o.Fetcher.After(late, func() { p.o.Staging.Unpin(slot) })
}
