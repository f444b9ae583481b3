package logfile

import (
	"context"
	"errors"
	"fmt"
)

// CheckPlaces waits for the writes in flight. It returns an error unless each arena block is either free, once and in the list of its
// device, or held by one block or by the tails that share it. It is for tests: nothing else may use the Store meanwhile.
func (s *Store) CheckPlaces(ctx context.Context) error {
	errs := []error{s.transfers.wait(ctx)} // including writes of dropped Logfiles
	for _, l := range s.all() {
		errs = append(errs, l.Flush(ctx))
	}
	held, shared := s.heldPlaces()
	for place, n := range held {
		if n > 1 && !shared[place] {
			errs = append(errs, fmt.Errorf("place %d is held %d times", place, n))
		}
	}
	if s.Free()+len(held) != s.format.Places {
		errs = append(errs, fmt.Errorf("%d places free, %d held, of %d", s.Free(), len(held), s.format.Places))
	}
	return errors.Join(append(errs, s.checkFree(held)...)...)
}

// heldPlaces counts the blocks of each arena block, and returns the ones that tails share.
func (s *Store) heldPlaces() (held map[uint32]int, shared map[uint32]bool) {
	held, shared = map[uint32]int{}, map[uint32]bool{}
	for _, l := range s.all() {
		for k := range l.segs {
			sg := &l.segs[k]
			for _, b := range sg.blocks {
				if b.state == stateDisk {
					held[b.place]++
					shared[b.place] = int(b.used) < s.format.Block
				}
			}
			if place := sg.old.place; place != noPlace {
				held[place]++
				shared[place] = true
			}
		}
	}
	return held, shared
}

// checkFree finds arena blocks that are free twice, free and held, or in the list of another device, and writes that still count as in flight.
func (s *Store) checkFree(held map[uint32]int) (errs []error) {
	seen := map[uint32]bool{}
	s.free.mu.Lock()
	defer s.free.mu.Unlock()
	for k := range s.free.devices {
		d := &s.free.devices[k]
		for i := range d.n {
			p := d.ring[(d.head+i)%len(d.ring)]
			if seen[p] || held[p] > 0 || int(p)%len(s.devices) != k {
				errs = append(errs, fmt.Errorf("place %d is free twice, or free and held, or not of device %d", p, k))
			}
			seen[p] = true
		}
		if d.inFlight != 0 {
			errs = append(errs, fmt.Errorf("%d writes to device %d are still counted", d.inFlight, k))
		}
	}
	return errs
}
