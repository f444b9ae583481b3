package state

import (
	"fmt"
	"log/slog"
	"maps"
	"math"

	"lcache/internal/disk/offheap"
	"lcache/internal/importance"
	"lcache/internal/importance/draw"
	"lcache/internal/importance/score"
	"lcache/internal/importance/substitute"
	"lcache/sample"
)

// Dataset describes the dataset of a State.
type Dataset struct {
	Fingerprint string
	Labels      []int32
	Sizes       []uint32
}

// An Order is a drawn epoch. A Plain one is a permutation of all samples, without Indices if the job's recipe determines it.
type Order struct {
	Epoch     int
	Plain     bool
	Indices   []uint32         // the served order. Outside Go's heap until the State drops the order, like the lists below
	Requested []uint32         // the drawn order, if it differs from Indices; nil: it is the same
	Kinds     substitute.Kinds // with Requested: how each position is served
	Open      []uint32         // with Split: a bit for each position that was drawn at the beginning of the epoch; nil: none
	uses      []float32        // expected uses of each sample; nil: equal
}

// State is the importance of one job; see the package comment.
type State struct {
	Config Config
	path   string
	data   Dataset
	recipe bool // plain epochs follow the job's recipe, and have no indices
	log    *slog.Logger

	scorer score.Scorer
	rep    score.Repetition
	once   score.Once
	epoch  int // the trained epoch
	orders map[int]*Order
	low    *lowPart // with Split: the L part of the next epoch
	warned bool     // about missing observations

	// Serve plans the served order for a drawn order, if the job allows substitutes. It may read the State, and is
	// called once for each order. nil: the drawn order is served.
	Serve func(epoch int, requested []sample.Index) (substitute.Plan, error)

	// Held returns the samples in memory, if the memory policy does not keep the greatest values: these samples are
	// repeated. The State closes the set; a nil set means unknown. If Held is nil, the samples of greatest value are
	// repeated.
	Held func() (*sample.Set, error)

	// OnNode receives the best connected sample of each batch, if the method finds one. It must not keep the slice. It
	// may be nil.
	OnNode func(node sample.Index, neighbours []sample.Index)

	nextHigh *sample.Set // with Split, while orders are drawn: the H-list and the targets for the current values
	fresh    []float64

	Counts    importance.Stats
	Again     int64                                                                         // number of repeated observations
	OnObserve func(indices []sample.Index, value func(sample.Index) (v float64, seen bool)) // receives each batch; may be nil
}

// lowPart is an epoch in which the positions of H-samples are still open.
type lowPart struct {
	epoch int
	order []uint32 // sample.None for H-samples
	high  []uint32 // H, ascending
	uses  []float32
}

// New returns a state without observations. path is the file for saving it.
func New(c Config, path string, data Dataset, recipe bool, log *slog.Logger) (*State, error) {
	s := &State{Config: c, path: path, data: data, recipe: recipe, log: log, orders: map[int]*Order{}}
	return s, s.begin(0)
}

// begin forgets all observations and orders, and starts at the given epoch.
func (s *State) begin(epoch int) error {
	scorer, err := s.newScorer()
	if err != nil {
		return err
	}
	s.forget()
	s.scorer, s.rep, s.once, s.epoch, s.warned = scorer, score.Repetition{}, score.Once{}, epoch, false
	if epoch > 0 {
		s.scorer.EndEpoch(score.Progress{Epoch: epoch - 1})
	}
	return nil
}

func (s *State) newScorer() (score.Scorer, error) {
	m, err := importance.Lookup(s.Config.Method)
	if err != nil {
		return nil, err
	}
	p := s.Config.Params
	p.Unstable = s.unstable()
	scorer, err := m.Scorer(len(s.data.Labels), p, func(node sample.Index, neighbours []sample.Index) {
		if s.OnNode != nil {
			s.OnNode(node, neighbours)
		}
	})
	if err != nil {
		return nil, err
	}
	if err := scorer.Share(s.Config.WorldSize); err != nil {
		scorer.Close()
		return nil, err
	}
	return scorer, nil
}

// unstable returns the size of S: s_share of the cache, in samples of mean size.
func (s *State) unstable() int {
	bytes := 0.0
	for _, size := range s.data.Sizes {
		bytes += float64(size)
	}
	if bytes == 0 {
		return 0
	}
	n := float64(len(s.data.Sizes))
	return int(math.Min(n, s.Config.Params.SShare*float64(s.Config.Cache)/bytes*n))
}

// forget frees all memory.
func (s *State) forget() {
	if s.scorer != nil {
		s.scorer.Close()
		s.scorer = nil
	}
	for epoch := range s.orders {
		s.drop(epoch)
	}
	s.dropLow()
}

// Close frees all memory. The file stays.
func (s *State) Close() { s.forget() }

func (s *State) drop(epoch int) {
	if o := s.orders[epoch]; o != nil {
		o.free()
		delete(s.orders, epoch)
	}
}

func (o *Order) free() {
	offheap.Free(o.Indices)
	offheap.Free(o.Requested)
	offheap.Free(o.Kinds)
	offheap.Free(o.Open)
	offheap.Free(o.uses)
}

