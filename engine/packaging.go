package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"lcache/cache"
	"lcache/importance"
	"lcache/logfile"
	"lcache/metaindex"
	"lcache/sample"
	"lcache/staging"
)

// A packaging lets the L-samples of a job lie together in packages, so that any of them can be read in large pieces (docs/adr/0032-packages-while-served.md). It is there for a job whose
// L-samples may stand in for each other. While that job owns the log, no Logfile is begun for its drawn epochs: what is delivered and does not lie in a package is put into one, and Logfiles and
// packages of which little is left are emptied.
//
// One goroutine does all of it. Deliveries hand it copies of samples and never wait. It writes no more than the job consumes, and nothing without free places. Which sample lies where is known by the
// cache's Locations and the store alone; pieces only count bytes.
type packaging struct {
	e    *Engine
	p    *important
	plan packagePlan

	ctx    context.Context // of its goroutine
	cancel context.CancelFunc
	wake   chan struct{}
	ended  chan struct{} // closed when the goroutine has ended

	handed handover

	mu       sync.Mutex  // guards the fields that follow
	high     *sample.Set // H-samples; nil: the job has drawn no epoch yet
	loose    *sample.Set // packages that had few L-samples when the epoch began
	consumed int64       // bytes delivered, that the goroutine has not heard of
	recount  bool        // an epoch begins

	// The goroutine's alone.
	packing *importance.Packing
	store   *logfile.Packages // nil: none were begun
	pieces  pieces
	victims []*victim // being emptied
	buffer  *cache.Buffer
	idle    bool      // it was not its turn
	pause   time.Time // nothing is written before: a device did not take it

	written, cleaned atomic.Int64 // packages begun; bytes moved out of what is emptied
}

// newPackaging makes the packaging of a job within the memory that is left; nil if there is too little of it, or the cache can't be written.
func (e *Engine) newPackaging(p *important, left int64) (*packaging, error) {
	plan, ok := e.planPackages(left)
	if !ok {
		e.cache.Logger.Warn("importance: memory has no room for write buffers of packages; samples stay where they are", "name", p.config.Name, "left", left)
		return nil, nil
	}
	k := &packaging{e: e, p: p, plan: plan, wake: make(chan struct{}, 1), ended: make(chan struct{}), packing: importance.NewPacking(plan.lanes(), p.config.Seed)}
	var err error
	if k.buffer, err = cache.NewBuffer(plan.buffer); err != nil {
		return nil, err
	}
	if err = k.handed.init(plan.queue); err != nil {
		k.buffer.Free()
		return nil, err
	}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	go k.work()
	return k, nil
}

// Close ends the goroutine and frees the memory. Packages stay.
func (k *packaging) Close() {
	if k == nil {
		return
	}
	k.cancel()
	<-k.ended
	k.handed.close()
	k.buffer.Free()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.high.Close()
	k.loose.Close()
	k.high, k.loose = nil, nil
}

// Memory is how many bytes of --memory the packaging takes beyond what the cache's sizing counts.
func (k *packaging) Memory() int64 {
	if k == nil {
		return 0
	}
	return k.plan.memory
}

// Buffers is how many bytes of it are buffers.
func (k *packaging) Buffers() int64 {
	if k == nil {
		return 0
	}
	return int64(k.plan.queue + k.plan.buffer)
}

// Counts returns how many packages were begun, and how many bytes were moved out of emptied segments and packages.
func (k *packaging) Counts() (written, cleaned int64) {
	if k == nil {
		return 0, 0
	}
	return k.written.Load(), k.cleaned.Load()
}

// Begin starts an epoch that was drawn. The packaging owns high, its H-samples, from then on.
func (k *packaging) Begin(high *sample.Set) {
	k.mu.Lock()
	old := k.high
	k.high, k.recount = high, true
	k.mu.Unlock()
	old.Close()
	k.nudge()
}

func (k *packaging) nudge() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// isHigh reports whether a sample is an H-sample. known is false before the job's first drawn epoch.
func (k *packaging) isHigh(index sample.Index) (high, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.high.Has(index), k.high != nil
}

