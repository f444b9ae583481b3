// Package shuffle replays, bit for bit, the order in which machine learning frameworks read a dataset: a recipe
// (the framework's sampler), its parameters and an epoch give the global order and the split over ranks and
// batches. It hides the frameworks' random generators and every accident of how they use them. Its types are
// Spec (the user's recipe and parameters), Replay (a Spec made ready), Split (which rank gets which position) and Recipe with Param
// (the list of recipes, for help and documentation). It knows nothing of files, samples or caches, and reads only
// files that a parameter names. Some orders can't be replayed: generators on a GPU, draws that go through a vector
// library, and batches in the order in which workers finish. All functions and the methods of Replay and Split may
// be called from several goroutines.
package shuffle

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
)

// Spec names a recipe and its parameters, in the form of the command line. The zero value of a field selects the
// recipe's default.
type Spec struct {
	Recipe    string
	Samples   int    // n, the size of the dataset
	Seed      string // decimal, of any size, may be negative
	BatchSize int    // 0: the recipe's default, or no batches
	World     int    // number of ranks; 0: one
	DropLast  bool   // of the sampler where the recipe has one, else of the DataLoader
	// Params are all other parameters, each in the form of its type.
	Params map[string]string
}

// plan is a recipe with the parameters of one Spec.
type plan struct {
	epochs      orderer
	permutation bool                         // the global order is a permutation of 0..n-1
	size        func(epoch int) (int, error) // length of the global order
	deal        func(size int) dealer        // nil: the only rank gets everything
	batch       int                          // samples a batch of one rank
	dropShort   bool                         // the loader's drop_last
}

// orderer makes global orders. It is called by one goroutine at a time.
type orderer interface {
	// order appends the order of an epoch, which is not negative, to dst[:0].
	order(epoch int, dst []uint32) ([]uint32, error)
}

// Replay computes the orders of one Spec. Its methods may be called from several goroutines; calls that compute an
// order wait for each other. If epochs carry the generator's state on, Replay keeps the state at the last requested
// epoch. A later epoch then costs the draws in between, and an earlier one all draws from the first epoch on.
type Replay struct {
	recipe string
	key    string
	n      int
	world  int
	plan   *plan

	stopped atomic.Bool

	// mu guards the fields that follow, and plan.epochs.
	mu sync.Mutex
	// whole is the global order of wholeEpoch, kept for ranks that are only a part of it.
	whole      []uint32
	wholeEpoch int // -1: none
}

// Check checks a spec whose number of samples is not known yet. It finds an unknown recipe, and unknown, missing or
// malformed parameters. New may still return an error for a spec that passes. The error is a *UsageError.
func Check(spec Spec) error {
	recipe, err := Lookup(spec.Recipe)
	if err != nil {
		return err
	}
	if _, err := recipe.read(spec); err != nil {
		return err
	}
	return nil
}

// New checks spec and prepares its Replay. All errors about spec are a *UsageError.
func New(spec Spec) (*Replay, error) {
	recipe, err := Lookup(spec.Recipe)
	if err != nil {
		return nil, err
	}
	a, err := recipe.read(spec)
	if err != nil {
		return nil, err
	}
	if recipe.build == nil {
		return nil, a.errorf("it gives numbers, not an order of samples")
	}
	p, err := recipe.build(a)
	if err != nil {
		return nil, err
	}
	r := &Replay{recipe: recipe.Name, key: a.key(), n: a.n, world: a.world, plan: p, wholeEpoch: -1}
	switch o := p.epochs.(type) {
	case *live:
		o.stopped = &r.stopped
	case *cumulative:
		o.stopped = &r.stopped
	}
	return r, nil
}

// key returns the canonical text of recipe and parameters, with defaults filled in.
func (a *args) key() string {
	var b strings.Builder
	b.WriteString(a.recipe.Name)
	for _, p := range a.recipe.Params {
		if v := a.values[p.Name]; v.set {
			fmt.Fprintf(&b, " %s=%s", p.Name, v.key)
		}
	}
	return b.String()
}

// Key returns the canonical text of the recipe and its parameters, without epoch and rank. Replays with equal keys
// have equal orders and splits. The key contains the SHA-256 of lists and files.
func (r *Replay) Key() string { return r.key }

