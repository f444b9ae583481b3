package engine

import (
	"lcache/chunker"
	"lcache/drawn"
	"lcache/internal/importance/memory"
	"lcache/reorder"
	"lcache/sample"
)

// alongShare is the part of importance memory for opportunistic reads if a job gives no cache=: 1/alongShare.
const alongShare = 16

// readsAlong reports whether a job has opportunistic reads: in a log that is reordered, where drawn epochs leave segments in place.
func (e *Engine) readsAlong(c drawn.Config) bool {
	return c.Lag != "0" && c.Substitute == "" && !e.cache.IsStatic()
}

// newAlong allocates the memory for opportunistic reads, at most the given bytes; nil if no sample fits.
func (e *Engine) newAlong(bytes int64) (*memory.Along, error) {
	return memory.NewAlong(bytes, e.dataset(), func(epoch int, of []sample.Index) []sample.Index {
		held := e.fetcher.Held.Load()
		e.mu.Lock()
		defer e.mu.Unlock()
		line := e.lineOfEpoch(epoch)
		if line == nil {
			return nil
		}
		n := 0
		for _, i := range of {
			if _, delivers := line.Delivers(i); !delivers && !held.Has(i) {
				of[n] = i
				n++
			}
		}
		return of[:n]
	})
}

// lineOfEpoch returns the layout of the Logfile of an epoch; nil: there is none. e.mu is held.
func (e *Engine) lineOfEpoch(epoch int) *chunker.Line {
	for _, l := range []*reorder.EpochLog{e.cur, e.tgt} {
		if l != nil && l.Epoch == epoch {
			return l.Line
		}
	}
	return nil
}
