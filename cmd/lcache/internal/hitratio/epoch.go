package hitratio

import (
	"slices"

	"lcache/internal/disk/offheap"
	"lcache/internal/importance"
	"lcache/internal/importance/draw"
	"lcache/internal/importance/policy"
	"lcache/internal/importance/score"
	"lcache/sample"
)

// training is one training under way.
type training struct {
	setup
	players  []*player
	batch    int
	boundary draw.Boundary
	targets  draw.Targets
	losses   func(epoch int) ([]float32, error)
	now      []float32 // losses of the epoch
	clusters *clusters // of a method that observes neighbours
	bank     *score.Bank
}

// begin makes scorer and policies of a training.
func (s setup) begin(o Options, seed uint64, players []*player) (t *training, err error) {
	t = &training{setup: s, players: players, batch: o.Batch, losses: o.Trace.losses(seed)}
	defer func() {
		if err != nil {
			t.end()
		}
	}()
	name := s.method
	if name == Plain {
		name = "impact" // its values are not used
	}
	m, err := importance.Lookup(name)
	if err != nil {
		return t, err
	}
	p := m.Defaults
	p.Batch, p.Rep, p.Floor, p.WarmUp = o.Batch, s.rep, 0, 0
	labels := make([]int32, s.samples)
	if s.method == "spider" {
		t.clusters = newClusters(s.samples, seed)
		labels = t.clusters.labels
		t.bank = score.NewBank(labels, 1/clusterRadius, 0.36787944117144233, p.K) // e⁻¹
	}
	for _, pl := range players {
		capacity := s.room(pl.cache)
		if pl.pinned > 0 {
			p.Unstable, p.WarmUp = int(float64(capacity)*pl.pinned), s.plain
			capacity -= int64(p.Unstable)
		}
		if pl.p, err = pl.make(m, labels, capacity, p); err != nil {
			return t, err
		}
	}
	scorer, err := m.Scorer(s.samples, p, t.best)
	if err != nil {
		return t, err
	}
	t.boundary = draw.Boundary{Scorer: scorer, Samples: s.samples, Seed: seed, Draw: s.draw}
	t.targets = m.Targets(p)
	t.now, err = t.losses(0)
	return t, err
}

func (t *training) end() {
	if t.boundary.Scorer != nil {
		t.boundary.Scorer.Close()
	}
	for _, p := range t.players {
		if p.p != nil {
			p.p.Close()
		}
		p.s.Close()
		p.s = nil
	}
}

// best gives all players that serve substitutes the best connected sample of a batch.
func (t *training) best(node sample.Index, near []sample.Index) {
	for _, p := range t.players {
		if pair, is := p.p.(*policy.Homophily); is {
			pair.Put(node, near, 1)
		}
	}
}

// epoch draws an epoch, and sends its requests to all players.
func (t *training) epoch(e int) (order []sample.Index, err error) {
	order, expected, err := t.draw(e)
	defer offheap.Free(expected)
	if err != nil {
		return order, err
	}
	values := t.boundary.Scorer.Values(nil)
	for _, p := range t.players {
		if p.policy == packages && e >= t.plain { // it is alone: the values are its own
			p.served, err = t.load(p, e, values, order)
		} else {
			p.served, err = p.serves(e, values, expected, order, t)
		}
		if err != nil {
			return order, err
		}
		policy.Begin(p.p, e, values, expected, p.served)
	}
	for k := 0; k < len(order); k += t.batch {
		batch := order[k:min(k+t.batch, len(order))]
		for _, p := range t.players {
			for i, id := range batch {
				p.served[k+i] = p.ask(id, k+i, e >= t.from)
			}
		}
		if len(t.players) == 1 && t.players[0].substitutesSome() { // a player of its own trains the served samples
			batch = t.players[0].served[k : k+len(batch)]
		}
		t.observe(e, k/t.batch, batch)
	}
	if e >= t.from {
		shape, err := draw.ShapeOf(order, t.samples)
		if err != nil {
			return order, err
		}
		for _, p := range t.players {
			p.unseen += shape.Unseen / float64(t.epochs-t.from)
		}
	}
	return order, t.endEpoch(e)
}

// draw draws an order, and the expected uses that it was drawn from; nil before anything is known.
func (t *training) draw(e int) (order []sample.Index, expected []float64, err error) {
	if e > 0 && t.method != Plain {
		hot, err := t.hot()
		if err != nil {
			return nil, nil, err
		}
		defer hot.Close()
		if expected, err = t.boundary.Expected(t.targets, hot); err != nil {
			return nil, nil, err
		}
	}
	if e < t.plain {
		order, err = draw.Plain(t.samples, t.boundary.Seed, e)
	} else {
		uses := append([]float64(nil), expected...)
		order, err = draw.Order(uses, t.boundary.Seed, e, t.boundary.Draw)
	}
	return order, expected, err
}

// hot are the samples that memory holds, if they are repeated. SHADE's own cache is brought to the greatest values first.
func (t *training) hot() (*sample.Set, error) {
	for _, p := range t.players {
		app, is := p.p.(*policy.APP)
		if !is {
			continue
		}
		top, err := policy.Top(t.boundary.Scorer.Values(nil), t.room(p.cache), unit)
		if err != nil {
			return nil, err
		}
		var list []sample.Index
		for i := range top.All {
			list = append(list, i)
		}
		top.Close()
		app.Prefetch(list, unit)
	}
	if t.rep == 1 {
		return nil, nil
	}
	hot, err := sample.NewSet(t.samples)
	for i := range sample.Index(t.samples) {
		if err == nil && t.players[0].p.Has(i) {
			hot.Add(i)
		}
	}
	return hot, err
}

func unit(sample.Index) int64 { return 1 }

// observe sends a batch to the scorer, and new values to the policies.
func (t *training) observe(e, number int, batch []sample.Index) {
	o := score.Observation{Kind: score.Losses, Index: batch}
	if t.clusters != nil {
		o = t.bank.Batch(batch, t.clusters.embeddings(batch, e))
	} else {
		for _, id := range batch {
			o.Loss = append(o.Loss, t.now[id])
		}
	}
	o.Epoch, o.Batch = uint32(e), uint32(number)
	t.boundary.Scorer.Observe(o)
	valued, is := t.boundary.Scorer.(interface {
		Value(sample.Index) (float64, bool)
	})
	for _, id := range batch {
		if v, seen := valued.Value(id); is && seen {
			for _, p := range t.players {
				p.p.Observe(id, v)
			}
		}
	}
}

// endEpoch makes the boundary. The losses of unstable samples are looked at again before it.
func (t *training) endEpoch(e int) (err error) {
	scorer := t.boundary.Scorer
	if e+1 < t.epochs {
		if t.now, err = t.losses(e + 1); err != nil {
			return err
		}
	}
	for s := range slices.Chunk(score.Unstable(scorer), score.MaxSamples) {
		o := score.Observation{Kind: score.Reevaluated, Epoch: uint32(e), Index: s}
		for _, i := range s {
			o.Loss = append(o.Loss, t.now[i])
		}
		scorer.Observe(o)
	}
	scorer.EndEpoch(score.Progress{Epoch: e})
	for _, p := range t.players {
		if s := score.Unstable(scorer); p.pinned > 0 && p.s == nil && len(s) > 0 {
			if p.s, err = sample.NewSet(t.samples); err != nil {
				return err
			}
			for _, i := range s {
				p.s.Add(i)
			}
		}
	}
	return nil
}
