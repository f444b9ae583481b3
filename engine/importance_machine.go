package engine

import (
	"fmt"

	"lcache/deliver"
	"lcache/surrogate"
)

// A server draws the orders of a job from what all of its ranks observe. Ranks on another machine observe to another server, which would draw orders of its own: some
// samples would be trained twice in an epoch, and others not.

// allHere reports whether a client's text says that all ranks of a run are on its machine. It returns an error if only some are; false: the client does not know.
func allHere(text []byte, world int) (bool, error) {
	var said struct {
		Local *int `json:"local_world_size"`
	}
	err := surrogate.Unmarshal(text, &said)
	switch {
	case err != nil:
		return false, &deliver.ArgumentError{Reason: fmt.Sprintf("importance: %v", err)}
	case said.Local == nil:
		return false, nil
	case *said.Local < 1:
		return false, &deliver.ArgumentError{Reason: fmt.Sprintf("importance: local_world_size is %d: give how many ranks run on this machine, or null", *said.Local)}
	case *said.Local < world:
		return false, &deliver.ArgumentError{Reason: fmt.Sprintf("job.importance needs all ranks on one machine: %d in all, %d here", world, *said.Local)}
	}
	return true, nil
}
