package engine

import (
	"fmt"
	"slices"

	"lcache/internal/plan"
	"lcache/reorder"
)

// view has everything that the mover's next step depends on, at one moment. decide does not change it. Every case of rule 1 is a paragraph of
// testdata/decide.txt.
type view struct {
	requested bool // a request has come
	readEpoch int  // the epoch that is read: see epochRead

	cur, tgt     logView
	unidentified bool // there is a second Logfile, in an unknown order
	comparable   bool // the order of cur's epoch, or of the unidentified Logfile's, is known and was not compared with the Logfile yet

	unloaded  int // the first segment of cur with samples to deliver that is not loaded, from the slowest rank on; -1: none
	unscanned int // the first segment of cur that is not scanned; -1: none
	unused    int // the first unused segment of cur that is not scanned, while a larger share of the delivered segments is scanned; -1: none
	loading   int // number of segments being loaded
	inSlots   int // of these, segments already in slots: they need no disk read

	inTime   bool        // the window serves a rank
	pack     int         // a package to move to the target, because the owner does not use packages; -1: none
	hollow   bool        // there are packages, and all are empty
	paused   bool        // loading ahead does not help
	mayBegin bool        // a Logfile can be begun: the devices accept blocks, and no attempt has failed lately
	inPlace  bool        // the layout is static now: a log that holds most of its samples stays as it is
	packs    bool        // the owner's samples stay in place or move into packages: no Logfile is begun, however few samples one holds
	choice   plan.Choice // for a full log that is not in the order of a near epoch: whether to sort it
	sorting  bool        // the target is the epoch that is read, and the log held much when the target was begun

	sparse   func() bool          // cur holds less than half of the samples that it should keep
	complete func(epoch int) bool // the order of an epoch is known for all ranks
	laidOut  func(epoch int) bool // the epoch's layout is ready
}

// logView describes one Logfile.
type logView struct {
	exists bool
	epoch  int // -1: not in the order of a known epoch
}

type actionKind uint8

const (
	actWait        actionKind = iota
	actLoad                   // load a segment
	actCompare                // compare a Logfile in an unknown order with the order that its epoch has now
	actUnorder                // turn the second Logfile, in an unknown order, into packages
	actBegin                  // begin the Logfile of an epoch
	actSwap                   // make the target the log that is read
	actEmpty                  // move a package to the target
	actDrop                   // drop the packages, which are all empty
	actSwitchToLog            // begin to read and write the Logfiles in order; decide does not return it
)

// action is the mover's next step, and the reason for it.
type action struct {
	kind   actionKind
	epoch  int         // with actBegin
	seg    int         // with actLoad; a package with actEmpty
	use    reorder.Use // with actLoad
	layOut int         // an epoch to lay out meanwhile; -1: none
	late   bool        // ranks that have not passed cur's epoch are served by index from now on
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
	case actSwitchToLog:
		text = "switch to the log layout"
	}
	if a.layOut >= 0 {
		text += fmt.Sprintf("; lay out epoch %d", a.layOut)
	}
	if a.late {
		text += "; ranks behind leave the window"
	}
	return text
}

// decide returns the mover's next step: rule 1 of docs/architecture.md.
func decide(v view) action {
	wait := func(why string) action { return action{layOut: -1, why: why} }
	switch {
	case !v.cur.exists:
		return wait("there is no Logfile")
	case !v.requested:
		return wait("no request has come, so the epoch to read is not known")
	case !v.tgt.exists && v.comparable:
		return action{kind: actCompare, layOut: -1, why: "it may be in the order of a known epoch"}
	}
	if n := v.next(); !v.tgt.exists && n >= 0 {
		switch {
		case v.loading > 0 && (v.unidentified || v.laidOut(n)):
			return wait("the segments being loaded were loaded without a target")
		case v.unidentified:
			return action{kind: actUnorder, layOut: -1, why: fmt.Sprintf("the log of epoch %d needs the room of the Logfile in an unknown order", n)}
		case !v.laidOut(n):
			return action{layOut: n, why: "segments loaded without a target would be loaded again"}
		}
		return action{kind: actBegin, epoch: n, layOut: -1, why: "its layout is ready"}
	}
	a := v.advance()
	a.layOut = -1
	if n := v.tgt.epoch + 1; v.tgt.exists && v.tgt.epoch >= 0 && !v.inPlace && !v.packs && v.complete(n) && !v.laidOut(n) {
		a.layOut = n // ready before the target is read
	}
	return a
}

