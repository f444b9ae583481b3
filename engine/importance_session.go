package engine

import (
	"context"
	"errors"
	"maps"
	"slices"

	"lcache/internal/importance/memory"
	"lcache/internal/importance/packing"
	"lcache/internal/importance/score"
	"lcache/internal/importance/session"
	"lcache/internal/importance/state"
	"lcache/internal/serve/deliver"
	"lcache/internal/serve/fetch"
	"lcache/internal/serve/status"
	"lcache/sample"
)

// sessionHost implements session.Host for the session of a job.
type sessionHost struct {
	e *Engine
	j *job
}

// LaidOut returns the epochs for which a layout or Logfile exists, ascending.
func (h sessionHost) LaidOut() []int {
	h.e.mu.Lock()
	defer h.e.mu.Unlock()
	if h.j != h.e.owner {
		return nil
	}
	epochs := slices.Collect(maps.Keys(h.e.layouts))
	for _, l := range h.e.logs {
		if l.Epoch >= 0 {
			epochs = append(epochs, l.Epoch)
		}
	}
	slices.Sort(epochs)
	return slices.Compact(epochs)
}

func (h sessionHost) OrderChanged(epoch int, replaced bool) { h.e.reordered(h.j, epoch, replaced) }

func (h sessionHost) OrderPublished(epoch, rank int) { h.e.window.ahead.pushed(h.j, rank, epoch) }

func (h sessionHost) Wake() { h.e.nudge() }

func (h sessionHost) Units(high *sample.Set, epoch int, seed uint64) [][]sample.Index {
	return packing.Units(h.e.cache, high, epoch, seed)
}

// Unsent counts observations that a client did not send.
type Unsent = session.Unsent

// importanceOfJob returns a job's importance; nil: the job is over, or has none.
func (e *Engine) importanceOfJob(number int) *important {
	if j := e.lookUp(number); j != nil {
		return j.importance.Load()
	}
	return nil
}

// Observe queues an observation, or drops it if the job has no importance. It never waits.
func (e *Engine) Observe(number int, o score.Observation) {
	if p := e.importanceOfJob(number); p != nil {
		p.Observe(o)
	}
}

// EndEpoch notes that a rank has ended an epoch, and the progress of the training. It never waits.
func (e *Engine) EndEpoch(number, rank int, said score.Progress, unsent Unsent) {
	if p := e.importanceOfJob(number); p != nil {
		p.EndEpoch(rank, said, unsent)
	}
}

// important returns the importance of a job. It returns an error if the job has none.
func (e *Engine) important(number int) (*important, error) {
	j := e.lookUp(number)
	if j == nil {
		return nil, errJobOver
	}
	p := j.importance.Load()
	if p == nil {
		return nil, &deliver.ArgumentError{Reason: "importance is off for this job: call job.importance first"}
	}
	return p, nil
}

// viewState calls f with the importance state of a job.
func (e *Engine) viewState(number int, f func(*state.State)) error {
	p, err := e.important(number)
	if err != nil {
		return err
	}
	return p.View(f)
}

// Weights returns the weights of samples in an epoch: 1 / expected uses, with a mean of 1.
func (e *Engine) Weights(number, epoch int, indices []sample.Index) (weights []float32, err error) {
	err = e.viewState(number, func(s *state.State) { weights = s.Weights(epoch, indices) })
	return weights, err
}

// Unstable lists the samples that a rank evaluates again before the next epoch.
func (e *Engine) Unstable(number, rank int) (mine []sample.Index, err error) {
	p, err := e.important(number)
	if err != nil {
		return nil, err
	}
	return p.Unstable(rank)
}

// OrderPage returns a part of a rank's order in an epoch, from position first on, and the length of the whole order. It waits until the order is known.
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
	if err := p.Await(ctx, rank, epoch); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, 0, &deliver.TimeoutError{Waited: e.deliver.Timeout(), For: err.Error()}
		}
		return nil, 0, err
	}
	page, total, err = p.Page(ctx, epoch, rank, first, count)
	return page, total, forClient(err)
}

// served counts a delivery, and passes it to the memory policy and the packages.
func (p *important) served(at *deliver.Position, d deliver.Delivery) {
	p.high.Served(memory.Delivery{Epoch: at.Epoch, Indices: d.Indices, Addresses: d.Addresses, Kinds: p.Kinds(*at, d.Indices, d.Requested)})
	p.opportunistic.Delivered(at.Epoch, d.Indices)
	p.packs.Delivered(d.Indices, d.Addresses)
}

// importanceStatus is the status of a job's importance; nil: it has none.
func (j *job) importanceStatus() *status.Importance {
	p := j.importance.Load()
	if p == nil {
		return nil
	}
	s := p.Status()
	s.PackagesWritten, s.CleanedBytes = p.packs.Counts()
	return s
}

// requestedIn returns the requested order of an epoch; nil: it equals the served order, or was dropped. p may be nil.
func (p *important) requestedIn(epoch int) *session.Requested {
	if p == nil {
		return nil
	}
	return p.Requested(epoch)
}

// holders returns the memories of a job that hold samples.
func (p *important) holders() fetch.Holders {
	list := fetch.Holders{p.high.Held()}
	if p.opportunistic != nil {
		list = append(list, p.opportunistic.Held())
	}
	return list
}

// changeHolders adds memories to the suppliers, and removes others.
func (e *Engine) changeHolders(more, less fetch.Holders) {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := slices.Clone(more)
	if held := e.fetcher.Held.Load(); held != nil {
		list = slices.Concat(*held, more) // readers use the old list without a lock
	}
	list = slices.DeleteFunc(list, func(one fetch.Holder) bool { return slices.Contains(less, one) })
	e.fetcher.Held.Store(&list)
}
