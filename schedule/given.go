package schedule

// A schedule may be made to wait for its orders: where somebody decides at each epoch's beginning what is read in it, the recipe must not be believed ahead.

// Withhold makes every epoch's order unknown until it is given: pushed, or allowed to be the recipe's. Orders that are known are forgotten.
func (s *Schedule) Withhold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allowed = map[int]bool{}
	s.retract(0)
}

// Allow gives an epoch the recipe's order, where orders are withheld.
func (s *Schedule) Allow(epoch int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.allowed != nil && !s.allowed[epoch] {
		s.allowed[epoch] = true
		s.changed(epoch)
	}
}

// Retract makes the orders of an epoch and of all later ones unknown again, where orders are withheld.
func (s *Schedule) Retract(from int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retract(from)
}

// retract is Retract with s.mu held.
func (s *Schedule) retract(from int) {
	for epoch, ranks := range s.pushed {
		if epoch >= from {
			for _, g := range ranks {
				s.keep(-g.bytes())
			}
			delete(s.pushed, epoch)
			delete(s.since, epoch)
			s.changed(epoch)
		}
	}
	for epoch := range s.foretold {
		if epoch >= from {
			s.forgetForetold(epoch)
			s.changed(epoch)
		}
	}
	for epoch := range s.allowed {
		if epoch >= from {
			delete(s.allowed, epoch)
			s.changed(epoch)
		}
	}
	for epoch := range s.dropped {
		if epoch >= from {
			delete(s.dropped, epoch)
		}
	}
	for epoch := range s.orders {
		if epoch >= from {
			s.changed(epoch)
		}
	}
}

// changed notes that an epoch has another order than it had. The caller holds s.mu.
func (s *Schedule) changed(epoch int) {
	s.version++
	s.versions[epoch] = s.version
	s.dropOrder(epoch)
}

// replays reports whether an epoch's order is the recipe's unless another one is pushed. The caller holds s.mu.
func (s *Schedule) replays(epoch int) bool {
	return s.replay != nil && (s.allowed == nil || s.allowed[epoch])
}

// isWithheld reports whether an epoch has no order although there is a recipe.
func (s *Schedule) isWithheld(epoch int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replay != nil && !s.replays(epoch)
}