// advance continues the scan of cur.
func (v *view) advance() action {
	windowed := v.inWindow() && !v.goesBack()
	switch {
	case v.tgt.exists && v.pack >= 0 && v.loading < maxLoading:
		return action{kind: actEmpty, seg: v.pack, late: true, why: "the target needs the arena blocks of the packages"}
	case v.tgt.exists && v.pack >= 0:
		return action{why: "enough packages are being moved"}
	case v.tgt.exists && v.hollow && v.loading == 0:
		return action{kind: actDrop, why: "they are empty"}
	case windowed && !v.paused && v.inTime && v.unloaded >= 0 && v.tgt.exists && v.unused >= 0:
		return v.load(v.unused, reorder.Move, "fewer of the unused segments are scanned, and the next epoch would wait for them")
	case windowed && !v.paused && v.inTime && v.unloaded >= 0:
		return v.load(v.unloaded, reorder.Deliver, "a rank needs it next")
	case v.tgt.exists && v.unscanned >= 0 && !windowed:
		a := v.load(v.unscanned, reorder.Drain, "the window serves no rank in this epoch")
		a.late = a.kind == actLoad
		return a
	case v.tgt.exists && v.unscanned >= 0 && v.unloaded < 0:
		return v.load(v.unscanned, reorder.Drain, "all delivered segments are loaded")
	case !v.tgt.exists && v.packs:
		return action{why: "samples are in packages, or will be moved there"}
	case !v.tgt.exists && v.inPlace:
		return action{why: "samples stay in place"}
	case !v.tgt.exists && v.isOpen():
		return action{why: "not decided yet whether a sort pays"}
	case !v.tgt.exists:
		return action{why: "there is no target to write to"}
	case v.unscanned >= 0 && v.paused:
		return action{why: "too few requests match the window"}
	case v.unscanned >= 0:
		return action{why: "the window serves no rank"}
	case v.loading > 0:
		return action{why: "the last segments are being loaded"}
	case v.isAhead():
		return action{why: "a rank still reads this epoch from the window"}
	}
	return action{kind: actSwap, why: "all its samples are written to the target"}
}

func (v *view) load(seg int, use reorder.Use, why string) action {
	if v.loading-v.inSlots >= maxLoading {
		return action{why: "enough segments are being loaded"}
	}
	return action{kind: actLoad, seg: seg, use: use, why: why}
}

// outlook has the epochs that a request relies on while it waits for the scan: the epoch that is read, and the next epoch of the scan; -1: none.
type outlook struct{ readEpoch, next int }

// outlook returns the outlook. It leaves out a target that the scan does not come to. Otherwise two ranks that went back to an epoch would wait for
// each other after one of them has passed it. So would ranks if one goes back before the epoch that is read while the log is one epoch ahead.
func (v *view) outlook() outlook {
	next := v.tgt.epoch
	switch {
	case !v.tgt.exists:
		if next = v.next(); next == v.readEpoch && !v.sparse() { // the log is about to be sorted: the prefetcher serves, as it does during a sort
			next = -1
		}
	case v.isSuspended(), v.isAhead(), v.sorting:
		next = -1
	}
	return outlook{v.readEpoch, next}
}

// isSuspended reports whether the scan is suspended until the window serves a rank.
func (v *view) isSuspended() bool {
	return v.inWindow() && !v.goesBack() && v.unloaded >= 0 && (v.paused || !v.inTime)
}

// next returns the epoch to lay out in the free Logfile; -1: none.
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

// isOpen reports that the log is full and in another order than the epoch that is read, and that it is not decided yet whether to sort it.
func (v *view) isOpen() bool {
	return v.cur.exists && !v.inWindow() && !v.sparse() && v.choice == plan.Wait
}

// isInOtherOrder reports that requests are served from a full log whose order is neither that of the epoch that is read nor that of the next one, while
// no Logfile is being filled.
func (v *view) isInOtherOrder() bool {
	return v.requested && v.cur.exists && !v.tgt.exists && !v.inPlace && !v.inWindow() && !v.sparse()
}

// inWindow reports whether cur's epoch is the one that is read or the next one.
func (v *view) inWindow() bool {
	return v.cur.epoch >= 0 && (v.cur.epoch == v.readEpoch || v.cur.epoch == v.readEpoch+1)
}

// isAhead reports whether cur's epoch is the one after the epoch that is read. The scan begins no other epoch before ranks come to it.
func (v *view) isAhead() bool { return v.inWindow() && !v.goesBack() && v.cur.epoch == v.readEpoch+1 }

// goesBack reports whether the log is being reordered from a later epoch back to the one that is read, because a job began again. Until that is done, no
// rank needs the loaded segments.
func (v *view) goesBack() bool {
	return v.tgt.exists && v.tgt.epoch == v.readEpoch && v.cur.epoch > v.readEpoch
}

// readView is the state that determines which epoch is read.
type readView struct {
	at, in []int // for each active rank, the epoch that it requests next, and the epoch that it is in
	cur    int   // the epoch of the log that is read; -1: none
	tgt    logView
	before int // the epoch that was read before
}

// needed lists the epochs whose orders are used: epochs that ranks are in or come to, the epoch that is read and the next one, and the one after the
// target's.
func (v *readView) needed(read int) []int {
	needed := slices.Concat(v.in, v.at, []int{read, read + 1})
	if v.tgt.exists {
		needed = append(needed, v.tgt.epoch+1)
	}
	return needed
}

// epochRead returns the epoch that is read. That is cur's epoch while an active rank is in it, else the furthest epoch that an active rank requests,
// else the epoch before.
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
