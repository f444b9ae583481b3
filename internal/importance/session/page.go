package session

import (
	"context"

	"lcache/internal/importance/state"
	"lcache/sample"
)

// Page returns count indices of a rank's order in an epoch, from position first on, and the length of the whole
// order. The order must be known.
func (s *Session) Page(ctx context.Context, epoch, rank int, first, count uint32) (page []sample.Index, total int, err error) {
	look, err := s.o.Schedule.Chunks(ctx, epoch, rank)
	if err != nil {
		return nil, 0, err
	}
	if two := s.Requested(epoch); two != nil {
		look = two.Batches(rank)
	}
	size, batches := s.o.Config.BatchSize, s.o.Schedule.Batches(epoch, rank)
	if batches > 0 {
		last, _ := look(batches - 1)
		total = (batches-1)*size + len(last)
	}
	end := int(min(uint64(first)+uint64(count), uint64(total)))
	for b := int(first) / size; b*size < end; b++ {
		batch, ok := look(b)
		if !ok {
			break
		}
		page = append(page, batch[max(0, int(first)-b*size):min(len(batch), end-b*size)]...)
	}
	return page, total, nil
}

// Unstable returns the samples that a rank evaluates again before the next epoch.
func (s *Session) Unstable(rank int) (mine []sample.Index, err error) {
	if err := s.refuse(rank); err != nil {
		return nil, err
	}
	err = s.View(func(state *state.State) {
		all := state.Unstable()
		for k := rank; k < len(all); k += s.o.Config.WorldSize {
			mine = append(mine, all[k])
		}
	})
	return mine, err
}
