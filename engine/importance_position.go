package engine

import (
	"context"
	"fmt"
	"time"

	"lcache/deliver"
)

// heardIn notes that a rank names samples of an epoch.
func (p *important) heardIn(rank, epoch int) {
	p.mu.Lock()
	wakes := p.positions.names(time.Now(), rank, epoch)
	p.mu.Unlock()
	if wakes {
		p.nudge()
	}
}

// refuse says what is wrong with a rank that the job does not have.
func (p *important) refuse(rank int) error {
	if p.positions.isOurs(rank) {
		return nil
	}
	return &deliver.ArgumentError{Reason: fmt.Sprintf("rank %d: job.importance was told of a world of %d", rank, p.world)}
}

// late is how long the boundary waits for ranks after the first has come to it: longer where they look at unstable samples again. p.mu is held.
func (p *important) late() time.Duration {
	late := p.e.opts.LateEpoch
	if s := p.status.Load(); s == nil || s.SSize == 0 {
		return late
	}
	return lookTime(late, p.positions.lookTook, p.e.deliver.Timeout())
}

// lookTime bounds a look at unstable samples by what the last one took (ImPACT §III-B), and by the time of a request: the ranks that wait for the boundary would get errors, not the next epoch.
func lookTime(late, took, request time.Duration) time.Duration {
	return max(late, min(max(6*late, 2*took), request*5/6))
}

// await waits until the order of an epoch is known. One that the job does not have is waited for by nobody.
func (p *important) await(ctx context.Context, rank, epoch int) error {
	if err := p.refuse(rank); err != nil {
		return err
	}
	if !p.j.schedule.Exists(epoch) {
		return nil
	}
	for waited := false; ; waited = true {
		p.mu.Lock()
		if err := p.err; err != nil && (waited || p.stopped) {
			p.mu.Unlock()
			return err
		}
		wakes := p.positions.asks(time.Now(), rank, epoch)
		known, changed := p.given[epoch], p.changed
		file, late := time.Duration(0), false
		if known {
			file, late = p.fileTime(epoch)
		}
		p.mu.Unlock()
		if wakes {
			p.nudge()
		}
		if late {
			p.warnOfFile(epoch)
		}
		if known && file <= 0 {
			return nil
		}
		if err := p.waitForChange(ctx, epoch, changed, file); err != nil {
			return err
		}
	}
}

// waitForChange waits until something changes that an order waits for; with file above 0 no longer than that.
func (p *important) waitForChange(ctx context.Context, epoch int, changed <-chan struct{}, file time.Duration) error {
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
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.giveErr != nil {
		return fmt.Errorf("%w: %w", p.giveErr, ctx.Err())
	}
	return fmt.Errorf("the order of epoch %d is drawn when the other ranks have ended the epoch before: %w", epoch, ctx.Err())
}
