// Package reorder is the one pass over a Logfile: it loads a segment into staging, verifies each sample, and writes it on into the
// Logfile of the next epoch, at the place where that epoch wants it (LCache's Algorithm 1, lines 11–16). Delivery is its side
// effect: a verified sample is published in staging, by reference.
//
// A Pass loads the segments that the engine asks for, several at a time. An EpochLog is an epoch's Logfile and its line; a Router is a pure
// function from a sample to its next segment. Samples that a segment should hold and lacks are
// supplied through fetch and treated like the rest. A block of the old Logfile is free as soon as all its samples are verified and
// appended, so that a slow client never holds disk space. Load may be called concurrently.
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

// Options configure a Pass.
type Options struct {
	Store        *logfile.Store // of the Logfiles
	Staging      *staging.Staging
	Fetcher      *fetch.Fetcher
	Locations    *metaindex.Locations
	Sums         *sample.Sums
	Sizes        []uint32
	Form         *compress.Form // nil: without compression
	Scratch      []byte         // with compression: blocks are read there; room for the largest sample that is compressed and a block, and for three blocks at least
	Align        int
	Block        int
	InFlight     int           // without compression: blocks that are read at once; 0: 16
	Workers      int           // goroutines that verify and copy
	BlockTimeout time.Duration // without progress for this long, outstanding blocks are late
	WriteTimeout time.Duration // an append that waits longer drops its sample
	Logger       *slog.Logger
}

// Stats only grow.
type Stats struct {
	Dropped    atomic.Int64 // samples not written on: a write error, a deadline, no room
	Verified   atomic.Int64
	LateBlocks atomic.Int64
	Supplied   atomic.Int64 // samples that a segment lacked
	Carried    atomic.Int64 // segments that the next Logfile has as they were
}

// A Pass: see the package's comment.
type Pass struct {
	o     Options
	Stats Stats

	queue    *queue
	room     room
	places   *places
	turnMu   sync.Mutex    // guards turn
	turn     chan struct{} // closed when all blocks of the load that came last have been begun
	large    sync.Mutex    // guards largeBuf
	largeBuf []byte
	full     sync.Once
	progress atomic.Int64 // when a block of any load last came in: loads share the disk's queue
	wg       sync.WaitGroup
	loads    sync.WaitGroup
	open     context.Context // ends when Close begins: nothing is begun after that. The pass's own life, not a call's
	end      context.CancelFunc
	ctx      context.Context // ends when what is under way has had its time to end by itself
	cancel   context.CancelFunc
	entering sync.Mutex     // held while underWay is added to, and while open ends
	underWay sync.WaitGroup // tasks and samples that are being supplied
}

// aheadTasks is how many blocks may be appended to the next Logfile before the oldest of them is free in the old one. With the
// arena's least slack of 32 blocks this leaves room for what is in flight.
const aheadTasks = 8

// New starts the workers.
func New(o Options) *Pass {
	if o.BlockTimeout == 0 {
		o.BlockTimeout = 5 * time.Second
	}
	if o.WriteTimeout == 0 {
		o.WriteTimeout = 30 * time.Second
	}
	p := &Pass{o: o, queue: newQueue(aheadTasks)}
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

// A task is a run of a segment's samples whose blocks are all in memory, or have failed.
type task struct {
	load     *load
	from, to int          // of load.arrivals
	seq      int          // of the load's tasks
	open     atomic.Int32 // the worker, and samples that are being supplied
}

// close ends one of the task's open parts; the last one ends the task.
func (t *task) close() {
	if t.open.Add(-1) == 0 {
		t.load.finished(t)
	}
}

func (p *Pass) work() {
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
			t.close() // while it is under way: Close lets the blocks be freed of what is written on
			p.underWay.Done()
		} else {
			t.close()
		}
	}
}

// workOn takes a task's samples in turn, until the pass is being closed.
func (p *Pass) workOn(t *task, w *worker) {
	for i := t.from; i < t.to; i++ {
		if p.open.Err() != nil {
			t.load.cut.Store(true)
			return
		}
		p.arrive(t, &t.load.arrivals[i], w)
	}
}

// arrive verifies one sample at its place in the slot, publishes it and writes it on.
func (p *Pass) arrive(t *task, a *arrival, w *worker) {
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
	// A lost device leaves many such samples, and the source is slower than the disk: one after the other they would stall the pass.
	t.open.Add(1)
	p.underWay.Add(1) // beside the task's own
	l.inTurn(func() {
		defer p.underWay.Done()
		defer t.close()
		switch {
		case a.at == noPlace, l.inSlot: // clients may read what lies there
			p.supply(l, a.index, slotRoom{}, !a.late, true)
		case !a.late:
			p.supply(l, a.index, slotRoom{a.at, true}, true, true) // at its place in the slot, which was not published and which no transfer is writing to
		default:
			off, inSlot := l.reserve(size)
			p.supply(l, a.index, slotRoom{off, inSlot}, false, true)
		}
	})
}

// publish makes a verified sample available from its slot. Samples of a Logfile whose order is not known are only written on: no request waits for
// them, and once their blocks are free, no list of the slot's addresses is left to withdraw them by. Neither are those that are only moved.
func (p *Pass) publish(l *load, index sample.Index, off uint64, from sample.Origin) {
	if l.from.Line != nil && l.use != Move {
		p.o.Staging.Publish(index, l.base+off, from)
	}
}

// route appends a sample to the next line, and publishes its new place before its old block is freed. data is the sample's bytes, or with packed its
// stored bytes, which are moved as they are.
func (p *Pass) route(l *load, index sample.Index, data []byte, packed bool) {
	if l.target == nil || l.staysPacked(index) {
		return
	}
	seg, ok := l.target.Router.Route(index)
	if seg == chunker.None { // the next line leaves it out: its block is about to be free
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

// append adds stored bytes to the next line.
func (p *Pass) append(t *EpochLog, seg uint32, index sample.Index, data []byte) error {
	ctx, cancel := context.WithTimeout(p.ctx, p.o.WriteTimeout)
	defer cancel()
	off, err := t.Log.Append(ctx, int(seg), index, data)
	if err == nil {
		p.o.Locations.Set(index, p.o.Locations.At(t.Log.Half(), int(seg), off))
	}
	return err
}

// forget clears the place of a sample that was not written on, because its old block is about to be freed.
func (p *Pass) forget(l *load, index sample.Index) {
	loc := p.o.Locations.Get(index)
	if slot, seg, _, ok := p.o.Locations.Split(loc); ok && slot == l.from.Log.Half() && seg == l.seg {
		p.o.Locations.Clear(index, loc)
	}
}

// pinUntil keeps a slot from reuse until a late read from the source has ended.
func (p *Pass) pinUntil(slot int, late <-chan struct{}) {
	p.o.Staging.Pin(slot)
	p.o.Fetcher.After(late, func() { p.o.Staging.Unpin(slot) })
}
