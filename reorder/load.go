package reorder

import (
	"sync"
	"sync/atomic"
	"time"

	"lcache/logfile"
	"lcache/sample"
)

// arrival is one sample of the segment's byte string.
type arrival struct {
	off   uint64 // in the string
	at    uint64 // in the slot; equal to off, because blocks are read to their position in the string, unless they hold compressed samples
	index sample.Index
	lost  bool // one of its blocks could not be read
	late  bool // because a block did not come in time: don't read it from the disk again
}

// noPlace is the value of at for an arrival that the slot has no room for.
const noPlace = ^uint64(0)

type blockState uint8

const (
	blockQueued blockState = iota // waits for a read token or buffer
	blockPending
	blockHere
	blockFailed
	blockLate // given up; its bytes may still be written to the slot, or to its buffer
)

// load is the load of one segment into one slot.
type load struct {
	p      *Scan
	from   *EpochLog
	seg    int
	slot   int
	base   uint64 // of the slot in staging
	mem    []byte
	target *EpochLog // the next log; nil: the samples stay where they are
	use    Use
	inSlot bool // the slot already has its blocks
	done   func()
	turn   chan struct{} // tokens, one for each sample that is being supplied

	arrivals []arrival
	inPlace  []uint64    // with compression and huge samples: where in the slot each block is read to, or scratchOnly
	cut      atomic.Bool // a sample was left out because the Scan is being closed: its block must stay

	mu       sync.Mutex // guards the fields that follow
	blocks   []blockState
	bufs     [][]byte // with compression: the buffer of each block, until it is returned
	returned int      // the memory of blocks [0, returned) was returned
	pending  int      // blocks that have not arrived
	here     int      // blocks [0, here) have arrived or failed
	handed   int      // arrivals [0, handed) were given to tasks
	finishes []bool
	popped   int // tasks [0, popped) are done, in order
	ends     []uint64
	open     int    // number of tasks, supplies and the reading itself that are not done
	end      uint64 // no block is read to the slot after this offset
	used     uint64 // nor to [used, front), because those blocks are lost
	front    uint64
	watch    *time.Timer
}

// A Use is the purpose of loading a segment.
type Use uint8

const (
	Deliver Use = iota // requests wait for its samples
	Drain              // its samples are appended to the next log, and only samples in its blocks are loaded. Requests find them in the slot, and so keep it
	Move               // as Drain, but no request finds them: the slot is free when they are appended
)

// Load reads segment seg of from into slot, which the caller has acquired for it, and appends its samples to target (nil: they stay where
// they are). It calls done when all samples are appended, and published if use requires that. The slot is then ready.
func (p *Scan) Load(slot int, from *EpochLog, seg int, target *EpochLog, use Use, done func()) {
	l := p.newLoad(slot, from, seg)
	l.target, l.use, l.done = target, use, done
	l.begin()
}

// Reload appends a segment that was loaded into the slot before the target was begun. It works as Load does with Deliver, but appends the
// samples from the slot and reads nothing. IsLoaded must have returned true, and nothing may have used the slot for another segment since.
func (p *Scan) Reload(slot int, from *EpochLog, seg int, target *EpochLog, done func()) {
	l := p.newLoad(slot, from, seg)
	l.target, l.use, l.done, l.inSlot = target, Deliver, done, true
	l.begin()
}

// IsLoaded reports whether a slot has all samples of a segment, each at the position to which its block was read.
func (p *Scan) IsLoaded(slot int, from *EpochLog, seg int) bool {
	if p.o.Form != nil || from.Layout == nil { // compressed blocks are not kept
		return false
	}
	l := p.newLoad(slot, from, seg)
	if len(l.blocks) == 0 || len(l.missing()) > 0 {
		return false
	}
	for i := range l.arrivals {
		a := &l.arrivals[i]
		if off, ok := p.o.Staging.SlotOffset(a.index); !ok || off != l.base+a.at {
			return false
		}
	}
	return true
}

