package engine

import (
	"context"
	"errors"

	"lcache/deliver"
	"lcache/importance"
	"lcache/internal/serve/status"
	"lcache/sample"
)

// tell makes the status of what the state is now. Only the worker calls it, and who makes it.
func (p *important) tell() {
	s := &status.Importance{Name: p.config.Name, Method: p.config.Method, Lag: p.config.Lag, Policy: p.config.Policy, Substitute: p.config.Substitute, LBytes: p.loaded, PackagesLoaded: p.loads, Epoch: p.state.Epoch(), SSize: len(p.state.Unstable()),
		WarmupEpochs: p.state.WarmUpEpochs(), Ratio: p.state.Ratio(), Undelivered: p.undelivered, ReevaluationsMissed: p.missed}
	a := p.state.Activity()
	s.State, s.ObservedShare, s.LastObservedEpoch = string(a.State), a.ObservedShare, a.LastObserved
	if p.shapeOf != s.Epoch {
		p.shape, p.shapeOf = p.shapeNow(s.Epoch), s.Epoch
	}
	s.EpochLength, s.UnseenShare, s.DistinctShare, s.MaxUses = p.shape.Length, p.shape.Unseen, p.shape.Distinct, p.shape.MaxUses
	c := &p.state.Counts
	s.Observations = int64(c.Observations)
	s.Refused = status.Refused{Unknown: int64(c.Refused.Unknown), NotFinite: int64(c.Refused.NotFinite), Stale: int64(c.Refused.Stale), Shape: int64(c.Refused.Shape)}
	p.mu.Lock()
	s.ObservationsDropped = p.dropped
	s.Refused.Shape += p.refused.Shape
	s.Refused.NotFinite += p.refused.NotFinite
	s.Refused.Dimension = p.refused.Dimension
	p.mu.Unlock()
	p.status.Store(s)
}

// shapeNow is what an epoch's order does to the samples.
func (p *important) shapeNow(epoch int) importance.Shape {
	n := p.e.cache.Manifest.Len()
	o := p.state.Order(epoch)
	if o == nil || o.Plain {
		return importance.Shape{Length: n, Distinct: 1, MaxUses: 1}
	}
	shape, err := importance.ShapeOf(o.Indices, n)
	if err != nil {
		p.e.cache.Logger.Debug("the shape of an order", "err", err)
	}
	return shape
}

// importanceStatus is the status of a job's importance; nil: it has none.
func (j *job) importanceStatus() *status.Importance {
	p := j.importance.Load()
	if p == nil {
		return nil
	}
	s := *p.status.Load()
	s.PackagesWritten, s.CleanedBytes = p.packs.Counts()
	c := p.high.Counts()
	s.HBytes, s.HHits, s.LogHits, s.SourceMisses, s.Requested = c.Taken, int64(c.HighHits), int64(c.LogHits), int64(c.SourceMisses), int64(c.Requested())
	s.LHits, s.HomophilyHits, s.Substituted, s.SubstitutedMax = int64(c.LowHits), int64(c.NodeHits), int64(c.Substituted), int64(c.MaxSubstitute)
	return &s
}

// important returns the importance of a job that asked for it.
func (e *Engine) important(number int) (*important, error) {
	j := e.lookUp(number)
	if j == nil {
		return nil, errJobOver
	}
	p := j.importance.Load()
	if p == nil {
		return nil, &deliver.ArgumentError{Reason: "this job asked for no importance: call job.importance first"}
	}
	return p, nil
}

// locked calls f with the state of a job that asked for importance. p.stateMu is held.
func (e *Engine) locked(number int, f func(p *important)) error {
	p, err := e.important(number)
	if err != nil {
		return err
	}
	p.stateMu.Lock()
	defer p.stateMu.Unlock()
	if p.state.Closed() {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.err
	}
	f(p)
	return nil
}

// Weights are those of samples of an epoch: 1 / expected uses, with a mean of 1.
func (e *Engine) Weights(number, epoch int, indices []sample.Index) (weights []float32, err error) {
	err = e.locked(number, func(p *important) { weights = p.state.Weights(epoch, indices) })
	return weights, err
}

// Unstable lists the samples that a rank is to look at again before the next epoch.
func (e *Engine) Unstable(number, rank int) (mine []sample.Index, err error) {
	var other error
	err = e.locked(number, func(p *important) {
		if other = p.refuse(rank); other != nil {
			return
		}
		all := p.state.Unstable()
		for k := rank; k < len(all); k += p.world {
			mine = append(mine, all[k])
		}
	})
	return mine, errors.Join(err, other)
}

// OrderPage is a part of what a rank reads in an epoch of a job with importance, from place first on, and how much there is of it in all. It waits until the epoch's
// order is known.
func (e *Engine) OrderPage(ctx context.Context, number, epoch, rank int, first, count uint32) (page []sample.Index, total int, err error) {
	p, err := e.important(number)
	if err != nil {
		return nil, 0, err
	}
	if err := p.j.schedule.Accepts(epoch, rank); err != nil {
		return nil, 0, forClient(err)
	}
	ctx, cancel := context.WithTimeout(ctx, e.deliver.Timeout())
	defer cancel()
	if err := p.await(ctx, rank, epoch); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, 0, &deliver.TimeoutError{Waited: e.deliver.Timeout(), For: err.Error()}
		}
		return nil, 0, err
	}
	look, err := p.j.schedule.Chunks(ctx, epoch, rank)
	if err != nil {
		return nil, 0, forClient(err)
	}
	if two := p.twoOf(epoch); two != nil {
		look = two.look(rank)
	}
	size, batches := p.config.BatchSize, p.j.schedule.Batches(epoch, rank)
	if batches > 0 {
		last, _ := look(batches - 1)
		total = (batches-1)*size + len(last)
	}
	end := int(min(uint64(first)+uint64(count), uint64(total)))
	for b := int(first) / size; b*size < end; b++ {
		batch, ok := look(b)
		if !ok {
			break
		}
		page = append(page, batch[max(0, int(first)-b*size):min(len(batch), end-b*size)]...)
	}
	return page, total, nil
}
