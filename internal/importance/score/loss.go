package score

import (
	"fmt"
	"math"
)

// Loss is ImPACT's scorer: a sample's value is its newest loss (ImPACT §III). It leaves out the paper's reference
// [22], which needs a second model. It finds unstable samples with a [WarmUp].
type Loss struct {
	values
	irreducible []float32
	warm        *WarmUp // nil: none, or it is over
	unstable    []uint32
	warmEpochs  int
}

// LossOptions are ImPACT's parameters.
type LossOptions struct {
	Irreducible []float32 // for each sample, a loss of another model that is subtracted; nil: none
	Unstable    int       // number of samples in S; 0: no warm-up after the first epoch
	Overlap     float64   // the warm-up ends when two consecutive S overlap this much
	MaxEpochs   int       // maximum length of the warm-up
	Fixed       int       // exact length of the warm-up in epochs; 0: until S is stable
}

// NewLoss returns a scorer for n samples.
func NewLoss(n int, o LossOptions) (*Loss, error) {
	if o.Irreducible != nil && len(o.Irreducible) != n {
		return nil, fmt.Errorf("%d irreducible losses for %d samples: give one for each", len(o.Irreducible), n)
	}
	for i, x := range o.Irreducible {
		if !finite(x) {
			return nil, fmt.Errorf("the irreducible loss of sample %d is %v: give a number", i, x)
		}
	}
	v, err := newValues(n)
	if err != nil {
		return nil, err
	}
	l := &Loss{values: v, irreducible: o.Irreducible}
	if o.Unstable > 0 || o.Fixed > 0 {
		if l.warm, err = NewWarmUp(n, o); err != nil {
			v.Close()
			return nil, err
		}
		l.activity.State = Warmup
	}
	return l, nil
}

// Observe takes the losses of one batch. If a sample is in the batch twice, its last loss applies.
func (l *Loss) Observe(o Observation) (r Report) {
	switch {
	case o.Kind == Counts || o.misshapen():
		return Report{Shape: 1}
	case l.stale(o.Epoch):
		return Report{Stale: len(o.Index)}
	}
	l.begin(&o)
	for k, i := range o.Index {
		switch {
		case int(i) >= len(l.v):
			r.Unknown++
		case !finite(o.Loss[k]):
			r.NotFinite++
		default:
			v := float64(o.Loss[k])
			if l.irreducible != nil {
				v -= float64(l.irreducible[i])
			}
			l.set(i, v)
			r.Observed++
		}
	}
	return r
}

// EndEpoch ends the epoch, and the warm-up if it is complete.
func (l *Loss) EndEpoch(p Progress) {
	observed := l.observed > 0
	l.end(p)
	if l.warm == nil {
		return
	}
	l.fill()
	if observed { // otherwise the losses are from the epoch before, and show nothing about stability
		if l.warm.EndEpoch(l.v) {
			l.unstable, l.warmEpochs = l.warm.S(), l.warm.epochs
			l.warm.Close()
			l.warm = nil
			return
		}
	}
	if l.activity.State == Active {
		l.activity.State = Warmup
	}
}

// Unstable returns the samples of S, whose ranks change most, in ascending order. There are none before the warm-up
// has ended.
func (l *Loss) Unstable() []uint32 { return l.unstable }

// WarmUpEpochs returns the length of the warm-up; 0: it has not ended.
func (l *Loss) WarmUpEpochs() int { return l.warmEpochs }

// Close frees the memory.
func (l *Loss) Close() {
	l.values.Close()
	if l.warm != nil {
		l.warm.Close()
		l.warm = nil
	}
}

// CrossEntropy returns the loss of one sample: log Σ exp(z) − z[label] (SHADE Eq. 3–5). It first subtracts the greatest logit, so that exp does not
// overflow. The trainer computes this in lcache.torch; tests compare with this function.
func CrossEntropy(logits []float64, label int) float64 {
	most := math.Inf(-1)
	for _, z := range logits {
		most = max(most, z)
	}
	sum := 0.0
	for _, z := range logits {
		sum += math.Exp(z - most)
	}
	return most + math.Log(sum) - logits[label]
}
