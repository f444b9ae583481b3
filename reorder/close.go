package reorder

import (
	"context"
	"fmt"
	"time"
)

// closeGrace is how long Close waits for samples that are being supplied or appended. A sample that was read from the source would be
// read again after the next start. An interrupted append leaves a gap in its segment, which may then have no room for its last sample.
const closeGrace = time.Second

// Close ends all loads at the next sample, and joins the workers. Samples in progress are appended, if that does not take long. If the
// disk never answers for a block, Close waits until ctx ends.
func (p *Scan) Close(ctx context.Context) error {
	p.endSamples(ctx)
	p.cancel()
	p.places.close()
	done := make(chan struct{})
	go func() {
		p.loads.Wait()
		p.queue.close()
		p.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("segments are still being read: %w", ctx.Err())
	}
}

// endSamples prevents new samples from beginning, and waits a while for those in progress.
func (p *Scan) endSamples(ctx context.Context) {
	p.entering.Lock()
	p.end()
	p.entering.Unlock()
	idle := make(chan struct{})
	go func() {
		p.underWay.Wait()
		close(idle)
	}()
	wait := closeGrace
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(end)/2)
	}
	grace := time.NewTimer(wait)
	defer grace.Stop()
	select {
	case <-idle:
	case <-grace.C:
	case <-ctx.Done():
	}
}

// enter reports whether samples of a load may begin. If so, the caller calls underWay.Done after them.
func (p *Scan) enter(l *load) bool {
	p.entering.Lock()
	defer p.entering.Unlock()
	if p.open.Err() != nil {
		l.cut.Store(true)
		return false
	}
	p.underWay.Add(1)
	return true
}
