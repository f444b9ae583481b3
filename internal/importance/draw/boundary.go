package draw

import (
	"lcache/internal/disk/offheap"
	"lcache/internal/importance/score"
	"lcache/sample"
)

// Boundary draws the order of each epoch of a job between two epochs.
type Boundary struct {
	Scorer  score.Scorer
	Samples int
	Seed    uint64
	Draw    Draw
	Lag     int // age of the values that an order is drawn from, in epochs: 0 or 1
}

// Plain reports whether an epoch is a plain permutation: no rank has observed yet, the warm-up is not over, or
// observations have stopped.
func (b Boundary) Plain(epoch int) bool {
	a := b.Scorer.Activity()
	return epoch <= b.Lag || a.State != score.Active || a.LastObserved < 0
}

// Order returns the order of an epoch: drawn from targets, or plain. It depends only on the current values, so two
// calls return the same order. hot is the set of samples that memory will hold. Peak memory is 12 bytes per sample.
// The caller frees the order with offheap.Free.
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

// Expected returns the targets for the current values. The caller frees them with offheap.Free.
func (b Boundary) Expected(t Targets, hot *sample.Set) ([]float64, error) {
	room, err := offheap.MakeDense[float64](b.Samples)
	if err != nil {
		return nil, err
	}
	values := b.Scorer.Values(room)
	t(values, hot, values)
	return values, nil
}
