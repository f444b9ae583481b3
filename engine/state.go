package engine

import (
	"slices"
	"time"

	"lcache/chunker"
	"lcache/engine/internal/count"
	"lcache/internal/serve/schedule"
	"lcache/logfile"
	"lcache/reorder"
)

// A layout is the line of a later epoch, laid out before its Logfile is begun.
type layout struct {
	epoch int
	order *schedule.Order
	line  *chunker.Line
	stale bool // the epoch's order was changed while its Logfile was begun
}

type segState uint8

const (
	segAbsent segState = iota // not loaded in this pass
	segLoading
	segMoving // loaded, and no request will find its samples in the slot
	segDone   // loaded and, with a target, written on
)

// machine is the epoch state machine: rule 1 of docs/architecture.md. cur is the older Logfile, which the pass goes over; tgt is being filled, and
// never changes while cur holds blocks. tgt is nil when nothing is to be written on: in the last epoch, or while the next order is not known;
// then cur stays as it is.
type machine struct {
	cur, tgt     *reorder.EpochLog
	unidentified *reorder.EpochLog // the newer Logfile that was recovered, while there is no tgt: it was being filled for an order that is not known yet
	segs         []segState        // of cur
	loading      int               // segments
	reloading    int               // of them, those that lie in slots already
	emptying     map[int]bool      // packages that were loaded for tgt
	drained      bool              // the pass goes on undelivered

	requested bool                         // a request has come: before, the wanted epoch is not known
	readEpoch int                          // the epoch that is read
	outlook   outlook                      // the last that the mover or a request counted on
	logs      map[uint64]*reorder.EpochLog // by ID: those that a slot may hold
	lastID    uint64
	layouts   map[int]*layout           // by epoch, made ahead
	layingOut map[int]*reorder.EpochLog // by epoch: the log that it goes on with, which is kept meanwhile; nil: none
	starting  *layout                   // on its way from layouts to tgt
	compared  map[*logfile.Logfile]int  // the order version that a Logfile in an unknown order was last compared with
	broken    error                     // the next epoch could not be laid out
	brokenAt  time.Time
	begun     bool // a Logfile, since the server started

	relayout      relayout
	beginning     beginning // of an epoch over a log in another order
	grace         grace     // for companions
	windowHitRate float64   // share of about the last 1,000 samples that lay in the window
	paused        bool      // loading ahead is of no use
	consumerWait  count.ConsumerWait
	evicted       int64 // segments
	sortBytes     int64 // written by sorts into the epoch that is read
}

func newMachine() machine {
	return machine{logs: map[uint64]*reorder.EpochLog{}, layouts: map[int]*layout{}, layingOut: map[int]*reorder.EpochLog{}, emptying: map[int]bool{},
		compared: map[*logfile.Logfile]int{}, windowHitRate: 1, relayout: relayout{tookUp: -1}}
}

// number gives a log, or a pass that begins again, a number of its own. Engine.mu is held, unless the engine is being opened.
func (s *machine) number(l *reorder.EpochLog) {
	s.lastID++
	l.ID = s.lastID
	s.logs[l.ID] = l
}

// firstUnloaded is the first segment with samples to deliver that is not loaded, from the one that the hindmost rank is at; -1: none.
func (s *machine) firstUnloaded(from int) int {
	for k := from; k < len(s.segs) && s.cur.Line.Starts[k] < uint64(s.cur.Line.Used); k++ {
		if s.segs[k] == segAbsent {
			return k
		}
	}
	return -1
}

// firstUnswept is the first segment that this pass has not gone over; -1: none.
func (s *machine) firstUnswept() int { return slices.Index(s.segs, segAbsent) }

// progress is how many of some segments the scan has passed.
type progress struct {
	all, over int // segments, and scanned segments
	next      int // with over < all: the first segment that is not scanned
}

// add counts a segment. Segments are added in order.
func (p *progress) add(seg int, state segState) {
	if p.over == p.all {
		p.next = seg
	}
	p.all++
	if state != segAbsent {
		p.over++
	}
}

// isBehind reports whether a smaller share of these segments is scanned than of others. Then there is a next one.
func (p *progress) isBehind(others progress) bool { return p.over*others.all < others.over*p.all }

