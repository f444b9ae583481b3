package logfile

import "context"

// An arena block is noted in the table of places before it is overwritten, so that after a kill -9 no older record of it is accepted. The
// free list has some blocks noted ahead, so no write waits for the table.

// askForPlaces requests more noted places. It never waits.
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

// notePlaces notes the places to be taken next, and returns their number. If the table can't be written, they are taken anyway: after a kill, checksums of samples then reveal overwritten blocks.
func (s *Store) notePlaces(ctx context.Context) (n int, err error) {
	if err := s.noting.take(ctx); err != nil {
		return 0, &HungError{What: "write of " + s.table.path, Err: err}
	}
	noted := make(chan int, 1)
	err = Within(ctx, "write of "+s.table.path, func() error {
		defer s.noting.release()
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
		if err != nil && !s.unnoted { // log it once, not for each group of blocks
			s.log.Warn("table of places not written: after a kill, overwritten samples are detected by their checksums", "err", err)
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

// takePlace returns a free place, if there is one. It waits only until the place is noted. The write to it is not counted.
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

// closeTable closes the table of places after the last write to it.
func (s *Store) closeTable(ctx context.Context) error {
	if err := s.noting.take(ctx); err != nil {
		return &HungError{What: "write of " + s.table.path, Err: err}
	}
	defer s.noting.release()
	return s.table.close()
}
