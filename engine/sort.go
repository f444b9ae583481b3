package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lcache/cache"
	"lcache/logfile"
	"lcache/schedule"
)

// sortStop is how long an offline sort that has ended, or was interrupted, waits for its transfers.
const sortStop = 30 * time.Second

// sort re-sorts what the log holds into another order, offline: the pass and the mover of a server, with nobody to deliver to.
// Nothing is read from the source. from is a Logfile to leave even if it has that order, because it has no room any more; nil: any.
func (in *ingest) sort(ctx context.Context, order *schedule.Order, from *logfile.Logfile) error {
	e, err := newEngine(in.cache, Options{Logger: in.logger()}.withDefaults(), order, from)
	if err != nil {
		return err
	}
	err = e.sorted(ctx)
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), sortStop)
	defer cancel()
	return errors.Join(err, e.dismantle(stop))
}

// sorted waits until the log is in the order that was forced.
func (e *Engine) sorted(ctx context.Context) error {
	for {
		changed := e.staging.Changed()
		e.mu.Lock()
		done := e.cur == nil || e.tgt == nil && e.inForcedOrder()
		err := e.broken
		e.mu.Unlock()
		if err != nil {
			return err
		}
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("re-sort the log: %w", ctx.Err())
		}
	}
}

// finishOld completes a Logfile that the job before this one was filling. Its order is known now, and not any more once the new job
// is written down; without it what only that Logfile holds would have to be read from the source again.
func (in *ingest) finishOld(ctx context.Context) error {
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
	return in.sort(ctx, order, nil)
}
