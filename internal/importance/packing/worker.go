package packing

import (
	"context"
	"errors"
	"slices"
	"time"

	"lcache/internal/importance/substitute"
	"lcache/internal/store/cache"
	"lcache/logfile"
	"lcache/metaindex"
	"lcache/sample"
)

// retryAfter is the pause after a failed append. Meanwhile the operator may repair a full or read-only disk.
const retryAfter = 30 * time.Second

// worker is the state of the Packer's goroutine. No other goroutine uses it.
type worker struct {
	p       *Packer
	ctx     context.Context
	buffer  *cache.Buffer
	packing *substitute.Packing
	store   *logfile.Packages // nil: not begun
	high    *sample.Set
	pieces  pieces
	victims []*victim // the first one is emptied next
	places  int       // arena blocks free at the start of the step
	spare   int       // places, minus the blocks that open packages need for their samples in memory
	idle    bool      // the last step did not get the turn
	pause   time.Time // no writes before this time
}

// run is the worker's goroutine.
func (w *worker) run() {
	defer close(w.p.ended)
	defer w.buffer.Free()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for w.ctx.Err() == nil {
		if w.step() {
			continue
		}
		select {
		case <-w.p.wake:
		case <-tick.C:
		case <-w.ctx.Done():
		}
	}
}

// step does one action in one turn, and reports whether another may follow at once.
func (w *worker) step() (more bool) {
	w.high = w.p.current()
	turn := w.p.o.Turn
	if w.p.o.Now().Before(w.pause) || !turn.Try() {
		w.rest()
		return false
	}
	defer turn.Release()
	if !w.hasPackages() {
		w.rest()
		return false
	}
	turn.EndAppends()
	consumed, begins := w.p.drain()
	w.packing.Consumed(consumed)
	if begins || w.idle { // others may have moved samples while the worker did not have the turn
		w.count()
	}
	w.idle = false
	if !w.measure() {
		return false
	}
	return w.apply(decide(w.view()))
}

// measure counts the free arena blocks. It returns false on an error.
func (w *worker) measure() bool {
	ctx, cancel := context.WithTimeout(w.ctx, w.p.o.AppendTimeout)
	defer cancel()
	bytes, err := w.store.Unplaced(ctx)
	if err != nil {
		w.fail("packing is paused: a package was not written in time; samples stay where they are", err)
		return false
	}
	c := w.p.o.Cache
	block := uint64(c.Format.Block)
	w.places = c.Store.Free()
	w.spare = w.places - int((bytes+block-1)/block)
	return true
}

// rest drops all state that may be wrong by the next turn.
func (w *worker) rest() {
	w.p.ring.clear()
	w.victims, w.idle = nil, true
}

// view returns the input of decide.
func (w *worker) view() view {
	c := w.p.o.Cache
	v := view{geometry: w.p.geometry, spare: w.spare, victims: len(w.victims), next: w.nextVictim, mayWrite: true}
	_, _, v.handed = w.p.ring.next()
	if len(w.victims) == 0 {
		return v
	}
	bytes := int64(0)
	for _, s := range w.nextRun() {
		bytes += c.Padded(s.index)
	}
	v.state, v.mayWrite, v.fits = w.victims[0].state, w.packing.May(bytes), w.fits(bytes, w.places)
	return v
}

// nextRun returns the samples of the first victim to move next: as many as fit the free arena blocks, but at least
// one.
func (w *worker) nextRun() []survivor {
	run, bytes := w.victims[0].run(w.buffer), int64(0)
	for n, s := range run {
		if bytes += w.p.o.Cache.Padded(s.index); n > 0 && !w.fits(bytes, w.places) {
			return run[:n]
		}
	}
	return run
}

// fits reports whether the free arena blocks are enough to move bytes out of a victim before any of its own blocks is
// freed.
func (w *worker) fits(bytes int64, places int) bool {
	return w.p.geometry.fits(bytes, int64(w.p.o.Cache.Format.Block), places)
}

// nextVictim returns the piece to empty next. It skips unfinished packages, and pieces that the free arena blocks are
// too few for. A package is freed as a whole, so its blocks must fit all of its live samples elsewhere. A segment is
// freed block by block, so room for one sample is enough.
func (w *worker) nextVictim() (piece, bool) {
	space := w.space(w.p.geometry.largest) // with room for the largest sample; otherwise such a sample would wait forever, and nothing would be emptied for it
	if !space.Tight() {
		return piece{}, false
	}
	var list pieces
	for num := range logfile.PackagesNum {
		switch {
		case w.p.o.Cache.Logfile(num) == nil:
		case w.fits(1, w.spare):
			list[num] = w.pieces[num]
		default: // without room for one sample, only an empty segment can be freed
			list[num] = slices.Clone(w.pieces[num])
			for number, p := range list[num] {
				if p.Live > 0 {
					list[num][number] = substitute.Piece{}
				}
			}
		}
	}
	packages := w.pieces[logfile.PackagesNum]
	finished := make([]substitute.Piece, len(packages))
	for _, number := range w.store.Finished() {
		if number < len(finished) && w.fits(packages[number].Live, w.spare) {
			finished[number] = packages[number]
		}
	}
	list[logfile.PackagesNum] = finished
	return nextVictim(&list, space)
}

