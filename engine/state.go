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

// A laterLayout is the epoch layout of a later epoch, made before its Logfile is begun.
type laterLayout struct {
	epoch  int
	order  *schedule.Order
	layout *chunker.EpochLayout
	stale  bool // the epoch's order changed while its Logfile was begun
}

type segState uint8

const (
	segAbsent segState = iota // not loaded in this scan
	segLoading
	segMoving // loaded, and no request will find its samples in the slot
	segDone   // loaded and, if there is a target, written to it
)

// machine is the epoch state machine: rule 1 of docs/architecture.md. cur is the older Logfile, which is scanned. tgt is being filled, and never changes
// while cur holds blocks. tgt is nil in the last epoch, or while the next order is not known; then cur stays as it is.
type machine struct {
	cur, tgt     *reorder.EpochLog
	unidentified *reorder.EpochLog // the newer recovered Logfile, while tgt is nil. It was being filled in an order that is not known yet.
	segs         []segState        // of cur
	loading      int               // segments
	reloading    int               // number of those segments that are in slots already
	emptying     map[int]bool      // packages being loaded for tgt
	drained      bool              // the scan continues without delivering

	requested bool                         // a request was received; before that, the wanted epoch is not known
	readEpoch int                          // the epoch that is read
	outlook   outlook                      // the last one that the mover or a request relied on
	logs      map[uint64]*reorder.EpochLog // by ID: the logs whose segments a slot may hold
	lastID    uint64
	layouts   map[int]*laterLayout      // by epoch: made ahead
	layingOut map[int]*reorder.EpochLog // by epoch: the log whose unused segments it carries, which is kept meanwhile; nil: none
	starting  *laterLayout              // being moved from layouts to tgt
	compared  map[*logfile.Logfile]int  // the order version that a Logfile in an unknown order was last compared with
	broken    error                     // why the next epoch could not be laid out
	brokenAt  time.Time
	begun     bool // a Logfile was begun since the server started

	relayout      relayout
	beginning     beginning // an epoch over a log in another order
	grace         grace     // for companions
	windowHitRate float64   // share of about the last 1,000 samples that were in the window
	paused        bool      // loading ahead does not help
	consumerWait  count.ConsumerWait
	evicted       int64 // number of segments
	sortBytes     int64 // bytes that sorts wrote into the epoch that is read
}

func newMachine() machine {
	return machine{logs: map[uint64]*reorder.EpochLog{}, layouts: map[int]*laterLayout{}, layingOut: map[int]*reorder.EpochLog{}, emptying: map[int]bool{},
		compared: map[*logfile.Logfile]int{}, windowHitRate: 1, relayout: relayout{switched: -1}}
}

// number gives a log a new number, also when a scan starts again. Engine.mu is held, unless the engine is being opened.
func (s *machine) number(l *reorder.EpochLog) {
	s.lastID++
	l.ID = s.lastID
	s.logs[l.ID] = l
}

// firstUnloaded returns the first segment with samples to deliver that is not loaded, from the slowest rank's segment on; -1: none.
func (s *machine) firstUnloaded(from int) int {
	for k := from; k < len(s.segs) && s.cur.Layout.Starts[k] < uint64(s.cur.Layout.Used); k++ {
		if s.segs[k] == segAbsent {
			return k
		}
	}
	return -1
}

// firstUnscanned returns the first segment that is not scanned; -1: none.
func (s *machine) firstUnscanned() int { return slices.Index(s.segs, segAbsent) }

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

// isBehind reports whether a smaller share of these segments is scanned than of others.
func (p *progress) isBehind(others progress) bool { return p.over*others.all < others.over*p.all }

// lateUnused returns the first unused segment of cur that is not scanned, if a smaller share of the unused segments is scanned than of the delivered ones;
// else -1. Carried segments take no disk time, so their share counts separately. cur has an epoch layout.
func (s *machine) lateUnused() int {
	carries := make([]bool, len(s.segs))
	if s.tgt != nil && s.tgt.Layout != nil && s.tgt.Layout.Before == s.cur.Layout {
		for _, c := range s.tgt.Layout.Carried {
			carries[c.From] = true
		}
	}
	var delivered, loaded, carried progress
	for k, state := range s.segs {
		switch {
		case !s.cur.Layout.IsUnused(k):
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

// isActive reports whether a rank has requested something lately, or holds a lease. held is by process.
func (r *rank) isActive(now time.Time, late time.Duration, held map[int]int64) bool {
	return !r.asked.IsZero() && (now.Sub(r.asked) < late || held[r.pid] > 0)
}

// updateReadEpoch decides which epoch is read, and keeps the orders of the ranks' epochs. e.mu is held.
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

// heldInOrder returns the size of the blocks that a sort moves to the next Logfile. Packages count, unless they stay because the owner packs. e.mu is
// held.
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

// isSparse reports whether a sort would move less than half of the samples that the log should keep. Then the current epoch is laid out as it is, and
// read from the source in its order instead of by index. e.mu is held.
func (e *Engine) isSparse() bool {
	kept := e.cache.Record.KeptBytes
	if bytes := e.cache.Manifest.Bytes(); e.cache.Record.IsPacked() && bytes > 0 {
		kept = uint64(float64(kept) * float64(e.cache.Record.Stored) / float64(bytes))
	}
	return e.heldInOrder() < kept/2
}

// reordered handles a changed order of an epoch. It matters for the owner's layouts. A layout without a Logfile is made again. If a rank has replaced
// its own order, a Logfile in the old order belongs to no epoch, and is sorted again. If one more rank has pushed an order, the Logfile is still good
// for the others.
func (e *Engine) reordered(j *job, epoch int, replaced bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.forgetComparison(j, epoch)
	if j != e.owner {
		return
	}
	if l := e.layouts[epoch]; l != nil {
		delete(e.layouts, epoch)
		l.layout.Free()
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