// Permutation reports whether the global order of every epoch is a permutation of 0..n-1. The split may still
// pad it, repeat positions or leave some out.
func (r *Replay) Permutation() bool { return r.plan.permutation }

// Sequential reports whether each epoch continues from the generator's state after the previous one. The order of a
// later epoch then requires the draws of all earlier epochs.
func (r *Replay) Sequential() bool {
	switch r.plan.epochs.(type) {
	case *live, *cumulative:
		return true
	}
	return false
}

// errStopped is the error of Global and Rank after Stop.
var errStopped = errors.New("stopped while the epochs before were drawn")

// Stop ends the draws of earlier epochs, which may take long. Calls that are drawing them return an error, and so do
// later calls that would begin them.
func (r *Replay) Stop() { r.stopped.Store(true) }

// World returns the number of ranks that the global order is split over.
func (r *Replay) World() int { return r.world }

// Global appends the epoch's global order to dst[:0]: the indices over all ranks, before the split pads or drops
// any. It allocates only if dst is too small.
func (r *Replay) Global(epoch int, dst []uint32) ([]uint32, error) {
	if err := r.checkEpoch(epoch); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.plan.epochs.order(epoch, dst)
}

// Split returns how the positions of the epoch's global order are dealt to ranks. It computes no order.
func (r *Replay) Split(epoch int) (Split, error) {
	if err := r.checkEpoch(epoch); err != nil {
		return Split{}, err
	}
	size, err := r.plan.size(epoch)
	if err != nil {
		return Split{}, err
	}
	var deal dealer = whole{size}
	if r.plan.deal != nil {
		deal = r.plan.deal(size)
	}
	return Split{world: r.world, batch: r.plan.batch, dropShort: r.plan.dropShort, deal: deal}, nil
}

// Rank appends the epoch's order for one rank to dst[:0]: its batches one after the other. With several ranks
// it keeps the epoch's global order (4 bytes a sample) until another epoch is requested. So requesting every rank
// computes that order once.
func (r *Replay) Rank(epoch, rank int, dst []uint32) ([]uint32, error) {
	split, err := r.Split(epoch)
	if err != nil {
		return nil, err
	}
	if rank < 0 || rank >= r.world {
		return nil, &UsageError{Recipe: r.recipe, Problem: fmt.Sprintf("rank is %d; with a world of %d it is 0 to %d", rank, r.world, r.world-1)}
	}
	n := split.Len(rank)
	if n > maxSamples {
		return nil, &UsageError{Recipe: r.recipe, Problem: fmt.Sprintf("rank %d would get %d samples an epoch; the limit is %d", rank, n, uint32(maxSamples))}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := split.deal.(whole); ok {
		if dst, err = r.plan.epochs.order(epoch, dst); err != nil {
			return nil, err
		}
		return dst[:n], nil
	}
	if r.wholeEpoch != epoch {
		r.wholeEpoch = -1
		if r.whole, err = r.plan.epochs.order(epoch, r.whole); err != nil {
			return nil, err
		}
		r.wholeEpoch = epoch
	}
	return gather(split.deal, rank, n, r.whole, dst), nil
}

// gather picks the first n samples of a rank out of the global order.
func gather(deal dealer, rank, n int, order, dst []uint32) []uint32 {
	dst = resize(dst, n)
	var buf [1024]uint64
	for from := 0; from < n; from += len(buf) {
		to := min(n, from+len(buf))
		for k, p := range deal.fill(rank, from, to, buf[:0]) {
			dst[from+k] = order[p]
		}
	}
	return dst
}

func (r *Replay) checkEpoch(epoch int) error {
	if epoch < 0 {
		return &UsageError{Recipe: r.recipe, Problem: fmt.Sprintf("epoch is %d; epochs count from 0", epoch)}
	}
	if r.Sequential() && epoch > maxEpoch {
		return &UsageError{Recipe: r.recipe, Problem: fmt.Sprintf("epoch is %d; here every earlier one has to be drawn, and the limit is %d", epoch, maxEpoch)}
	}
	return nil
}

// resize makes dst n long. Its contents are undefined.
func resize(dst []uint32, n int) []uint32 {
	if cap(dst) < n {
		return make([]uint32, n)
	}
	return dst[:n]
}

// iota32 fills r with 0, 1, 2, ….
func iota32(r []uint32) {
	for i := range r {
		r[i] = uint32(i)
	}
}
