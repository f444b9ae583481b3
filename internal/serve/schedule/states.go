package schedule

import (
	"slices"
	"time"
)

// A state is how much is known of an epoch's order. states_test.go compares the table with a model.
type state uint8

const (
	unknown         state = iota // no order: no recipe, or the order of the recipe is held back
	partial                      // partial orders of some ranks: they can be laid out, but not read
	somePushed                   // the orders that some local ranks have pushed; of other ranks nothing, or a partial order
	complete                     // the orders that all local ranks have pushed
	dropped                      // no order any longer: pushed orders were dropped, and clients must push again
	replayed                     // the recipe's order
	mixed                        // the orders that some local ranks have pushed; other ranks read the recipe's, and the epoch is laid out in it
	replaced                     // the orders that all local ranks have pushed, instead of the recipe's
	droppedReplayed              // as dropped; the epoch is laid out in the recipe's order
	states                       // number of states; in the table: the event does not happen
)

// An event changes the state of an epoch. Retract and Hold are not events: they restore the first state of the epoch.
type event uint8

const (
	pushPart event = iota // a part of a rank's order is pushed (PushPartial)
	pushSome              // a rank's order is pushed; some local ranks have pushed none
	pushLast              // a rank's order is pushed; all local ranks have pushed theirs
	drop                  // the pushed orders are dropped
	release               // the recipe's order is released (Release)
	events                // their number
)

// transitions has the state after each event. A known order can't become partial. The event release drops partial orders.
var transitions = [states][events]state{
	//               pushPart pushSome    pushLast  drop     release
	unknown:         {partial, somePushed, complete, states, replayed},
	partial:         {partial, somePushed, complete, states, replayed},
	somePushed:      {somePushed, somePushed, complete, dropped, mixed},
	complete:        {complete, states, complete, dropped, replaced},
	dropped:         {partial, somePushed, complete, states, droppedReplayed},
	replayed:        {states, mixed, replaced, states, states},
	mixed:           {states, mixed, replaced, droppedReplayed, states},
	replaced:        {states, states, replaced, droppedReplayed, states},
	droppedReplayed: {states, mixed, replaced, states, states},
}

// hasRecipe reports whether ranks without a pushed order read the recipe's order.
func (s state) hasRecipe() bool { return s >= replayed }

// hasPushed reports whether a rank has pushed its order.
func (s state) hasPushed() bool {
	return s == somePushed || s == complete || s == mixed || s == replaced
}

// isDropped reports whether pushed orders were dropped.
func (s state) isDropped() bool { return s == dropped || s == droppedReplayed }

// isKnown reports whether the epoch's order can be made.
func (s state) isKnown() bool { return s.hasRecipe() || s.hasPushed() }

// isOfRanks reports whether the epoch's order is made from the ranks' orders, not from the recipe.
func (s state) isOfRanks() bool { return s.hasPushed() && s != mixed }

// An epochOrder is the record of an epoch's order. The order itself, once made, is in the orderCache.
type epochOrder struct {
	state   state
	ranks   map[int]*rankOrder // pushed or partial
	since   time.Time          // the time of the first push
	version int                // the version of the last change; 0: none
	session string             // the session whose orders were dropped; "": several
}

// first is the state of an epoch without events. s.mu is held.
func (s *Schedule) first(n int) state {
	switch recipe := s.replay != nil && !s.held; {
	case recipe && n < s.droppedBefore:
		return droppedReplayed
	case n < s.droppedBefore:
		return dropped
	case recipe:
		return replayed
	}
	return unknown
}

// look returns a copy of an epoch's record, and does not create one. s.mu is held.
func (s *Schedule) look(n int) epochOrder {
	if e := s.epochs[n]; e != nil {
		return *e
	}
	return epochOrder{state: s.first(n)}
}

// stateOf returns the state of an epoch, and a rank's pushed or partial order, if any.
func (s *Schedule) stateOf(n, rank int) (state, *rankOrder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.look(n)
	return e.state, e.ranks[rank]
}

// record returns the record of an epoch, to change it. s.mu is held.
func (s *Schedule) record(n int) *epochOrder {
	e := s.epochs[n]
	if e == nil {
		e = &epochOrder{state: s.first(n), ranks: map[int]*rankOrder{}}
		s.epochs[n] = e
		if e.state.isDropped() {
			s.dropped++
		}
	}
	return e
}

// apply changes the state of an epoch by an event. s.mu is held.
func (s *Schedule) apply(n int, ev event) { s.set(n, transitions[s.record(n).state][ev]) }

// set changes the state of an epoch. s.mu is held.
func (s *Schedule) set(n int, to state) {
	e := s.record(n)
	i, is := slices.BinarySearch(s.pushed, n)
	switch {
	case to.hasPushed() && !is:
		s.pushed = slices.Insert(s.pushed, i, n)
	case !to.hasPushed() && is:
		s.pushed = slices.Delete(s.pushed, i, i+1)
	}
	if e.state.isDropped() {
		s.dropped--
	}
	if to.isDropped() {
		s.dropped++
	}
	e.state = to
	if !to.hasPushed() {
		e.since = time.Time{}
	}
	if !to.isDropped() {
		e.session = ""
	}
}

// changed notes that an epoch's order has changed. s.mu is held.
func (s *Schedule) changed(n int) {
	s.version++
	s.record(n).version = s.version
	s.dropOrder(n)
}

// forget drops the selected orders of an epoch's ranks. s.mu is held.
func (s *Schedule) forget(e *epochOrder, which func(*rankOrder) bool) {
	for r, g := range e.ranks {
		if which(g) {
			s.keep(-g.bytes())
			delete(e.ranks, r)
		}
	}
}

// all and isPartial select orders for forget.
func all(*rankOrder) bool         { return true }
func isPartial(g *rankOrder) bool { return !g.isPushed }
