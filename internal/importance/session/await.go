package session

import (
	"context"
	"fmt"
	"time"

	"lcache/internal/serve/deliver"
)

// Seen notes that a rank requested samples of an epoch by index.
func (s *Session) Seen(rank, epoch int) {
	s.mu.Lock()
	wakes := s.positions.names(s.o.Now(), rank, epoch)
	s.mu.Unlock()
	if wakes {
		s.inbox.nudge()
	}
}

// refuse returns an error if the job does not have the rank.
func (s *Session) refuse(rank int) error {
	if rank >= 0 && rank < s.o.Config.WorldSize {
		return nil
	}
	return &deliver.ArgumentError{Reason: fmt.Sprintf("rank %d is not below the world_size of %d given to job.importance", rank, s.o.Config.WorldSize)}
}

// Await waits until the order of an epoch is known. It returns at once for an epoch that the job does not have.
func (s *Session) Await(ctx context.Context, rank, epoch int) error {
	if err := s.refuse(rank); err != nil {
		return err
	}
	if !s.o.Schedule.Exists(epoch) {
		return nil
	}
	for waited := false; ; waited = true {
		now := s.o.Now()
		s.mu.Lock()
		if err := s.orders.err; err != nil && (waited || s.orders.stopped) {
			s.mu.Unlock()
			return err
		}
		wakes := s.positions.asks(now, rank, epoch)
		known, changed := s.isPublished(epoch), s.orders.changed
		file, late := time.Duration(0), false
		if known {
			file, late = s.orders.file.left(now, epoch, s.o.Timeout/fileShare)
		}
		s.mu.Unlock()
		if wakes {
			s.inbox.nudge()
		}
		if late {
			s.warnOfFile(epoch)
		}
		if known && file <= 0 {
			return nil
		}
		if err := s.waitForChange(ctx, epoch, changed, file); err != nil {
			return err
		}
	}
}

// waitForChange waits for changed, which is closed when the cause of the wait may have ended. If file is greater than
// 0, it waits for at most that long.
func (s *Session) waitForChange(ctx context.Context, epoch int, changed <-chan struct{}, file time.Duration) error {
	var fileOver <-chan time.Time
	if file > 0 {
		fileOver = time.After(file)
	}
	select {
	case <-changed:
		return nil
	case <-fileOver:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch now := s.positions.epoch; {
	case s.orders.giveErr != nil:
		return fmt.Errorf("%w: %w", s.orders.giveErr, ctx.Err())
	case epoch < now:
		return fmt.Errorf("the order of epoch %d is drawn again after the last rank has left epoch %d: %w", epoch, now, ctx.Err())
	}
	return fmt.Errorf("the order of epoch %d is not drawn yet: waiting for other ranks to end epoch %d: %w", epoch, epoch-1, ctx.Err())
}
