package ingest

import (
	"context"

	"lcache/internal/serve/schedule"
	"lcache/internal/store/resort"
)

// oldTarget returns the schedule of the previous job, and the order of the Logfile that it was filling. It returns nil if no such Logfile
// exists, or if its order is unknown. The caller stops the schedule.
func (in *run) oldTarget() (*schedule.Schedule, *schedule.Order, error) {
	c := in.cache
	logs := c.Store.HoldingByAge()
	if in.old == nil || len(logs) < 2 {
		return nil, nil, nil
	}
	newer := logs[1]
	s, err := schedule.New(in.old.Job, c.Manifest.Len())
	if err != nil || !s.Replays() || newer.IsOlder() || !s.Exists(int(newer.Header().Epoch)) {
		return nil, nil, nil
	}
	order, err := s.Order(context.Background(), int(newer.Header().Epoch))
	if err != nil || order.Key != newer.Header().Key {
		s.Stop()
		return nil, nil, err
	}
	return s, order, nil
}

// isOfOldJob reports whether finishOld must do anything.
func (in *run) isOfOldJob() bool {
	s, order, err := in.oldTarget()
	if s != nil {
		s.Stop()
	}
	return order != nil || err != nil
}

// finishOld completes a Logfile that the previous job was filling. Its order is known only until the new job is written to job.json. After
// that, samples that are only in this Logfile would have to be read from the source again.
func (in *run) finishOld(ctx context.Context) error {
	s, order, err := in.oldTarget()
	if s == nil || err != nil {
		return err
	}
	defer s.Stop()
	c := in.cache
	mine := c.Schedule
	c.Schedule = s
	defer func() { c.Schedule = mine }()
	return resort.Sort(ctx, c, order, nil)
}
