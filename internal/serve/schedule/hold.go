package schedule

// A schedule may be made to wait for its orders: where somebody decides at each epoch's beginning what is read in it, the recipe must not be believed ahead.

// Withhold makes every epoch's order unknown until it is given: pushed, or allowed to be the recipe's. Orders that are known are forgotten.
func (s *Schedule) Withhold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.withheld = true
	s.retract(0)
}

// Allow gives an epoch the recipe's order, where orders are withheld.
func (s *Schedule) Allow(epoch int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.replay == nil || s.look(epoch).state.hasRecipe() {
		return
	}
	s.apply(epoch, allow)
	s.forget(s.record(epoch), isForetold)
	s.changed(epoch)
}

// Retract makes the orders of an epoch and of all later ones unknown again, where orders are withheld.
func (s *Schedule) Retract(from int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retract(from)
}

// retract is Retract with s.mu held.
func (s *Schedule) retract(from int) {
	for n, e := range s.epochs {
		if n < from {
			continue
		}
		if first := s.first(n); e.state != first {
			s.forget(e, all)
			s.set(n, first)
			s.changed(n)
		}
	}
	for n := range s.orders {
		if n >= from {
			s.changed(n)
		}
	}
}

// isWithheld reports whether an epoch has no order although there is a recipe.
func (s *Schedule) isWithheld(epoch int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replay != nil && !s.look(epoch).state.hasRecipe()
}
