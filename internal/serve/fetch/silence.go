package fetch

import (
	"context"
	"errors"
	"sync"
	"time"

	"lcache/source"
)

// longestRead is how many times SourceTimeout a read from a source may take that goes on giving bytes.
const longestRead = 10

// errSilent is why a read's context ends whose source gave no byte for too long.
var errSilent = errors.New("the source gave no byte for too long")

// silence ends the context of one read from the source.
type silence struct {
	f      *Fetcher
	began  time.Time
	ended  <-chan struct{} // of the context
	cancel context.CancelCauseFunc

	mu    sync.Mutex // guards the field that follows
	timer *time.Timer
}

// patient returns the context of a read from the source. It ends when the source has given no byte, to any reader, for SourceTimeout. Only shards that are read front to back report when bytes come.
// A read over a network ends silence with a limit of its own, and an error that says more; its context ends only if bytes come for longestRead times SourceTimeout. cancel must follow.
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

// look ends the read, or looks again when it may have to end.
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

// overdue makes the error of a read whose source was silent for too long that of a deadline.
func overdue(ctx context.Context, err error) error {
	if context.Cause(ctx) == errSilent && errors.Is(err, context.Canceled) {
		return context.DeadlineExceeded
	}
	return err
}
