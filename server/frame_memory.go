package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lcache/internal/serve/deliver"
)

// Frames that are being received, queued requests, and unread answers reserve memory in the engine's account. Requests and answers have separate shares,
// so that no answer waits for a request. An answer waits only for answers that are being written, and these have a deadline. Small frames reserve
// nothing, so that no client can keep others from their batches and releases.

const (
	leastFrames = 64 << 20 // for frames and answers of all connections, as in docs/protocol.md
	shareFrames = 16       // or 1/shareFrames of --memory
	ownBytes    = 64 << 10 // of a connection's requests, and of its answer, need no reservation
)

// receive waits until there is memory for the remaining n bytes of a frame. It returns how much it reserved, which the caller releases.
func (c *conn) receive(ctx context.Context, kind uint8, n int, until time.Time) (taken int64, err error) {
	c.mu.Lock()
	own := c.bytes
	c.mu.Unlock()
	if answered := isAnswered(kind); !answered && n <= ownBytes || answered && own+n <= ownBytes {
		return 0, nil // a frame without an answer is handled before the next frame is read
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	if err := c.s.received.Wait(ctx, int64(n)); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			err = &crowdedError{fmt.Sprintf("no memory for a frame of %d bytes within %v: frames of other clients use it", n, c.s.limits.frame)}
		}
		return 0, err
	}
	return int64(n), nil
}

// A crowdedError ends a connection that got no memory for its next frame. The client may connect again, and repeat its requests.
type crowdedError struct{ text string }

func (e *crowdedError) Error() string { return e.text }

// isAnswered reports whether frames of a type have an answer.
func isAnswered(kind uint8) bool {
	switch kind {
	case typeRelease, typeCancel, typeReport, typeObserve, typeEpochEnd, typeBye:
		return false
	}
	return true
}

// roomFor waits until there is memory for an answer of n bytes. The caller holds nothing that others wait for. handle releases the memory.
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

// hasRoom reserves memory for an answer of n bytes if there is some now, and reports whether it did.
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

// leaveRoom releases the memory of an answer.
func (c *conn) leaveRoom() {
	c.s.answers.Give(c.room)
	c.room = 0
}

// partBytes is the average limit for a sample's parts in an answer. A client requests missing parts by PARTS.
const partBytes = 64

// batchBytes returns the maximum bytes of an answer with n samples.
func (c *conn) batchBytes(n int) int {
	each := 24 // the columns of a SERVED
	if c.withParts {
		each += partBytes
	}
	return min(headerBytes+loanHead+each*n, maxFrame)
}
