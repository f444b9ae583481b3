package schedule

import (
	"slices"
	"time"
)

// A state says what is known of an epoch's order. states_test.go compares the table with a model.
type state uint8

const (
	unknown         state = iota // no order: there is no recipe, or its order is withheld
	foretold                     // parts of some ranks' orders: they can be laid out, and not be read
	partial                      // the orders that some local ranks have pushed; of other ranks nothing, or a foretold part
	complete                     // the orders that all local ranks have pushed
	dropped                      // no order any longer: pushed orders were dropped, and clients must push them again
	replayed                     // the recipe's order
	mixed                        // the orders that some local ranks have pushed. The others read the recipe's, and the epoch is laid out in it
	replaced                     // the orders that all local ranks have pushed, instead of the recipe's
	droppedReplayed              // as dropped; the epoch is laid out in the recipe's order
	states                       // their number. In the table: the event does not happen
)

// An event changes the state of an epoch. Retract and Withhold are not among them: they set the state that the epoch had at first.
type event uint8

const (
	tell     event = iota // a part of a rank's order is foretold
	pushSome              // a rank's order is pushed; some local ranks have pushed none
	pushLast              // a rank's order is pushed; all local ranks have pushed theirs
	drop                  // the pushed orders are dropped
	allow                 // the recipe's order is no longer withheld
	events                // their number
)

// transitions has the state after each event. A known order can't be foretold. Allow forgets foretold parts.
var transitions = [states][events]state{
	//               tell      pushSome pushLast  drop             allow
	unknown:         {foretold, partial, complete, states, replayed},
	foretold:        {foretold, partial, complete, states, replayed},
	partial:         {partial, partial, complete, dropped, mixed},
	complete:        {complete, states, complete, dropped, replaced},
	dropped:         {foretold, partial, complete, states, droppedReplayed},
	replayed:        {states, mixed, replaced, states, states},
	mixed:           {states, mixed, replaced, droppedReplayed, states},
	replaced:        {states, states, replaced, droppedReplayed, states},
	droppedReplayed: {states, mixed, replaced, states, states},
}

// hasRecipe reports whether ranks that have pushed no order read the recipe's.
func (s state) hasRecipe() bool { return s >= replayed }

// hasPushed reports whether a rank has pushed its order.
func (s state) hasPushed() bool {
	return s == partial || s == complete || s == mixed || s == replaced
}

// isDropped reports whether pushed orders were dropped.
func (s state) isDropped() bool { return s == dropped || s == droppedReplayed }

// isKnown reports whether the epoch's order can be made.
func (s state) isKnown() bool { return s.hasRecipe() || s.hasPushed() }

// isOfRanks reports whether the epoch's order is made from the ranks' orders, not from the recipe.
func (s state) isOfRanks() bool { return s.hasPushed() && s != mixed }

// An epochOrder is all that a Schedule knows of an epoch's order. The order itself, once made, is in the orderCache.
type epochOrder struct {
	state   state
	ranks   map[int]*rankOrder // pushed or foretold
	since   time.Time          // the time of the first push
	version int                // the version that changed the order last; 0: none has
	session string             // that had pushed the orders which were dropped; "": several
}

// first is the state of an epoch that nothing was done to. The caller holds s.mu.
func (s *Schedule) first(n int) state {
	switch recipe := s.replay != nil && !s.withheld; {
	case recipe && n < s.droppedBefore:
		return droppedReplayed
	case n < s.droppedBefore:
		return dropped
	case recipe:
		return replayed
	}
	return unknown
}

// look returns a copy of an epoch's record, without making one. The caller holds s.mu.
func (s *Schedule) look(n int) epochOrder {
	if e := s.epochs[n]; e != nil {
		return *e
	}
	return epochOrder{state: s.first(n)}
}

// stateOf returns the state of an epoch, and a rank's order if it was pushed or foretold.
func (s *Schedule) stateOf(n, rank int) (state, *rankOrder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.look(n)
	return e.state, e.ranks[rank]
}

// record returns the record of an epoch, to be changed. The caller holds s.mu.
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

// apply changes the state of an epoch by an event. The caller holds s.mu.
func (s *Schedule) apply(n int, ev event) { s.set(n, transitions[s.record(n).state][ev]) }

// set changes the state of an epoch. The caller holds s.mu.
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

// changed notes that an epoch has another order than it had. The caller holds s.mu.
func (s *Schedule) changed(n int) {
	s.version++
	s.record(n).version = s.version
	s.dropOrder(n)
}

// forget gives back the orders of some ranks of an epoch. The caller holds s.mu.
func (s *Schedule) forget(e *epochOrder, which func(*rankOrder) bool) {
	for r, g := range e.ranks {
		if which(g) {
			s.keep(-g.bytes())
			delete(e.ranks, r)
		}
	}
}

// all and isForetold choose orders for forget.
func all(*rankOrder) bool          { return true }
func isForetold(g *rankOrder) bool { return !g.isPushed }
