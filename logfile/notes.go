package logfile

import "context"

// A place is noted in the table of places before it is overwritten, so that after a kill -9 no older record of it is believed. The free list has some places noted ahead, so that no write waits for that.

// askForPlaces asks for more places to be noted. It never waits.
func (s *Store) askForPlaces() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// noteAhead runs until Close.
func (s *Store) noteAhead() {
	for {
		select {
		case <-s.stop:
			return
		case <-s.more:
			_, _ = s.notePlaces(s.stopped)
		}
	}
}

// notePlaces notes the places that are to be taken next, and returns how many. If the table can't be written they are taken all the same: after a kill the checksums of samples tell then what was overwritten.
func (s *Store) notePlaces(ctx context.Context) (n int, err error) {
	if err := s.noting.take(ctx); err != nil {
		return 0, &HungError{What: "write of " + s.table.path, Err: err}
	}
	noted := make(chan int, 1)
	err = Within(ctx, "write of "+s.table.path, func() error {
		defer s.noting.give()
		places, gen := s.free.unready(&s.gen)
		noted <- len(places)
		if len(places) == 0 {
			return nil
		}
		s.noteFrom.Store(s.now().UnixNano())
		err := s.table.note(places, gen)
		if err != nil {
			s.stats.journalErrors.Add(1)
		}
		if err != nil && !s.unnoted { // once, and not for each few blocks
			s.log.Warn("places can't be noted: after a kill, samples that were written over are found by their checksums", "err", err)
		}
		s.unnoted = err != nil
		s.noteFrom.Store(0)
		s.launch(s.free.noted()...)
		return nil
	})
	if err != nil {
		return 0, err
	}
	return <-noted, nil
}

// takePlace returns a place if there is one, and waits only until it is noted. The write to it is not counted.
func (s *Store) takePlace(ctx context.Context) (place uint32, ok bool, err error) {
	for n := 1; ; {
		if place, ok = s.free.tryTake(); ok || n == 0 {
			return place, ok, nil
		}
		if n, err = s.notePlaces(ctx); err != nil {
			return noPlace, false, err
		}
	}
}

// closeTable closes the table of places once nothing is written there.
func (s *Store) closeTable(ctx context.Context) error {
	if err := s.noting.take(ctx); err != nil {
		return &HungError{What: "write of " + s.table.path, Err: err}
	}
	defer s.noting.give()
	return s.table.close()
}
