package schedule

// A schedule may hold its orders back: if the order of an epoch is decided when the epoch begins, the recipe does not predict it.

// Hold makes every epoch's order unknown until it is pushed, or until Release releases the recipe's order. It drops known orders.
func (s *Schedule) Hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = true
	s.retract(0)
}

// Release gives a held epoch the recipe's order.
func (s *Schedule) Release(epoch int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.replay == nil || s.look(epoch).state.hasRecipe() {
		return
	}
	s.apply(epoch, release)
	s.forget(s.record(epoch), isPartial)
	s.changed(epoch)
}

// Retract makes the orders of an epoch and of all later ones unknown again. Hold was called before.
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

// isHeld reports whether an epoch has no order although there is a recipe.
func (s *Schedule) isHeld(epoch int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replay != nil && !s.look(epoch).state.hasRecipe()
}
