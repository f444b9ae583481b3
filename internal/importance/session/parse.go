package session

import (
	"fmt"

	"lcache/internal/importance/state"
	"lcache/internal/jsonbytes"
	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
)

// Info is the answer to a client that turns on importance.
type Info struct {
	Name      string `json:"name"`
	Lag       string `json:"lag"`
	Seed      string `json:"seed"`
	Length    int64  `json:"epoch_length"`
	WorldSize int    `json:"world_size"`
	BatchSize int    `json:"batch_size"`

	Ignored []string `json:"ignored,omitempty"` // given parameters without an effect
}

// Info returns the answer to a client that turns on importance. c is the client's configuration.
func (s *Session) Info(c state.Config) Info {
	return Info{Name: c.Name, Lag: c.Lag, Seed: fmt.Sprint(c.Seed), Length: int64(s.Status().EpochLength), WorldSize: c.WorldSize, BatchSize: c.BatchSize, Ignored: c.Ignored}
}

// Parse returns the configuration in a client's text, for a job that has a schedule. allLocal says that all ranks run
// on this machine, as far as the client knows.
func Parse(text []byte, d state.Defaults, s *schedule.Schedule) (c state.Config, allLocal bool, err error) {
	if c, err = state.Parse(text, d); err != nil {
		return c, false, &deliver.ArgumentError{Reason: err.Error()}
	}
	if allLocal, err = ranksAreLocal(text, c.WorldSize); err != nil {
		return c, false, err
	}
	if s.Replays() && (s.World() != c.WorldSize || d.BatchSize != c.BatchSize) {
		return c, false, &deliver.ArgumentError{Reason: fmt.Sprintf("importance: world_size %d and batch_size %d differ from the server's recipe (%d and %d)", c.WorldSize, c.BatchSize, s.World(), d.BatchSize)}
	}
	return c, allLocal, nil
}

// ranksAreLocal reports whether all ranks of a run are on the client's machine, by the client's text. It returns false if
// the client does not know, and an error if only some are. Ranks on another machine would observe to another server,
// which would draw other orders. Then some samples would be trained twice in an epoch, and others not at all.
func ranksAreLocal(text []byte, world int) (bool, error) {
	var given struct {
		Local *int `json:"local_world_size"`
	}
	err := jsonbytes.Unmarshal(text, &given)
	switch {
	case err != nil:
		return false, &deliver.ArgumentError{Reason: fmt.Sprintf("importance: %v", err)}
	case given.Local == nil:
		return false, nil
	case *given.Local < 1:
		return false, &deliver.ArgumentError{Reason: fmt.Sprintf("importance: local_world_size is %d: give how many ranks run on this machine, or null", *given.Local)}
	case *given.Local < world:
		return false, &deliver.ArgumentError{Reason: fmt.Sprintf("job.importance needs all ranks on one machine: %d in all, %d here", world, *given.Local)}
	}
	return true, nil
}