// newLoad lists the samples of a segment, and assigns their positions in the slot.
func (p *Scan) newLoad(slot int, from *EpochLog, seg int) *load {
	l := &load{p: p, from: from, seg: seg, slot: slot, base: uint64(slot * p.o.Staging.SlotBytes()), mem: p.o.Staging.Slot(slot),
		open: 1, turn: make(chan struct{}, p.o.Fetcher.Jobs())}
	from.Log.Arrivals(seg, func(_ int, index uint32, off uint64) bool {
		l.arrivals = append(l.arrivals, arrival{off: off, at: off, index: index})
		return true
	})
	l.layOut()
	return l
}

// begin begins to read blocks, and to supply missing samples.
func (l *load) begin() {
	p := l.p
	missing, n := l.missing(), len(l.blocks)
	p.loads.Add(1)
	l.open++ // the reading
	if n > 0 {
		l.p.progress.Store(time.Now().UnixNano())
		l.mu.Lock() // timeout may be called at once
		l.watch = time.AfterFunc(p.o.BlockTimeout, l.timeout)
		l.mu.Unlock()
	}
	go func() {
		l.supplyAll(missing)
		l.close()
	}()
	if n == 0 {
		l.close()
		return
	}
	if l.inSlot {
		p.loads.Go(l.allArrived)
		return
	}
	p.turnMu.Lock()
	before, begun := p.turn, make(chan struct{})
	p.turn = begun
	p.turnMu.Unlock()
	p.loads.Go(func() {
		<-before
		l.read()
		close(begun)
	})
}

// layOut assigns a position in the slot to each block and sample.
func (l *load) layOut() {
	p, n := l.p, l.from.Log.Blocks(l.seg)
	l.blocks = make([]blockState, n)
	l.pending = n
	l.end = uint64(n * p.o.Block)
	if p.o.Form != nil {
		l.bufs = make([][]byte, n)
		l.place()
		return
	}
	gone := uint64(l.from.Log.Gone(l.seg))
	if len(l.arrivals) > 0 { // they may have been lost since they were listed
		gone = min(gone, l.arrivals[0].off/uint64(p.o.Block))
	}
	l.front = gone * uint64(p.o.Block)
}

// stored returns the bytes of the string that a sample takes.
func (l *load) stored(a *arrival) uint64 {
	if l.p.o.Form != nil {
		return uint64(l.p.o.Form.Length(a.index))
	}
	return uint64(l.p.o.Sizes[a.index])
}

// missing lists, in layout order, the samples that the segment should hold and the Logfile does not have. It uses the Logfile and not
// Locations for two reasons. A sample whose location is elsewhere, but whose bytes are still in this segment, is loaded with the
// others. And a sample whose block was lost just when its location was published is found.
func (l *load) missing() (missing []sample.Index) {
	if l.from.Layout == nil {
		return nil
	}
	members := l.from.Layout.Members(l.seg)
	if len(l.arrivals) == len(members) {
		return nil
	}
	here := make(map[sample.Index]struct{}, len(l.arrivals))
	for i := range l.arrivals {
		here[l.arrivals[i].index] = struct{}{}
	}
	for _, index := range members {
		if _, ok := here[index]; !ok && !(l.use != Deliver && (l.routed(index) || l.isNotWorth(index))) {
			missing = append(missing, index)
		}
	}
	return missing
}

// staysPacked reports whether the load of a segment must not append a sample because it is in a package. Such a sample is moved only
// when its package is emptied. Otherwise the package would keep its arena blocks, and appends would wait for blocks that are never freed.
func (l *load) staysPacked(index sample.Index) bool {
	return l.from.Packages == nil && l.p.o.Locations.In(index, logfile.PackagesNum)
}

// routed reports whether the next layout already has a sample or leaves it out, or the sample stays in its package.
func (l *load) routed(index sample.Index) bool {
	if l.target == nil || l.staysPacked(index) || l.p.o.Form != nil && l.p.o.Form.Refuses(index) {
		return true
	}
	_, ok := l.target.Router.Route(index)
	return !ok
}

