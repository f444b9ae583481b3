package logfile

import (
	"context"
	"fmt"
	"lcache/internal/errcode"
)

// HungError names an operation that a file or device of the cache did not finish in time. The operation may still finish. Until the
// process ends, no memory that the Store has may be unmapped, and the directories stay locked.
type HungError struct {
	What string // "fdatasync of /cache/journal-0"
	Err  error  // why the wait ended
}

// Code returns the code of the error.
func (*HungError) Code() errcode.Code { return errcode.Hung }

func (e *HungError) Error() string {
	return fmt.Sprintf("%s does not return (%v): the disk hangs; data written since the last sync may be lost, and is then read from the source again; check the disk (dmesg)", e.What, e.Err)
}

func (e *HungError) Unwrap() error { return e.Err }

// Within runs f on a goroutine of its own and waits for it until ctx ends. The error is then a *HungError, and f continues: a system call
// that waits for a disk can't be cancelled.
func Within(ctx context.Context, what string, f func() error) error {
	result := make(chan error, 1)
	go func() { result <- f() }()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return &HungError{What: what, Err: context.Cause(ctx)}
	}
}

// turn is a lock with waits that a context can end.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	default:
	}
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t turn) release() { <-t }
