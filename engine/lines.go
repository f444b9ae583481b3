package engine

import (
	"fmt"
	"slices"
	"time"
	"unsafe"

	"lcache/chunker"
	"lcache/logfile"
	"lcache/reorder"
	"lcache/sample"
	"lcache/schedule"
)

// identify finds out which epoch of this job a recovered Logfile is for. One in an order that the job does not have can still be
// read, and re-sorted.
func (e *Engine) identify(l *logfile.Logfile) (*epochLine, error) {
	h := l.Header()
	el := &epochLine{epoch: -1, line: &reorder.Line{Log: l, Slot: l.Slot(), Starts: h.Starts}}
	if l.IsOlder() {
		return el, nil // the order of its samples may have kept its name, but not their number
	}
	order, epoch, err := e.cache.Schedule.Identify(e.ctx, int(h.Epoch), h.Key, e.opts.LateEpoch)
	if order == nil || err != nil {
		return el, err
	}
	geo, err := e.cache.NewLine(order, l)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(geo.Starts, h.Starts) {
		geo.Free()
		return el, nil
	}
	el.epoch, el.order, el.geo = epoch, order, geo
	el.line.Order = geo.Order
	return el, nil
}

// restore takes up the Logfiles that the store recovered: the older is read, the newer is being filled.
func (e *Engine) restore(forced *schedule.Order, from *logfile.Logfile) error {
	e.newState()
	e.forced, e.from = forced, from
	var found []*epochLine
	for slot, l := range e.cache.Store.Logfiles() {
		if l == nil {
			continue
		}
		if l.Empty() && e.cache.OtherHolds(slot) {
			if err := e.cache.Store.Drop(slot); err != nil {
				return err
			}
			continue
		}
		if err := e.register(l); err != nil {
			return err
		}
		el, err := e.identify(l)
		if err != nil {
			return err
		}
		if forced != nil {
			el.line.Order = nil // what it lacks is ingest's to read
		}
		e.adopt(el)
		found = append(found, el)
	}
	if len(found) == 2 {
		if found[0].line.Log.Generation() > found[1].line.Log.Generation() {
			found[0], found[1] = found[1], found[0]
		}
		if found[1].geo == nil {
			e.stray, found = found[1], found[:1]
		}
	}
	if len(found) == 2 {
		e.tgt = found[1]
		if err := e.aim(e.tgt); err != nil {
			return err
		}
	}
	if len(found) > 0 {
		e.cur = found[0]
		e.segs = make([]segState, e.cur.line.Log.Header().Segments)
		e.reading = max(e.cur.epoch, 0)
	}
	if e.stray != nil && forced != nil && e.inForcedOrder() { // to join them would undo the order
		if err := e.dropStray(); err != nil {
			return err
		}
	}
	if e.tgt == nil && e.stray == nil && forced == nil {
		e.startFilling(e.cur)
	}
	return nil
}

func (e *Engine) newState() {
	e.state = state{ranks: map[int]*rank{}, lines: map[uint64]*epochLine{}, built: map[int]*epochLine{}, building: map[int]bool{}, matched: 1}
	for _, r := range e.cache.Schedule.Local() {
		e.ranks[r] = &rank{}
	}
}

// register makes a Logfile's write buffers known to the I/O engine. Logfiles of one slot use the same ones, unless a later one
// needs more.
func (e *Engine) register(l *logfile.Logfile) error {
	have := &e.buffers[l.Slot()]
	want := l.Buffers()
	if unsafe.SliceData(*have) == unsafe.SliceData(want) && len(*have) == len(want) {
		return nil
	}
	if *have != nil {
		if err := e.cache.IO.Unregister(*have); err != nil {
			return err
		}
	}
	*have = want
	if len(want) == 0 {
		return nil
	}
	return e.cache.IO.Register(want)
}

// forgetSlot makes misses of everything whose place is in a slot.
func (e *Engine) forgetSlot(slot int) {
	for i := range e.cache.Manifest.Len() {
		if loc := e.cache.Locations.Get(sample.Index(i)); e.cache.Locations.In(sample.Index(i), slot) {
			e.cache.Locations.Clear(sample.Index(i), loc)
		}
	}
}

// adopt numbers a line that has a Logfile, or whose pass begins anew.
func (e *Engine) adopt(el *epochLine) {
	e.lineID++
	el.line.ID = e.lineID
	e.lines[el.line.ID] = el
}

// aim makes a line the target: what it holds already is not routed again.
func (e *Engine) aim(el *epochLine) (err error) {
	if el.route, err = reorder.NewRouter(el.geo.Segment); err != nil {
		return err
	}
	for i := range e.cache.Manifest.Len() {
		if e.cache.Locations.In(sample.Index(i), el.line.Slot) {
			el.route.Claim(sample.Index(i))
		}
	}
	return nil
}

// prepare lays out an epoch beside the pass; the mover is woken when it is done. e.mu is held.
func (e *Engine) prepare(epoch int) {
	if e.built[epoch] != nil || e.building[epoch] {
		return
	}
	e.building[epoch] = true
	forced := e.forced
	e.builders.Add(1)
	go func() {
		defer e.builders.Done()
		order := forced
		var err error
		if order == nil {
			order, err = e.cache.Schedule.Order(e.ctx, epoch)
		}
		var geo *chunker.Line
		if err == nil {
			geo, err = e.cache.NewLine(order, nil)
		}
		e.mu.Lock()
		delete(e.building, epoch)
		switch {
		case err == nil && order != forced && !e.cache.Schedule.IsCurrent(epoch, order):
			geo.Free()
		case err == nil:
			e.built[epoch] = &epochLine{epoch: epoch, order: order, geo: geo}
		default:
			e.broken, e.brokenAt = fmt.Errorf("lay out epoch %d: %w", epoch, err), time.Now()
		}
		e.mu.Unlock()
		if err != nil && e.ctx.Err() == nil {
			e.cache.Logger.Error("the next epoch can't be laid out; samples stay where they are", "epoch", epoch, "error", err)
		}
		e.nudge()
	}()
}

// retire frees the layouts that no slot holds any more.
func (e *Engine) retire() {
	alive := map[uint64]bool{}
	e.staging.Holders(e.noteOwner(alive))
	e.mu.Lock()
	defer e.mu.Unlock()
	used := map[*epochLine]bool{e.cur: true, e.tgt: true, e.stray: true}
	for id, el := range e.lines {
		used[el] = used[el] || alive[id]
	}
	for id, el := range e.lines {
		if alive[id] || used[el] && id == el.line.ID {
			continue
		}
		delete(e.lines, id)
		if !used[el] && id == el.line.ID {
			el.free()
		}
	}
	for epoch, el := range e.built { // ranks that jump leave layouts behind
		if epoch != e.next() && (e.tgt == nil || epoch != e.tgt.epoch+1) {
			delete(e.built, epoch)
			el.free()
		}
	}
}

// freeLines gives back all layouts. Nothing may read or move.
func (e *Engine) freeLines() {
	all := map[*epochLine]bool{e.cur: true, e.tgt: true, e.stray: true, e.begins: true}
	for _, el := range e.lines {
		all[el] = true
	}
	for _, el := range e.built {
		all[el] = true
	}
	delete(all, nil)
	for el := range all {
		el.free()
	}
}
