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

// Dataset is what a State is about.
type Dataset struct {
	Fingerprint string
	Labels      []int32
	Sizes       []uint32
}

// An Order is an epoch that was drawn. A Plain one is a permutation of all samples, and has no Indices where the job's recipe has it.
type Order struct {
	Epoch     int
	Plain     bool
	Indices   []uint32         // that are served. Outside Go's heap, until the State drops the order, as the lists that follow
	Requested []uint32         // that were drawn, where others are served in place of some; nil: they are Indices
	Kinds     substitute.Kinds // with Requested: how each place is served
	Open      []uint32         // with Split: a bit for each place that was drawn when the epoch began; nil: none
	uses      []float32        // expected of each sample; nil: the same of all
}

// State is what is known of one job. See the package's comment.
type State struct {
	Config Config
	path   string
	data   Dataset
	recipe bool // plain epochs are the recipe's, and need no indices
	log    *slog.Logger

	scorer score.Scorer
	rep    score.Repetition
	once   score.Once
	epoch  int // that is trained
	orders map[int]*Order
	low    *lowPart // of the epoch after, with Split
	warned bool     // that nobody reports

	// Serve decides what is served of an order that was just drawn, for jobs that allow substitutes. It may read the State; it is called once for an order. nil: what was drawn.
	Serve func(epoch int, requested []sample.Index) (substitute.Plan, error)

	// Held lists the samples that memory holds, of a policy that does not go by the greatest values: these are repeated. The State closes the set; no set: memory can't say. nil: those of greatest value are.
	Held func() (*sample.Set, error)

	// OnNode is told of the best connected sample of each batch, by methods that know it. The slice belongs to the observation. nil: nobody is told.
	OnNode func(node sample.Index, neighbours []sample.Index)

	nextHigh *sample.Set // with Split, while orders are drawn: the H-list and the targets of the values as they are
	fresh    []float64

	Counts    importance.Stats
	Again     int64                                                                         // observations that had come before
	OnObserve func(indices []sample.Index, value func(sample.Index) (v float64, seen bool)) // told of each batch; nil: nobody
}

// lowPart is an epoch of which the positions of H-samples are still open.
type lowPart struct {
	epoch int
	order []uint32 // sample.None where an H-sample comes
	high  []uint32 // H, ascending
	uses  []float32
}

// New makes the state of a job about which nothing is known. path is where it is saved.
func New(c Config, path string, data Dataset, recipe bool, log *slog.Logger) (*State, error) {
	s := &State{Config: c, path: path, data: data, recipe: recipe, log: log, orders: map[int]*Order{}}
	return s, s.begin(0)
}

// begin forgets everything that was observed and drawn; the next epoch is the one given.
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

// unstable is how many samples S has: s_share of the cache, by their mean size.
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

// forget gives back all memory.
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

// Close gives back all memory. The file stays.
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

// Foretold is the order as it was known an epoch ahead, with sample.None in its open places, in memory of Go's heap; nil: nothing was.
func (o *Order) Foretold() []sample.Index {
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

// Coming is what is known of the epoch after the one that is trained, with Split: its order, with sample.None where an H-sample comes. nil: nothing is, or all.
func (s *State) Coming() (epoch int, order []sample.Index) {
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

// Epoch is the epoch that is trained.
func (s *State) Epoch() int { return s.epoch }

// Order is the order of an epoch; nil: it is not drawn yet, or was dropped.
func (s *State) Order(epoch int) *Order { return s.orders[epoch] }

// Orders are all that are kept, by epoch.
func (s *State) Orders() map[int]*Order { return maps.Clone(s.orders) }

// Ratio is the share of memory that is for important samples; the rest is for those that stand in for others.
func (s *State) Ratio() float64 {
	if g, is := s.scorer.(*score.Graph); is && s.Config.Substitute == substitute.Class {
		return g.Ratio()
	}
	return 1
}

// Activity is how much is observed.
func (s *State) Activity() score.Activity { return s.scorer.Activity() }

// Unstable are the samples to look at again before the next epoch.
func (s *State) Unstable() []sample.Index { return score.Unstable(s.scorer) }

// Observe takes one batch. One that came before is counted and left out.
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

// Restarted says that a rank has a new training process, which counts its batches from 0.
func (s *State) Restarted(rank uint16) {
	s.once.Restarted(rank)
	s.scorer.Restarted(rank)
}

// Values are those of all samples, in memory that the caller frees by offheap.Free.
func (s *State) Values() ([]float64, error) {
	room, err := offheap.MakeDense[float64](len(s.data.Labels))
	if err != nil {
		return nil, err
	}
	return s.scorer.Values(room), nil
}

// Advance makes the boundary before an epoch: the one that is trained ends, as p says, and what is to be known when `to` begins is drawn and then
// kept. Epochs between are left out. An epoch that lies behind may not be kept. Then all values are forgotten, and the job starts with that epoch.
func (s *State) Advance(to int, p score.Progress) error {
	switch {
	case to == s.epoch:
	case to < s.epoch && s.orders[to] != nil:
		return nil
	case to < s.epoch:
		s.log.Warn("epoch rewound past retained orders: losses reset, and the epoch is a plain permutation", "name", s.Config.Name, "epoch", to, "before", s.epoch)
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

// warn says once that the trainer does not report.
func (s *State) warn() {
	if a := s.scorer.Activity(); a.Silent > 0 && !s.warned {
		s.warned = true
		s.log.Warn("no loss was observed in an epoch: call job.observe after each batch; without observations epochs stay plain permutations", "name", s.Config.Name, "epoch", s.epoch-1)
	} else if a.Silent == 0 {
		s.warned = false
	}
}

// Weights are 1/t of samples of an epoch, with a mean of 1; 1 where the epoch is a plain one or not kept. Indices that the dataset lacks have 0.
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

// String names the state in logs.
func (s *State) String() string { return fmt.Sprintf("importance %s", s.Config.Name) }

// Closed reports whether the state was closed.
func (s *State) Closed() bool { return s.scorer == nil }

// WarmUpEpochs is how many epochs the warm-up took; 0: it goes on, or there is none.
func (s *State) WarmUpEpochs() int {
	if l, ok := s.scorer.(*score.Loss); ok {
		return l.WarmUpEpochs()
	}
	return 0
}
