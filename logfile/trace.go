package logfile

import (
	"lcache/internal/disk/blockio"
	"lcache/internal/disk/durable"
)

// Trace returns what the Store tells each step outside the arenas, for others that write files of the cache.
func (s *Store) Trace() durable.Trace { return s.trace }

// withFaults returns a Trace that asks the engine for an injected fault first, see [blockio.InjectPlain]. A Store's Trace is told each step outside
// the arenas. Transfers of arenas pass through blockio, which has a seam of its own.
func withFaults(io *blockio.IO, t durable.Trace) durable.Trace {
	return func(c durable.Change) error {
		if c.Step != durable.StepSynced && c.Step != durable.StepSyncedDir {
			if err := io.Plain(c.Path, c.Step.String()); err != nil {
				return err
			}
		}
		return t.Tell(c)
	}
}
