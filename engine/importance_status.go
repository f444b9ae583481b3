package engine

import (
	"context"
	"errors"

	"lcache/deliver"
	"lcache/importance"
	"lcache/sample"
)

// ImportanceStatus is the part of JobStatus about a job whose orders are drawn by importance. Counters only grow. Requested is the sum of the hits, the substitutes and
// the misses.
type ImportanceStatus struct {
	Name         string `json:"name"`
	Method       string `json:"method"`
	Lag          string `json:"lag"`
	Policy       string `json:"policy"`
	State        string `json:"state"` // warmup, active or idle
	Epoch        int    `json:"epoch"`
	EpochLength  int    `json:"epoch_length"` // samples of Epoch
	WarmupEpochs int    `json:"warmup_epochs"`
	SSize        int    `json:"s_size"` // samples to look at again before each epoch

	Requested     int64 `json:"requested"` // samples delivered in the schedule's order
	HBytes        int64 `json:"h_bytes"`   // of samples in the memory of the policy
	HHits         int64 `json:"h_hits"`    // samples that were there
	LHits         int64 `json:"l_hits"`
	HomophilyHits int64 `json:"homophily_hits"`
	Substituted   int64 `json:"substituted"`
	LogHits       int64 `json:"log_hits"`
	SourceMisses  int64 `json:"source_misses"`

	// Of substitutes and packages.
	Substitute      string  `json:"substitute"` // what may be served in place of a sample: low, class or nothing
	LBytes          int64   `json:"l_bytes"`    // that Epoch loads at once at most, to serve them in place of others
	Ratio           float64 `json:"ratio"`
	SubstitutedMax  int64   `json:"substituted_max"`
	PackagesWritten int64   `json:"packages_written"`
	PackagesLoaded  int64   `json:"packages_loaded"`
	CleanedBytes    int64   `json:"cleaned_bytes"`

	UnseenShare   float64 `json:"unseen_share"` // of all samples, those that Epoch leaves out
	DistinctShare float64 `json:"distinct_share"`
	MaxUses       int     `json:"max_uses"` // of one sample in Epoch

	Observations        int64             `json:"observations"` // samples
	ObservationsDropped int64             `json:"observations_dropped"`
	ObservedShare       float64           `json:"observed_share"` // of all samples, in the epoch before
	LastObservedEpoch   int               `json:"last_observed_epoch"`
	Undelivered         int64             `json:"undelivered"` // samples observed that had not been delivered
	ReevaluationsMissed int64             `json:"reevaluations_missed"`
	Refused             ImportanceRefused `json:"refused"`
}

// ImportanceRefused counts samples that were observed for nothing; of Shape whole observations.
type ImportanceRefused struct {
	Unknown   int64 `json:"unknown"`
	NotFinite int64 `json:"notfinite"`
	Stale     int64 `json:"stale"`
	Shape     int64 `json:"shape"`
	Dimension int64 `json:"dimension"`
}

// tell makes the status of what the state is now. Only the worker calls it, and who makes it.
func (p *important) tell() {
	s := &ImportanceStatus{Name: p.config.Name, Method: p.config.Method, Lag: p.config.Lag, Policy: p.config.Policy, Substitute: p.config.Substitute, LBytes: p.loaded, PackagesLoaded: p.loads, Epoch: p.state.Epoch(), SSize: len(p.state.Unstable()),
		WarmupEpochs: p.state.WarmUpEpochs(), Ratio: p.state.Ratio(), Undelivered: p.undelivered, ReevaluationsMissed: p.missed}
	a := p.state.Activity()
	s.State, s.ObservedShare, s.LastObservedEpoch = string(a.State), a.ObservedShare, a.LastObserved
	if p.shapeOf != s.Epoch {
		p.shape, p.shapeOf = p.shapeNow(s.Epoch), s.Epoch
	}
	s.EpochLength, s.UnseenShare, s.DistinctShare, s.MaxUses = p.shape.Length, p.shape.Unseen, p.shape.Distinct, p.shape.MaxUses
	c := &p.state.Counts
	s.Observations = int64(c.Observations)
	s.Refused = ImportanceRefused{Unknown: int64(c.Refused.Unknown), NotFinite: int64(c.Refused.NotFinite), Stale: int64(c.Refused.Stale), Shape: int64(c.Refused.Shape)}
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
func (j *job) importanceStatus() *ImportanceStatus {
	p := j.importance.Load()
	if p == nil {
		return nil
	}
	s := *p.status.Load()
	if p.packs != nil {
		s.PackagesWritten, s.CleanedBytes = p.packs.written.Load(), p.packs.cleaned.Load()
	}
	c := p.high.counted()
	s.HBytes, s.HHits, s.LogHits, s.SourceMisses, s.Requested = c.taken, int64(c.HighHits), int64(c.LogHits), int64(c.SourceMisses), int64(c.Requested())
	s.LHits, s.HomophilyHits, s.Substituted, s.SubstitutedMax = int64(c.LowHits), int64(c.NodeHits), int64(c.Substituted), int64(c.MaxSubstitute)
	return &s
}

// important returns the importance of a job that asked for it.
func (e *Engine) important(number int) (*important, error) {
	j := e.lookUp(&deliver.Position{Job: number})
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
