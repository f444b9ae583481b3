package importance

import (
	"lcache/internal/disk/offheap"
	"lcache/sample"
)

// Boundary is what draws the order of each epoch of a job between two epochs.
type Boundary struct {
	Scorer  Scorer
	Samples int
	Seed    uint64
	Draw    Draw
	Lag     int // how many epochs old the values are that an order is drawn from: 0 or 1
}

// Plain reports whether an epoch is a plain permutation: nothing is known yet, the warm-up goes on, or nobody observes any more.
func (b Boundary) Plain(epoch int) bool {
	a := b.Scorer.Activity()
	return epoch <= b.Lag || a.State != Active || a.LastObserved < 0
}

// Order is the order of an epoch by targets, or a plain one. It follows from the values as they are now: two calls give the same. hot are the samples that
// memory will hold. At its peak it takes 12 bytes a sample. The caller frees the order by offheap.Free.
func (b Boundary) Order(epoch int, t Targets, hot *sample.Set) ([]uint32, error) {
	if b.Plain(epoch) {
		return Plain(b.Samples, b.Seed, epoch)
	}
	targets, err := b.Expected(t, hot)
	if err != nil {
		return nil, err
	}
	defer offheap.Free(targets)
	return Order(targets, b.Seed, epoch, b.Draw)
}

// Expected are the targets by the values as they are now, in memory that the caller frees by offheap.Free.
func (b Boundary) Expected(t Targets, hot *sample.Set) ([]float64, error) {
	room, err := offheap.MakeDense[float64](b.Samples)
	if err != nil {
		return nil, err
	}
	values := b.Scorer.Values(room)
	t(values, hot, values)
	return values, nil
}

// Repetition is SHADE's rep from epoch to epoch (SHADE §4.2.1): 1 while no accuracy is reported, and 1 for an epoch after accuracy has not risen over
// three epochs.
type Repetition struct {
	accuracy []float64 // of the last four epochs
}

// EndEpoch takes an epoch's accuracy; nil: it was not reported.
func (r *Repetition) EndEpoch(accuracy *float64) {
	if accuracy == nil {
		r.accuracy = nil
		return
	}
	if r.accuracy = append(r.accuracy, *accuracy); len(r.accuracy) > 4 {
		r.accuracy = r.accuracy[1:]
	}
}

// Allow is how often hot samples are repeated in the next epoch, if the user wants it rep times.
func (r *Repetition) Allow(rep float64) float64 {
	n := len(r.accuracy)
	if n == 0 || n == 4 && r.accuracy[3] <= r.accuracy[0] {
		return min(rep, 1)
	}
	return rep
}
