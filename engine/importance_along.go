package engine

import (
	"lcache/chunker"
	"lcache/drawn"
	"lcache/internal/importance/memory"
	"lcache/reorder"
	"lcache/sample"
)

// alongShare is the part of the memory for importance that is for samples that are read along, where nobody says how much is for those of importance: one in so many bytes.
const alongShare = 16

// readsAlong reports whether samples are read along for a job: in a log that is reordered, of which drawn epochs leave segments where they are.
func (e *Engine) readsAlong(c drawn.Config) bool {
	return c.Lag != "0" && c.Substitute == "" && !e.cache.IsStatic()
}

// alongTurns is how often the memory for samples that are read along is filled in an epoch: a sample waits there for a third of it, and at the epoch's beginning and end there are few.
const alongTurns = 2

// newAlong makes the memory for samples that are read along, of at most so many bytes; nil if no sample fits.
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

// lineOfEpoch is the line of the Logfile of an epoch; nil: there is none. e.mu is held.
func (e *Engine) lineOfEpoch(epoch int) *chunker.Line {
	for _, l := range []*reorder.EpochLog{e.cur, e.tgt} {
		if l != nil && l.Epoch == epoch {
			return l.Line
		}
	}
	return nil
}
