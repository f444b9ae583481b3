package engine

import (
	"fmt"
	"slices"

	"lcache/internal/plan"
	"lcache/reorder"
)

// view is all that the mover's next step depends on, as it is at one moment. A decision changes nothing of it, so that every case of rule 1 is a
// paragraph of testdata/decide.txt.
type view struct {
	requested bool // a request has come
	readEpoch int  // the epoch that is read: see epochRead

	cur, tgt     logView
	unidentified bool // there is a second Logfile, in an unknown order
	comparable   bool // the order of cur's or the unidentified Logfile's epoch is known, and was not compared with it

	unloaded int // the first segment of cur with samples to deliver that is not loaded, from the hindmost rank on; -1: none
	unswept  int // the first segment of cur that the pass has not gone over; -1: none
	rest     int // the first segment of cur's rest that the pass has not gone over, while it has gone over more of what is delivered; -1: none
	loading  int // segments
	inSlots  int // of those that are loading: they lie in slots, and the disk is not asked for them

	inTime   bool        // a rank is to be served from the window
	pack     int         // a package to be moved to the target, because the owner puts no samples into packages; -1: none
	hollow   bool        // there are packages, and nothing is in them
	paused   bool        // loading ahead is of no use
	mayBegin bool        // a Logfile can be begun: the devices take blocks, and no attempt has failed lately
	inPlace  bool        // the layout is static now: a log that holds most of what it is to hold stays as it is
	packs    bool        // what the owner reads stays in place, or is put into packages: no Logfile is begun, however little there is in one
	choice   plan.Choice // where the log that is read is full and not in the order of an epoch near: what becomes of it
	sorting  bool        // the target is the epoch that is read, and the log held much when that began

	sparse   func() bool          // cur holds less than half of what it is to keep
	complete func(epoch int) bool // an epoch's order is known of all ranks
	laidOut  func(epoch int) bool // its line is ready
}

// logView is one Logfile.
type logView struct {
	exists bool
	epoch  int // -1: in the order of no epoch that is known
}

type actionKind uint8

const (
	actWait    actionKind = iota
	actLoad               // a segment
	actCompare            // a Logfile in an unknown order with the order that its epoch has now
	actUnorder            // the second Logfile, in an order that is not known, becomes packages
	actBegin              // the Logfile of an epoch
	actSwap               // the target becomes the log that is read
	actEmpty              // a package goes to the target
	actDrop               // the packages, which are empty
	actTakeUp             // the Logfiles are read and written in order from now on; not decided by a view
)

// action is the mover's next step, and why it is taken.
type action struct {
	kind   actionKind
	epoch  int         // with actBegin
	seg    int         // with actLoad; with actEmpty a package
	use    reorder.Use // with actLoad
	layOut int         // an epoch to lay out meanwhile; -1: none
	late   bool        // ranks that have not come past cur's epoch are served by index from now on
	why    string
}

func (a action) String() string {
	text := ""
	switch a.kind {
	case actWait:
		text = "wait"
	case actLoad:
		text = fmt.Sprintf("load segment %d", a.seg)
		text += map[reorder.Use]string{reorder.Drain: ", drained", reorder.Move: ", moved"}[a.use]
	case actCompare:
		text = "compare"
	case actUnorder:
		text = "unorder"
	case actBegin:
		text = fmt.Sprintf("begin the Logfile of epoch %d", a.epoch)
	case actSwap:
		text = "swap"
	case actEmpty:
		text = fmt.Sprintf("move package %d", a.seg)
	case actDrop:
		text = "drop the packages"
	case actTakeUp:
		text = "take up the Logfiles"
	}
	if a.layOut >= 0 {
		text += fmt.Sprintf("; lay out epoch %d", a.layOut)
	}
	if a.late {
		text += "; ranks behind are late"
	}
	return text
}

// decide is the mover's next step: rule 1 of docs/architecture.md.
func decide(v view) action {
	wait := func(why string) action { return action{layOut: -1, why: why} }
	switch {
	case !v.cur.exists:
		return wait("there is no Logfile")
	case !v.requested:
		return wait("which epoch is wanted is known with the first request")
	case !v.tgt.exists && v.comparable:
		return action{kind: actCompare, layOut: -1, why: "it may be in the order of an epoch after all"}
	}
	if n := v.next(); !v.tgt.exists && n >= 0 {
		switch {
		case v.loading > 0 && (v.unidentified || v.laidOut(n)):
			return wait("segments that are loaded now have no target")
		case v.unidentified:
			return action{kind: actUnorder, layOut: -1, why: fmt.Sprintf("epoch %d needs the place of the Logfile whose order is not known", n)}
		case !v.laidOut(n):
			return action{layOut: n, why: "without a target loading would have to be done again"}
		}
		return action{kind: actBegin, epoch: n, layOut: -1, why: "its line is ready"}
	}
	a := v.advance()
	a.layOut = -1
	if n := v.tgt.epoch + 1; v.tgt.exists && v.tgt.epoch >= 0 && !v.inPlace && !v.packs && v.complete(n) && !v.laidOut(n) {
		a.layOut = n // ready before the target is read
	}
	return a
}

