package ingest

import (
	"context"

	"lcache/cache"
	"lcache/schedule"
	"lcache/sorter"
)

// finishOld completes a Logfile that the job before this one was filling. Its order is known now, and not any more once the new job
// is written down; without it what only that Logfile holds would have to be read from the source again.
func (in *run) finishOld(ctx context.Context) error {
	c := in.cache
	logs := c.Store.Logfiles()
	if in.old == nil || logs[0] == nil || logs[1] == nil || logs[0].Empty() || logs[1].Empty() {
		return nil
	}
	newer := logs[0]
	if logs[1].Generation() > newer.Generation() {
		newer = logs[1]
	}
	s, err := schedule.New(in.old.Job, c.Manifest.Len(), cache.MachineMemory())
	if err != nil || !s.Replays() || newer.IsOlder() || !s.Exists(int(newer.Header().Epoch)) {
		return nil
	}
	defer s.Stop()
	order, err := s.Order(context.Background(), int(newer.Header().Epoch))
	if err != nil || order.Key != newer.Header().Key {
		return err
	}
	mine := c.Schedule
	c.Schedule = s
	defer func() { c.Schedule = mine }()
	return sorter.Sort(ctx, c, order, nil)
}
