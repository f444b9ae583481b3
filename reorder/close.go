package reorder

import (
	"context"
	"fmt"
	"time"
)

// closeGrace is how long Close waits for samples that are being supplied or written on. What has come from the source would be read from there again after the next
// start. An append that is given up half-way leaves a gap in its segment, which may then be too small for its last sample.
const closeGrace = time.Second

// Close ends all loads, at the next sample, and joins the workers. Samples that are under way are written on, if that does not take long. A block that
// the disk never answers keeps it until ctx ends.
func (p *Pass) Close(ctx context.Context) error {
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

// endSamples lets no further sample begin, and waits a while for those that are under way.
func (p *Pass) endSamples(ctx context.Context) {
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

// enter reports whether samples of a load may begin; underWay.Done is to be called after them.
func (p *Pass) enter(l *load) bool {
	p.entering.Lock()
	defer p.entering.Unlock()
	if p.open.Err() != nil {
		l.cut.Store(true)
		return false
	}
	p.underWay.Add(1)
	return true
}