// lateRest returns the first of cur's unused segments that is not scanned, if a smaller share of them is scanned than of the delivered segments; -1: the share is not smaller. Carried segments take
// the disk no time, so their share counts on its own. cur has an epoch layout.
func (s *machine) lateRest() int {
	carries := make([]bool, len(s.segs))
	if s.tgt != nil && s.tgt.Line != nil && s.tgt.Line.Before == s.cur.Line {
		for _, c := range s.tgt.Line.Carried {
			carries[c.From] = true
		}
	}
	var delivered, loaded, carried progress
	for k, state := range s.segs {
		switch {
		case !s.cur.Line.IsRest(k):
			delivered.add(k, state)
		case carries[k]:
			carried.add(k, state)
		default:
			loaded.add(k, state)
		}
	}
	for _, rest := range []progress{loaded, carried} {
		if rest.isBehind(delivered) {
			return rest.next
		}
	}
	return -1
}

// isActive reports whether a rank has asked lately, or holds something; held is by process.
func (r *rank) isActive(now time.Time, late time.Duration, held map[int]int64) bool {
	return !r.asked.IsZero() && (now.Sub(r.asked) < late || held[r.pid] > 0)
}

// updateReadEpoch decides which epoch is read, and keeps the orders that the ranks are in. e.mu is held.
func (e *Engine) updateReadEpoch() {
	held, now := e.deliver.Held(), e.now()
	v := readView{cur: -1, tgt: viewOf(e.tgt), before: e.readEpoch}
	if e.cur != nil {
		v.cur = e.cur.Epoch
	}
	for _, r := range e.owner.ranks {
		if r.isActive(now, e.opts.LateEpoch, held) {
			v.at, v.in = append(v.at, e.owner.at(r)), append(v.in, r.epoch)
		}
	}
	if back := slices.ContainsFunc(v.at, func(at int) bool { return at < v.cur }); !back {
		for j, r := range e.windowRanks(v.cur) {
			if j != e.owner && !r.outOfWindow && j.at(r) == v.cur && r.isActive(now, e.opts.LateEpoch, held) {
				v.at = append(v.at, v.cur)
			}
		}
	}
	e.readEpoch = epochRead(v.at, v.cur, v.before)
	e.owner.schedule.SetNeeded(v.needed(e.readEpoch))
}

// heldInOrder is how many bytes the blocks have that a sort moves to the next Logfile. Packages are among them, unless they stay because the owner packs. e.mu is held.
func (e *Engine) heldInOrder() uint64 {
	held := e.cur.Log.Held()
	if e.unidentified != nil {
		held += e.unidentified.Log.Held()
	}
	if p := e.cache.Store.Packages(); p != nil && !e.packsNow() {
		held += p.Log().Held()
	}
	return held
}

// isSparse reports whether the samples that a sort would move are less than half of what the log is to keep: then the epoch that is read is laid out for itself, and
// read from the source in its order, instead of by index. e.mu is held.
func (e *Engine) isSparse() bool {
	kept := e.cache.Record.KeptBytes
	if bytes := e.cache.Manifest.Bytes(); e.cache.Record.IsPacked() && bytes > 0 {
		kept = uint64(float64(kept) * float64(e.cache.Record.Stored) / float64(bytes))
	}
	return e.heldInOrder() < kept/2
}

// reordered: an epoch of a job has another order than it had. That concerns the owner's lines. A line that has no Logfile yet is laid out again. Where a rank has replaced its own
// order, a Logfile in the old order belongs to no epoch, and is sorted again; where one more rank has pushed an order the Logfile is still good for
// the others.
func (e *Engine) reordered(j *job, epoch int, replaced bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.forgetLikeness(j, epoch)
	if j != e.owner {
		return
	}
	if l := e.layouts[epoch]; l != nil {
		delete(e.layouts, epoch)
		l.line.Free()
	}
	if !replaced {
		return
	}
	if e.starting != nil && e.starting.epoch == epoch {
		e.starting.stale = true
	}
	for _, l := range e.logs {
		if l.Epoch == epoch {
			l.Epoch = -1
		}
	}
}
