package fetch

import (
	"context"
	"errors"
	"sync"
	"time"

	"lcache/source"
)

// longestRead bounds a read that keeps receiving bytes from the source, in units of SourceTimeout.
const longestRead = 10

// errSilent is the cause of a read's ended context if its source sent no byte for too long.
var errSilent = errors.New("the source sent no byte for too long")

// silence ends the context of one read from the source.
type silence struct {
	f      *Fetcher
	began  time.Time
	ended  <-chan struct{} // of the context
	cancel context.CancelCauseFunc

	mu    sync.Mutex // guards the field that follows
	timer *time.Timer
}

// patient returns the context of a read from the source. It ends when the source has sent no byte, to any reader, for SourceTimeout.
// Only shards that are read sequentially report progress. A read over a network has its own limit for silence, with a more precise
// error; its context ends only if bytes still arrive after longestRead times SourceTimeout. The caller must call cancel.
func (f *Fetcher) patient(ctx context.Context) (mine context.Context, cancel func()) {
	if source.EndsSilence(f.o.Source) {
		return context.WithTimeout(ctx, longestRead*f.o.SourceTimeout)
	}
	s := &silence{f: f, began: time.Now()}
	mine, s.cancel = context.WithCancelCause(source.WithMoved(ctx, f.bytesCame))
	s.ended = mine.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(f.o.SourceTimeout, s.look)
	return mine, func() {
		s.timer.Stop()
		s.cancel(nil)
	}
}

func (f *Fetcher) bytesCame() { f.moved.Store(int64(time.Since(f.began))) }

// look ends the read if the silence is too long, or looks again later.
func (s *silence) look() {
	select {
	case <-s.ended:
		return
	default:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.f.began.Add(time.Duration(s.f.moved.Load()))
	if last.Before(s.began) {
		last = s.began
	}
	timeout := s.f.o.SourceTimeout
	left := min(time.Until(last.Add(timeout)), time.Until(s.began.Add(longestRead*timeout)))
	if left <= 0 {
		s.cancel(errSilent)
		return
	}
	s.timer.Reset(left)
}

// overdue turns the error of a read whose source was silent for too long into a deadline error.
func overdue(ctx context.Context, err error) error {
	if context.Cause(ctx) == errSilent && errors.Is(err, context.Canceled) {
		return context.DeadlineExceeded
	}
	return err
}
