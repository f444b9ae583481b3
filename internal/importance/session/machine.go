package session

import (
	"fmt"

	"lcache/deliver"
	"lcache/surrogate"
)

// AllHere reports whether a client's text says that all ranks of a run are on its machine; false: the client does not know. It returns an error if only some are. Ranks on another machine observe to another server,
// which would draw other orders: some samples would be trained twice in an epoch, and others not.
func AllHere(text []byte, world int) (bool, error) {
	var given struct {
		Local *int `json:"local_world_size"`
	}
	err := surrogate.Unmarshal(text, &given)
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
