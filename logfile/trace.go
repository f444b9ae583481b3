package logfile

import (
	"lcache/internal/disk/blockio"
	"lcache/internal/disk/durable"
)

// Trace returns the receiver of each step outside the arenas, for other code that writes files of the cache.
func (s *Store) Trace() durable.Trace { return s.trace }

// withFaults returns a Trace that first asks the engine for an injected fault, see [blockio.InjectPlain]. A Store's Trace receives each
// step outside the arenas. Transfers of arenas get faults from blockio.
func withFaults(io *blockio.IO, t durable.Trace) durable.Trace {
	return func(c durable.Change) error {
		if c.Step != durable.StepSynced && c.Step != durable.StepSyncedDir {
			if err := io.Plain(c.Path, c.Step.String()); err != nil {
				return err
			}
		}
		return t.Report(c)
	}
}
