package engine

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// sort re-sorts what the log holds into another order, offline: the pass and the mover of a server, with nobody to deliver to.
// Nothing is read from the source.
func (in *ingest) sort(ctx context.Context, order *epochOrder) error {
	e := &Engine{core: in.core, opts: Options{Logger: in.logger(), LateEpoch: 10 * time.Second}, started: time.Now(),
		wake: make(chan struct{}, 1), misses: make(chan int, 1)}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	if err := e.assemble(order); err != nil {
		e.cancel()
		return err
	}
	err := e.sorted(ctx, order)
	e.deliver.Close()
	e.cancel()
	e.mover.Wait()
	e.builders.Wait()
	e.ahead.Stop()
	if closeErr := e.pass.Close(ctx); err == nil {
		err = closeErr
	}
	if closeErr := e.fetcher.Close(ctx); err == nil {
		err = closeErr
	}
	if err := e.io.Unregister(e.staging.Memory()); err != nil {
		e.logger.Log(ctx, slog.LevelWarn, "unregister the shared memory", "error", err)
	}
	e.staging.Close()
	return err
}

// sorted waits until the log is in the order that was forced.
func (e *Engine) sorted(ctx context.Context, order *epochOrder) error {
	for {
		changed := e.staging.Changed()
		e.mu.Lock()
		done := e.cur == nil || e.tgt == nil && e.cur.order != nil && e.cur.order.key == order.key
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