// isNotWorth reports whether a lost sample need not be read again: this epoch does not deliver it, and it was kept only for this epoch.
func (l *load) isNotWorth(index sample.Index) bool {
	return l.from.Layout.Chosen && l.from.Layout.IsUnused(l.seg) && l.p.o.Locations.Get(index) == 0
}

// reserve takes bytes of the slot that no block is read to.
func (l *load) reserve(size uint64) (uint64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if off := l.used; off+l.p.padded(size) <= l.front {
		l.used += l.p.padded(size)
		return off, true
	}
	off := l.end
	if off+l.p.padded(size) > uint64(len(l.mem)) {
		return 0, false
	}
	l.end += l.p.padded(size)
	return off, true
}

// padded returns the bytes that a sample of n bytes takes in a slot.
func (p *Scan) padded(n uint64) uint64 {
	a := uint64(p.o.Align)
	return (n + a - 1) / a * a
}

// advance passes the decided blocks, and queues the samples that end in them as one task for each block. Tasks of a load are queued in
// order, under its lock: in another order the queue's tokens would deadlock.
func (l *load) advance() {
	w := uint64(l.p.o.Block)
	for l.here < len(l.blocks) && l.blocks[l.here] > blockPending {
		l.here++
		from := l.handed
		for l.handed < len(l.arrivals) {
			a := &l.arrivals[l.handed]
			end := a.off + l.stored(a)
			if end > uint64(l.here)*w && l.here < len(l.blocks) {
				break
			}
			for j := a.off / w; j <= (end-1)/w && j < uint64(len(l.blocks)); j++ {
				a.lost = a.lost || l.blocks[j] != blockHere
				a.late = a.late || l.blocks[j] == blockLate
			}
			l.handed++
		}
		if l.handed > from {
			l.p.queue.put(&task{load: l, from: from, to: l.handed, seq: len(l.finishes)})
			l.finishes = append(l.finishes, false)
			// Blocks before the first sample that is not appended yet can be freed.
			free := uint64(len(l.blocks))
			if l.handed < len(l.arrivals) {
				free = l.arrivals[l.handed].off / w
			}
			l.ends = append(l.ends, free)
			l.open++
		}
	}
	if l.here == len(l.blocks) {
		l.open-- // the reading is done; a task or the supplies may still be open
		if l.open == 0 {
			l.open++ // no task is left to close the load, so do it here
			go l.close()
		}
	}
}

// finished is called when all samples of a task are appended. Blocks are freed in order.
func (l *load) finished(t *task) {
	l.mu.Lock()
	l.finishes[t.seq] = true
	free := uint64(0)
	first := l.popped
	for l.popped < len(l.finishes) && l.finishes[l.popped] {
		free = l.ends[l.popped]
		l.popped++
	}
	n := l.popped - first
	if l.bufs != nil {
		l.giveBack(int(free))
	}
	l.mu.Unlock()
	if l.target != nil && n > 0 && l.isWhole() {
		l.from.free(l.seg, int(free))
	}
	l.p.queue.give(n)
	l.p.o.Staging.Notify()
	l.close()
}

// isWhole reports whether all finished samples were appended, so that their blocks may be freed. Appends in progress while the Scan is
// being closed may wait for these arena blocks.
func (l *load) isWhole() bool { return !l.cut.Load() && l.p.ctx.Err() == nil }

// close ends one of the load's open parts. The last one ends the load.
func (l *load) close() {
	l.mu.Lock()
	l.open--
	last := l.open == 0
	if last && l.bufs != nil {
		l.giveBack(len(l.bufs))
	}
	l.mu.Unlock()
	if !last {
		return
	}
	if l.watch != nil {
		l.watch.Stop()
	}
	if l.target != nil && l.isWhole() {
		l.from.freeAll(l.seg)
	}
	l.p.o.Staging.Ready(l.slot)
	l.done()
	l.p.loads.Done()
}