// space returns the number of arena blocks, the number of spare ones, and the reserve for emptying and for a sample
// of n bytes.
func (w *worker) space(n int) substitute.Space {
	f := w.p.o.Cache.Format
	return substitute.Space{Places: f.Places, Free: w.spare, Reserve: w.p.geometry.reserve() + n/f.Block}
}

// apply does an action, and reports whether another may follow at once.
func (w *worker) apply(a action) (more bool) {
	switch a.kind {
	case actPack:
		index, data, _ := w.p.ring.next()
		w.packHanded(index, data)
		w.p.ring.taken()
		return true
	case actChoose:
		w.pieces.keep(a.piece) // not a victim until the next epoch
		w.victims = append(w.victims, &victim{log: w.p.o.Cache.Logfile(a.piece.num), piece: a.piece})
		return true
	case actScan:
		return w.scan()
	case actMove:
		return w.moveRun()
	case actKeep:
		w.victims[0].state = victimKept
		w.dropOver()
		return true
	}
	return false
}

// hasPackages reports whether there are packages to fill. It begins them if there are none.
func (w *worker) hasPackages() bool {
	c, o := w.p.o.Cache, &w.p.o
	packages, err := c.Store.Packages(), error(nil)
	if w.store != nil && w.store == packages {
		return true
	}
	switch {
	case packages != nil && !packages.Log().IsOlder() && packages.Log().Header().Open > 0:
	case packages != nil: // they belong to a replaced manifest, and ingest empties them
		return false
	default:
		g := &w.p.geometry
		if packages, err = g.begin(c); err == nil {
			o.Logger.Info("packing L-samples into packages", "packages", g.packages, "blocks", g.blocks, "open", g.open)
		}
	}
	if err == nil {
		err = o.Register(packages.Log())
	}
	if err != nil {
		w.fail("packing is paused: packages can't be created; samples stay where they are", err)
		return false
	}
	w.store = packages
	w.packing = substitute.NewPacking(max(packages.Open()-1, 1), o.Seed)
	w.count()
	return true
}

// fail logs an error and pauses the worker.
func (w *worker) fail(what string, err error) {
	if w.ctx.Err() == nil {
		w.p.o.Logger.Warn(what, "error", err)
	}
	w.pause = w.p.o.Now().Add(retryAfter)
}

// count counts the live bytes of all pieces again.
func (w *worker) count() {
	w.pieces = countPieces(w.p.o.Cache, w.high)
	for _, v := range w.victims {
		w.pieces.keep(v.piece)
	}
	w.p.setLoose(w.pieces.loose())
}

// packHanded packs a sample of the ring, unless it was packed meanwhile.
func (w *worker) packHanded(index sample.Index, data []byte) {
	c := w.p.o.Cache
	loc := c.Locations.Get(index)
	high := w.high.Has(index)
	s := sampleView{kept: c.Keeps(index), stored: loc != 0, high: high, short: w.space(len(data)).Short(), mayWrite: w.packing.May(c.Padded(index))}
	if num, number, _, ok := c.Locations.Split(loc); ok {
		s.packed = w.pieces.at(piece{num, number}).Holds()
	}
	if decideSample(s) != pack || !c.Sums.IsRight(index, data) { // a wrong checksum: the memory had another use before the sample was copied
		return
	}
	w.pack(index, loc, high, func(ctx context.Context, open int) (int, uint64, error) {
		return c.Pack(ctx, w.store, open, index, data)
	})
}

// pack puts a sample into a package and publishes its new location. put appends the bytes.
func (w *worker) pack(index sample.Index, from metaindex.Loc, high bool, put func(ctx context.Context, open int) (number int, off uint64, err error)) fate {
	c := w.p.o.Cache
	ctx, cancel := context.WithTimeout(w.ctx, w.p.o.AppendTimeout)
	defer cancel()
	number, off, err := put(ctx, min(w.packing.Choose(index, high), w.store.Open()-1))
	switch {
	case errors.Is(err, logfile.ErrFull):
		return never
	case err != nil:
		w.fail("packing is paused: a sample could not be written to a package; it stays where it is", err)
		return later
	}
	bytes := c.Padded(index) // the length of a compressed sample is known only after the append
	w.packing.Wrote(bytes)
	if w.pieces.wrote(number, off, bytes) {
		w.p.written.Add(1)
	}
	if !c.Locations.Move(index, from, c.Locations.At(logfile.PackagesNum, number, off)) { // the sample was lost meanwhile, and its copy is dead
		return pack
	}
	if num, old, _, ok := c.Locations.Split(from); ok {
		w.pieces.left(piece{num, old}, bytes, high)
	}
	w.pieces.arrived(number, bytes, high)
	return pack
}
