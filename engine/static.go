package engine

import (
	"slices"

	"lcache/reorder"
)

// In the static layout samples stay where they were packed: no pass, no slots, nothing is moved. The prefetcher reads each rank's coming
// chunks by place into the ring, which has the memory of the slots. Only what the log should keep and lacks (the first
// epoch without prefill, a sample that was damaged) is written, once, when the source has been asked for it.

// restoreStatic takes the Logfiles as they are.
func (e *Engine) restoreStatic() error {
	if e.cache.IsComplete(0, 1) {
		return nil
	}
	var newest *reorder.EpochLog
	for _, l := range slices.Backward(e.cache.Store.ByAge()) {
		el, err := e.identify(l)
		if err != nil {
			return err
		}
		if el.Line != nil {
			newest = el
			break
		}
	}
	if newest == nil {
		e.cache.Logger.Info("what the log lacks is read from the source each time: its order is not this job's; ingest completes it")
		return nil
	}
	e.number(newest)
	if err := e.mover.Register(newest.Log); err != nil {
		return err
	}
	e.relayout.filled = newest
	e.startFilling(newest)
	return nil
}