// Partial returns the order as it was known an epoch ahead, with sample.None at open positions, on Go's heap. It returns nil without a
// partial order.
func (o *Order) Partial() []sample.Index {
	if o.Open == nil {
		return nil
	}
	order := make([]sample.Index, len(o.Indices))
	for k, i := range o.Indices {
		if order[k] = i; o.Open[k/32]&(1<<(k%32)) != 0 {
			order[k] = sample.None
		}
	}
	return order
}

// Partial returns the partial order of the next epoch with Split, with sample.None for H-samples; nil: nothing or everything is known.
func (s *State) Partial() (epoch int, order []sample.Index) {
	if s.low == nil {
		return -1, nil
	}
	return s.low.epoch, s.low.order
}

func (s *State) dropLow() {
	if s.low != nil {
		offheap.Free(s.low.order)
		offheap.Free(s.low.uses)
		s.low = nil
	}
}

// Epoch returns the trained epoch.
func (s *State) Epoch() int { return s.epoch }

// Order returns the order of an epoch; nil: it is not drawn yet, or was dropped.
func (s *State) Order(epoch int) *Order { return s.orders[epoch] }

// Orders returns all orders that are kept, by epoch.
func (s *State) Orders() map[int]*Order { return maps.Clone(s.orders) }

// Ratio returns the share of memory for important samples; nodes have the rest.
func (s *State) Ratio() float64 {
	if g, is := s.scorer.(*score.Graph); is && s.Config.Substitute == substitute.Class {
		return g.Ratio()
	}
	return 1
}

// Activity returns how much of the last epoch was observed.
func (s *State) Activity() score.Activity { return s.scorer.Activity() }

// Unstable returns the samples to evaluate again before the next epoch.
func (s *State) Unstable() []sample.Index { return score.Unstable(s.scorer) }

// Observe adds one batch. It counts and ignores a repeated batch.
func (s *State) Observe(o score.Observation) {
	if current := int64(o.Epoch) == int64(s.epoch) || int64(o.Epoch)+1 == int64(s.epoch); current && !s.once.New(&o) {
		s.Again++
		return
	}
	s.Counts.Count(s.scorer.Observe(o))
	if s.OnObserve != nil {
		s.OnObserve(o.Index, s.value)
	}
}

func (s *State) value(i sample.Index) (float64, bool) {
	if x, ok := s.scorer.(interface {
		Value(sample.Index) (float64, bool)
	}); ok {
		return x.Value(i)
	}
	return 0, false
}

// Restarted notes that a rank has a new training process, which counts its batches from 0.
func (s *State) Restarted(rank uint16) {
	s.once.Restarted(rank)
	s.scorer.Restarted(rank)
}

// Values returns the values of all samples. The caller frees them with offheap.Free.
func (s *State) Values() ([]float64, error) {
	room, err := offheap.MakeDense[float64](len(s.data.Labels))
	if err != nil {
		return nil, err
	}
	return s.scorer.Values(room), nil
}

// Advance moves to epoch `to`. It ends the trained epoch, with progress p, and draws the orders that must be known at
// the beginning of `to`. It skips epochs in between. If `to` is an earlier epoch whose order is not kept, it forgets
// all values, and the job starts again at that epoch.
func (s *State) Advance(to int, p score.Progress) error {
	switch {
	case to == s.epoch:
	case to < s.epoch && s.orders[to] != nil:
		return nil
	case to < s.epoch:
		s.log.Warn("the job went back to an epoch whose order is not kept: losses reset, and the epoch is a plain permutation", "name", s.Config.Name, "epoch", to, "before", s.epoch)
		if err := s.begin(to); err != nil {
			return err
		}
	default:
		p.Epoch = to - 1
		s.scorer.EndEpoch(p)
		s.rep.EndEpoch(p.Accuracy)
		s.epoch = to
		s.once.Forget(uint32(to))
		s.warn()
	}
	for epoch := range s.orders {
		if epoch < to-1 {
			s.drop(epoch)
		}
	}
	return s.drawAll(to)
}

// warn logs once that observations are missing.
func (s *State) warn() {
	if a := s.scorer.Activity(); a.Silent > 0 && !s.warned {
		s.warned = true
		s.log.Warn("no loss was observed in an epoch: call job.observe after each batch; without observations epochs stay plain permutations", "name", s.Config.Name, "epoch", s.epoch-1)
	} else if a.Silent == 0 {
		s.warned = false
	}
}

// Weights returns 1/t of samples in an epoch, scaled to a mean of 1. They are all 1 if the epoch is plain or not
// kept. Indices beyond the dataset get 0.
func (s *State) Weights(epoch int, indices []sample.Index) []float32 {
	o := s.orders[epoch]
	targets, places := make([]float64, len(indices)), make([]sample.Index, len(indices))
	for k, i := range indices {
		places[k] = sample.Index(k)
		switch {
		case int(i) >= len(s.data.Labels):
		case o == nil || o.uses == nil:
			targets[k] = 1
		default:
			targets[k] = float64(o.uses[i])
		}
	}
	return draw.Weights(targets, places, nil)
}

// String returns a name for logs.
func (s *State) String() string { return fmt.Sprintf("importance %s", s.Config.Name) }

// Closed reports whether the state was closed.
func (s *State) Closed() bool { return s.scorer == nil }

// WarmUpEpochs returns the length of the warm-up; 0: it is not over, or there is none.
func (s *State) WarmUpEpochs() int {
	if l, ok := s.scorer.(*score.Loss); ok {
		return l.WarmUpEpochs()
	}
	return 0
}