// advance goes on with the pass over cur.
func (v *view) advance() action {
	windowed := v.inWindow() && !v.goesBack()
	switch {
	case v.tgt.exists && v.pack >= 0 && v.loading < maxLoading:
		return action{kind: actEmpty, seg: v.pack, late: true, why: "what is in packages would find no place as long as these have them"}
	case v.tgt.exists && v.pack >= 0:
		return action{why: "enough packages are being moved"}
	case v.tgt.exists && v.hollow && v.loading == 0:
		return action{kind: actDrop, why: "nothing is in them"}
	case windowed && !v.paused && v.inTime && v.unloaded >= 0 && v.tgt.exists && v.rest >= 0:
		return v.load(v.rest, reorder.Move, "the rest keeps step: else the next epoch would wait for it")
	case windowed && !v.paused && v.inTime && v.unloaded >= 0:
		return v.load(v.unloaded, reorder.Deliver, "a rank comes to it")
	case v.tgt.exists && v.unswept >= 0 && !windowed:
		a := v.load(v.unswept, reorder.Drain, "no rank reads this epoch in place")
		a.late = a.kind == actLoad
		return a
	case v.tgt.exists && v.unswept >= 0 && v.unloaded < 0:
		return v.load(v.unswept, reorder.Drain, "all that is delivered is loaded")
	case !v.tgt.exists && v.packs:
		return action{why: "no order is promised: samples lie in packages, or come to lie there"}
	case !v.tgt.exists && v.inPlace:
		return action{why: "samples stay in place"}
	case !v.tgt.exists && v.isOpen():
		return action{why: "nothing is written before it is known that it pays"}
	case !v.tgt.exists:
		return action{why: "nothing is to be written on"}
	case v.unswept >= 0 && v.paused:
		return action{why: "requests match the window too seldom"}
	case v.unswept >= 0:
		return action{why: "no rank is to be served from the window"}
	case v.loading > 0:
		return action{why: "the last segments are being loaded"}
	case v.isAhead():
		return action{why: "the window would lose the epoch that is read"}
	}
	return action{kind: actSwap, why: "all of it is written on"}
}

func (v *view) load(seg int, use reorder.Use, why string) action {
	if v.loading-v.inSlots >= maxLoading {
		return action{why: "enough segments are being loaded"}
	}
	return action{kind: actLoad, seg: seg, use: use, why: why}
}

// outlook is what a request that waits for the pass counts on: the epoch that is read, and the one that the pass comes to next; -1: none.
type outlook struct{ readEpoch, next int }

// outlook: see its type. A target that the pass does not come to is not counted on: ranks that went back to an epoch, and of which one has passed
// it, would wait for each other. So would ranks of which one goes back behind the epoch that is read, while the log is one ahead of it.
func (v *view) outlook() outlook {
	next := v.tgt.epoch
	switch {
	case !v.tgt.exists:
		if next = v.next(); next == v.readEpoch && !v.sparse() { // the log is about to be sorted: as while it is, the prefetcher serves
			next = -1
		}
	case v.rests(), v.isAhead(), v.sorting:
		next = -1
	}
	return outlook{v.readEpoch, next}
}

// rests reports whether the pass does not go on before a rank is to be served from the window.
func (v *view) rests() bool {
	return v.inWindow() && !v.goesBack() && v.unloaded >= 0 && (v.paused || !v.inTime)
}

// next is the epoch to lay out in the place that is free; -1: none.
func (v *view) next() int {
	if !v.cur.exists || !v.mayBegin || v.packs || v.inPlace && !v.sparse() {
		return -1
	}
	n := v.readEpoch + 1
	switch {
	case v.inWindow():
		n = v.cur.epoch + 1
	case v.sparse() && v.complete(v.readEpoch):
		n = v.readEpoch
	case v.isOpen():
		return -1
	case v.choice == plan.Sort && !v.sparse() && v.complete(v.readEpoch):
		n = v.readEpoch
	}
	if n == v.cur.epoch || !v.complete(n) {
		return -1
	}
	return n
}

// isOpen reports whether it is not decided yet what becomes of a full log in another order than that of the epoch that is read.
func (v *view) isOpen() bool {
	return v.cur.exists && !v.inWindow() && !v.sparse() && v.choice == plan.Wait
}

// isInOtherOrder reports whether requests are served from a full log in another order than that of the epoch that is read or the next one, and no Logfile is being filled.
func (v *view) isInOtherOrder() bool {
	return v.requested && v.cur.exists && !v.tgt.exists && !v.inPlace && !v.inWindow() && !v.sparse()
}

// inWindow reports whether cur's epoch is the one that is read or the next one.
func (v *view) inWindow() bool {
	return v.cur.epoch >= 0 && (v.cur.epoch == v.readEpoch || v.cur.epoch == v.readEpoch+1)
}

// isAhead reports whether cur's epoch is the one after that which is read: the pass begins no other before ranks come to it.
func (v *view) isAhead() bool { return v.inWindow() && !v.goesBack() && v.cur.epoch == v.readEpoch+1 }

// goesBack reports whether the log is on its way from a later epoch to the one that is read, because a job began again: no rank wants the segments
// that are loaded before the log is there.
func (v *view) goesBack() bool {
	return v.tgt.exists && v.tgt.epoch == v.readEpoch && v.cur.epoch > v.readEpoch
}

// readView is the state that the epoch that is read follows from.
type readView struct {
	at, in []int // the epochs that active ranks ask for next, and that they are in
	cur    int   // the epoch of the log that is read; -1: it has none
	tgt    logView
	before int // the epoch that was read
}

// needed lists the epochs whose orders are used: those that ranks are in or come to, the one that is read and the one after it, and the one after the target's.
func (v *readView) needed(read int) []int {
	needed := slices.Concat(v.in, v.at, []int{read, read + 1})
	if v.tgt.exists {
		needed = append(needed, v.tgt.epoch+1)
	}
	return needed
}

// epochRead is the epoch that is read: cur's as long as an active rank is in it, else the furthest that one of them asks for, else the one before.
func epochRead(active []int, cur, before int) int {
	furthest := before
	for i, at := range active {
		if at == cur {
			return cur
		}
		if i == 0 || at > furthest {
			furthest = at
		}
	}
	return furthest
}