// Delivered counts the bytes that the job consumed, and takes copies of the L-samples among them that do not lie in a package. addresses is nil where the memory may have another use by now. It never waits.
func (k *packaging) Delivered(indices []sample.Index, addresses []staging.Address) {
	if k == nil {
		return
	}
	bytes, some := int64(0), false
	for i, index := range indices {
		size := k.e.cache.Manifest.Size(index)
		bytes += int64(size)
		if addresses == nil || size == 0 {
			continue
		}
		if k.isWanted(index) {
			some = k.handed.put(index, k.e.staging.Slice(addresses[i].Offset, int(size))) || some
		}
	}
	k.mu.Lock()
	k.consumed += bytes
	k.mu.Unlock()
	if some || bytes > 0 {
		k.nudge()
	}
}

// isWanted reports whether a sample that was read is to be put into a package: an L-sample that lies in a Logfile, or among H-samples. What storeMiss has handed over
// lies nowhere yet.
func (k *packaging) isWanted(index sample.Index) bool {
	half, seg, _, ok := k.e.cache.Locations.Split(k.e.cache.Locations.Get(index))
	k.mu.Lock()
	defer k.mu.Unlock()
	return ok && k.high != nil && !k.high.Has(index) && (half != logfile.PackageHalf || k.loose.Has(uint32(seg)))
}

// Missed takes a copy of a sample that was read from the source. It reports whether the packaging stores it.
func (k *packaging) Missed(index sample.Index, data []byte) bool {
	if k == nil {
		return false
	}
	if _, known := k.isHigh(index); !known || !k.e.packagesLast() {
		return false
	}
	if k.handed.put(index, data) {
		k.nudge()
	}
	return true
}

// work is the goroutine.
func (k *packaging) work() {
	defer close(k.ended)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for k.ctx.Err() == nil {
		if k.step() {
			continue
		}
		select {
		case <-k.wake:
		case <-tick.C:
		case <-k.ctx.Done():
		}
	}
}

// step puts one sample into a package, or empties a little. It reports whether there may be more to do. The mover does nothing to the Logfiles meanwhile.
func (k *packaging) step() bool {
	e := k.e
	e.moving.Lock()
	defer e.moving.Unlock()
	if !e.mayPackage(k.p) || time.Now().Before(k.pause) || !k.begun() {
		k.handed.clear()
		k.victims, k.idle = nil, true
		return false
	}
	e.stopFilling() // the mover starts it again when another job owned the log meanwhile
	k.hear()
	if index, data, ok := k.handed.next(); ok {
		k.put(index, data)
		k.handed.taken()
		return true
	}
	return k.empty()
}

// hear takes up what deliveries and the boundary have said.
func (k *packaging) hear() {
	k.mu.Lock()
	consumed, recount := k.consumed, k.recount
	k.consumed, k.recount = 0, false
	k.mu.Unlock()
	k.packing.Consumed(consumed)
	if recount || k.idle { // others may have moved samples meanwhile
		k.count()
	}
	k.idle = false
}

// begun reports whether there are packages, and begins them if there are none.
func (k *packaging) begun() bool {
	s := k.e.cache.Store
	p, err := s.Packages(), error(nil)
	if k.store != nil && k.store == p {
		return true
	}
	switch {
	case p != nil && !p.Log().IsOlder() && p.Log().Header().Open > 0:
	case p != nil: // of a replaced manifest: ingest empties them
		return false
	default:
		if p, err = k.plan.begin(k.e.cache); err == nil {
			k.e.cache.Logger.Info("samples that no order names are put into packages", "packages", k.plan.packages, "blocks", k.plan.blocks, "open", k.plan.open)
		}
	}
	if err == nil {
		err = k.e.mover.Register(p.Log())
	}
	if err != nil {
		k.fail("packages can't be begun; samples stay where they are", err)
		return false
	}
	k.store = p
	k.packing = importance.NewPacking(max(p.Open()-1, 1), k.p.config.Seed)
	k.count()
	return true
}

// fail lets the packaging rest for a while.
func (k *packaging) fail(what string, err error) {
	if k.ctx.Err() == nil {
		k.e.cache.Logger.Warn(what, "error", err)
	}
	k.pause = time.Now().Add(layOutAgain)
}

