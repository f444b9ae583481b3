package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lcache/internal/serve/deliver"
)

// Frames that are being received, queued requests, and answers that are not read yet take room from the engine's account. Requests and answers have a
// share each, so that no answer waits for a request: an answer waits only for answers that are being written, which have a deadline. What is small takes
// no room, so that no client can keep others from their batches and releases.

const (
	leastFrames = 64 << 20 // of frames and answers of all connections, as docs/protocol.md says
	shareFrames = 16       // or this part of --memory
	ownBytes    = 64 << 10 // of a connection's requests, and of its answer, take no room
)

// receive waits until there is room for a frame of which n bytes are to come. It returns how much was taken, which is to be given back.
func (c *conn) receive(ctx context.Context, kind uint8, n int, until time.Time) (taken int64, err error) {
	c.mu.Lock()
	own := c.bytes
	c.mu.Unlock()
	if answered := isAnswered(kind); !answered && n <= ownBytes || answered && own+n <= ownBytes {
		return 0, nil // what has no answer is done with before the next frame is read
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	if err := c.s.received.Wait(ctx, int64(n)); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			err = &crowdedError{fmt.Sprintf("no room for a frame of %d bytes within %v: the frames of all clients take it", n, c.s.limits.frame)}
		}
		return 0, err
	}
	return int64(n), nil
}

// A crowdedError ends a connection whose next frame found no room. The client may connect again, and repeat its requests.
type crowdedError struct{ text string }

func (e *crowdedError) Error() string { return e.text }

// isAnswered reports whether frames of a type are queued to be answered.
func isAnswered(kind uint8) bool {
	switch kind {
	case typeRelease, typeCancel, typeReport, typeObserve, typeEpochEnd, typeBye:
		return false
	}
	return true
}

// roomFor waits until there is room for an answer of n bytes. The caller holds nothing that others wait for. handle gives the room back.
func (c *conn) roomFor(ctx context.Context, n int) error {
	if n <= ownBytes || int64(n) <= c.room {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.s.limits.write)
	defer cancel()
	more := int64(min(n, maxFrame)) - c.room
	if err := c.s.answers.Wait(ctx, more); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			err = &deliver.TimeoutError{Waited: c.s.limits.write, For: fmt.Sprintf("room for an answer of %d bytes: other clients do not read theirs", n)}
		}
		return err
	}
	c.room += more
	return nil
}

// hasRoom reports whether an answer of n bytes has room, without waiting.
func (c *conn) hasRoom(n int) bool {
	if n <= ownBytes || int64(n) <= c.room {
		return true
	}
	more := int64(n) - c.room
	if !c.s.answers.Take(more) {
		return false
	}
	c.room += more
	return true
}

// leaveRoom gives back the room of an answer.
func (c *conn) leaveRoom() {
	c.s.answers.Give(c.room)
	c.room = 0
}

// partBytes is how much of its answer the parts of a sample may take on average. A client asks for what is left out by PARTS.
const partBytes = 64

// batchBytes returns the most bytes of an answer with n samples.
func (c *conn) batchBytes(n int) int {
	each := 24 // the columns of a SERVED
	if c.along {
		each += partBytes
	}
	return min(headerBytes+loanHead+each*n, maxFrame)
}
