package session

import (
	"lcache/internal/importance/draw"
	"lcache/internal/serve/status"
)

// report publishes the worker's status.
func (w *worker) report() {
	c := &w.o.Config
	s := &status.Importance{Name: c.Name, Method: c.Method, Lag: c.Lag, Policy: c.Policy, Substitute: c.Substitute, LBytes: w.loaded, PackagesLoaded: w.loads, Epoch: w.state.Epoch(), SSize: len(w.state.Unstable()),
		WarmupEpochs: w.state.WarmUpEpochs(), Ratio: w.state.Ratio(), Undelivered: w.undelivered, ReevaluationsMissed: w.missed}
	a := w.state.Activity()
	s.State, s.ObservedShare, s.LastObservedEpoch = string(a.State), a.ObservedShare, a.LastObserved
	if w.shapeOf != s.Epoch {
		w.shape, w.shapeOf = w.shapeNow(s.Epoch), s.Epoch
	}
	s.EpochLength, s.UnseenShare, s.DistinctShare, s.MaxUses = w.shape.Length, w.shape.Unseen, w.shape.Distinct, w.shape.MaxUses
	n := &w.state.Counts
	s.Observations = int64(n.Observations)
	dropped, refused := w.inbox.counts()
	s.ObservationsDropped = dropped
	s.Refused = status.Refused{Unknown: int64(n.Refused.Unknown), NotFinite: int64(n.Refused.NotFinite) + refused.NotFinite, Stale: int64(n.Refused.Stale), Shape: int64(n.Refused.Shape) + refused.Shape, Dimension: refused.Dimension}
	w.status.Store(s)
}

// shapeNow returns the shape of an epoch's order.
func (w *worker) shapeNow(epoch int) draw.Shape {
	n := w.o.Manifest.Len()
	o := w.state.Order(epoch)
	if o == nil || o.Plain {
		return draw.Shape{Length: n, Distinct: 1, MaxUses: 1}
	}
	shape, err := draw.ShapeOf(o.Indices, n)
	if err != nil {
		w.o.Log.Debug("cannot compute the shape of an order", "err", err)
	}
	return shape
}

// Status returns the status of the job's importance. It has no counters of packages.
func (s *Session) Status() *status.Importance {
	now := *s.status.Load()
	c := s.o.High.Counts()
	now.HBytes, now.HHits, now.LogHits, now.SourceMisses, now.Requested = c.Taken, int64(c.HighHits), int64(c.LogHits), int64(c.SourceMisses), int64(c.Requested())
	now.LHits, now.HomophilyHits, now.Substituted, now.SubstitutedMax = int64(c.LowHits), int64(c.NodeHits), int64(c.Substituted), int64(c.MaxSubstitute)
	return &now
}