// put puts a sample that was handed over into a package, if it does not lie in one, and there is room.
func (k *packaging) put(index sample.Index, data []byte) {
	c := k.e.cache
	loc := c.Locations.Get(index)
	high, _ := k.isHigh(index)
	if !c.Keeps(index) || loc != 0 && (high || k.liesWell(loc)) || k.space(len(data)).Short() {
		return
	}
	if !c.Sums.IsRight(index, data) { // its memory was used for something else
		return
	}
	k.move(index, loc, high, func(ctx context.Context, lane int) (int, uint64, error) {
		return c.Pack(ctx, k.store, lane, index, data)
	})
}

// liesWell reports whether an L-sample at a place is to stay there.
func (k *packaging) liesWell(loc metaindex.Loc) bool {
	half, seg, _, ok := k.e.cache.Locations.Split(loc)
	return ok && k.pieces.at(half, seg).Holds()
}

// space is how many places the log has, with a reserve for what a sample of n bytes fills, and for emptying.
func (k *packaging) space(n int) importance.Space {
	f := k.e.cache.Format
	return importance.Space{Places: f.Places, Free: k.e.cache.Store.Free(), Reserve: k.plan.reserve() + n/f.Block}
}

// outcome is what became of a sample that was to be moved.
type outcome uint8

const (
	done  outcome = iota // its old place is needed no longer
	later                // nothing may be written now
	never                // it can't lie in a package
)

// move puts a sample into a package and publishes its new place. put appends its bytes.
func (k *packaging) move(index sample.Index, from metaindex.Loc, high bool, put func(ctx context.Context, lane int) (number int, off uint64, err error)) outcome {
	c := k.e.cache
	bytes := c.Padded(index)
	if !k.packing.May(bytes) {
		return later
	}
	ctx, cancel := context.WithTimeout(k.ctx, k.e.logTimeout())
	defer cancel()
	number, off, err := put(ctx, min(k.packing.Lane(index, high), k.store.Open()-1))
	switch {
	case errors.Is(err, logfile.ErrFull):
		return never
	case err != nil:
		k.fail("a sample could not be put into a package; it stays where it is", err)
		return later
	}
	bytes = c.Padded(index) // a sample that was never stored has its length since then
	k.packing.Wrote(bytes)
	if k.pieces.wrote(number, off, bytes) {
		k.written.Add(1)
	}
	if c.Locations.Move(index, from, c.Locations.At(logfile.PackageHalf, number, off)) { // else it was lost meanwhile, and the copy is a hole
		k.pieces.moved(c, from, number, bytes, high)
	}
	return done
}

// logTimeout is how long an append may take.
func (e *Engine) logTimeout() time.Duration {
	if e.opts.LogTimeout > 0 {
		return e.opts.LogTimeout
	}
	return time.Second
}

// substitutesLow reports whether a job's L-samples may stand in for each other.
func substitutesLow(p *important) bool { return p != nil && p.config.Substitute == importance.Low }

// packer returns the packaging of the job that owns the log, while the job's epochs are drawn. It is nil if the job puts no samples into packages.
func (e *Engine) packer() *packaging {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.packsNow() {
		return nil
	}
	return e.owner.importance.Load().packs
}

// packsNow reports whether the owner's epochs are drawn, and its L-samples may stand in for each other: then no Logfile is begun. e.mu is held.
func (e *Engine) packsNow() bool {
	p := e.owner.importance.Load()
	return substitutesLow(p) && p.Draws()
}

// packagesLast reports whether what is put into packages outlives a restart, as in Logfiles.
func (e *Engine) packagesLast() bool {
	packages := e.cache.Store.Packages()
	return packages == nil || packages.IsRecorded()
}

// mayPackage reports whether the packaging of a job may move samples now: no pass reads or writes the Logfiles, and packages last.
func (e *Engine) mayPackage(p *important) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.packsNow() || e.owner.importance.Load() != p || e.tgt != nil || e.starting != nil || e.loading > 0 || !e.cache.Store.Writable() {
		return false
	}
	if !e.packagesLast() {
		return false
	}
	v := view{readEpoch: e.readEpoch, cur: viewOf(e.cur)}
	return e.relayout.lent || !v.inWindow()
}
