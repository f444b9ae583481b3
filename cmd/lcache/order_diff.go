package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"strconv"

	"lcache/shuffle"
)

// orderDiff is the difference of two states.
type orderDiff struct {
	Schema  int          `json:"schema"`
	Equal   bool         `json:"equal"`
	Options []optionDiff `json:"options"`           // in which the states differ
	First   *orderPlace  `json:"first,omitempty"`   // where the orders first differ; nil: nowhere, or not known
	Recipes []string     `json:"recipes,omitempty"` // of A and B, if they were found
	Notes   []string     `json:"notes,omitempty"`   // what is not known, and what would show it
	digests []*string    // of A and B
	states  [2]loaderState
}

// optionDiff is one option that differs.
type optionDiff struct {
	Option string `json:"option"` // its key in a state, or recipe
	A      string `json:"a"`
	B      string `json:"b"`
}

// orderPlace is the first place where two orders differ. A field below 0 is not known.
type orderPlace struct {
	Epoch    int   `json:"epoch"`
	Rank     int   `json:"rank"`
	Position int   `json:"position"` // sample of the rank in the epoch
	A        int64 `json:"a"`        // index of the sample; -1: none, because that order ends before, or not known
	B        int64 `json:"b"`
}

// diffStates compares two states. spec names the dataset's size, and perhaps a recipe and its parameters; without a size the orders can't be computed.
func diffStates(ctx context.Context, a, b loaderState, spec shuffle.Spec) (*orderDiff, error) {
	d := &orderDiff{Schema: 1, Options: []optionDiff{}, states: [2]loaderState{a, b}, digests: []*string{a.Digest, b.Digest}}
	if a.onlyDigest || b.onlyDigest {
		if a.Digest == nil || b.Digest == nil {
			return nil, usagef("a state without order_digest can't be compared with a digest: save it after the first batch of an epoch")
		}
		if d.Equal = *a.Digest == *b.Digest; !d.Equal {
			d.Options = append(d.Options, optionDiff{"order_digest", *a.Digest, *b.Digest})
		}
		return d, nil
	}
	for _, o := range []struct {
		name string
		a, b string
	}{
		{"fingerprint", valueText(a.Fingerprint), valueText(b.Fingerprint)},
		{"seed", valueText(a.Seed), valueText(b.Seed)},
		{"world", valueText(a.World), valueText(b.World)},
		{"batch_size", valueText(a.BatchSize), valueText(b.BatchSize)},
		{"epoch", valueText(a.Epoch), valueText(b.Epoch)},
		{"consumed", valueText(a.Consumed), valueText(b.Consumed)},
		{"before", strconv.Itoa(a.Before), strconv.Itoa(b.Before)},
		{"bad", valueText(a.Bad), valueText(b.Bad)},
		{"order_digest", valueText(a.Digest), valueText(b.Digest)},
	} {
		if o.a != o.b {
			d.Options = append(d.Options, optionDiff{o.name, o.a, o.b})
		}
	}
	if d.Equal = len(d.Options) == 0; d.Equal {
		return d, nil
	}
	if spec.Samples > 0 {
		return d, d.replay(ctx, spec)
	}
	d.deduce()
	return d, nil
}

// valueText returns a value as JSON shows it.
func valueText[T any](v *T) string {
	if v == nil {
		return "null"
	}
	return fmt.Sprint(*v)
}

// differs reports whether an option differs.
func (d *orderDiff) differs(option string) bool {
	for _, o := range d.Options {
		if o.Option == option {
			return true
		}
	}
	return false
}

// deduce finds what follows from the states alone.
func (d *orderDiff) deduce() {
	a, b := d.states[0], d.states[1]
	const give = "give --samples N, the number of samples in the dataset"
	switch {
	case d.differs("fingerprint"):
		d.Notes = append(d.Notes, "the states come from different datasets, so their indices mean different samples")
	case d.differs("bad"):
		d.Notes = append(d.Notes, "the states leave out different samples (bad=), so their indices mean different samples")
	case d.differs("epoch"):
		d.Notes = append(d.Notes, "the states are of different epochs, so their digests can't be compared: "+give)
	case a.Digest == nil || b.Digest == nil:
		d.Notes = append(d.Notes, "a state has no digest of its order: save both after the first batch of an epoch, or "+give)
	case d.differs("order_digest"):
		d.First = &orderPlace{Epoch: *a.Epoch, Rank: -1, Position: -1, A: -1, B: -1}
		if !d.differs("seed") {
			d.Notes = append(d.Notes, "no option in the states is the cause: it is the sampler or shuffle=, the number of samples, or persistent_workers")
		}
		d.Notes = append(d.Notes, "for the first epoch, rank and position: "+give)
	case d.differs("world"):
		d.First = &orderPlace{Epoch: *a.Epoch, Rank: 0, Position: 1, A: -1, B: -1}
		d.Notes = append(d.Notes, "both have the same order of all ranks. Position 1 is the first that differs if the ranks take samples in turn, as DistributedSampler does: "+give+" to compute it")
	case d.differs("batch_size"):
		d.Notes = append(d.Notes, "both have the same samples in the same order, in batches of other sizes")
	default:
		d.Notes = append(d.Notes, "both have the same order; they are at different positions of it")
	}
}

// candidates are the recipes that lcache.torch's loaders may have, with the options that a state does not have.
var candidates = []struct {
	name, recipe string
	params       map[string]string
}{
	{"DataLoader(shuffle=True)", "torch.dataloader", map[string]string{"generator": "explicit"}},
	{"DataLoader(shuffle=True, persistent_workers=True)", "torch.dataloader", map[string]string{"generator": "explicit", "num_workers": "1", "persistent_workers": "true"}},
	{"DistributedSampler", "torch.distributed_sampler", nil},
	{"no shuffle", "torch.distributed_sampler", map[string]string{"shuffle": "false"}},
	{"RandomSampler", "torch.random_sampler", map[string]string{"generator": "explicit"}},
}

// replay computes both orders, epoch by epoch, and finds the first difference.
func (d *orderDiff) replay(ctx context.Context, spec shuffle.Spec) error {
	var found [2]*shuffle.Replay
	for i, s := range d.states {
		r, name, err := findRecipe(ctx, s, spec)
		if err != nil {
			return err
		}
		if r == nil {
			d.deduce()
			d.Notes = append(d.Notes, fmt.Sprintf("no known recipe gives the order of %c with %d samples: give --recipe and its --param, or check --samples", 'A'+i, spec.Samples))
			return nil
		}
		found[i], d.Recipes = r, append(d.Recipes, name)
	}
	if d.Recipes[0] != d.Recipes[1] {
		d.Options = append(d.Options, optionDiff{"recipe", d.Recipes[0], d.Recipes[1]})
	}
	world := max(found[0].World(), found[1].World())
	for epoch := range max(*d.states[0].Epoch, *d.states[1].Epoch) + 1 {
		for rank := range world {
			var orders [2][]uint32
			for i, r := range found {
				if rank < r.World() {
					var err error
					if orders[i], err = interruptible(ctx, func() ([]uint32, error) { return r.Rank(epoch, rank, nil) }); err != nil {
						return err
					}
				}
			}
			if at := firstUnequal(orders[0], orders[1]); at >= 0 {
				d.First = &orderPlace{Epoch: epoch, Rank: rank, Position: at, A: sampleAt(orders[0], at), B: sampleAt(orders[1], at)}
				return nil
			}
		}
	}
	d.Notes = append(d.Notes, "each rank reads the same samples in the same order up to the later epoch of the two states")
	return nil
}

// interruptible runs f, which can't be interrupted, until it or ctx ends. The program ends after an interrupt, and f with it.
func interruptible(ctx context.Context, f func() ([]uint32, error)) ([]uint32, error) {
	type result struct {
		order []uint32
		err   error
	}
	done := make(chan result, 1)
	go func() {
		order, err := f()
		done <- result{order, err}
	}()
	select {
	case r := <-done:
		return r.order, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// findRecipe returns the replay whose order has the digest of a state. It returns nil if no candidate has it.
func findRecipe(ctx context.Context, s loaderState, spec shuffle.Spec) (*shuffle.Replay, string, error) {
	spec.World, spec.Seed, spec.BatchSize = *s.World, "", 0
	if s.Seed != nil {
		spec.Seed = s.Seed.String()
	}
	if s.BatchSize != nil {
		spec.BatchSize = *s.BatchSize
	}
	if spec.Recipe != "" {
		r, err := shuffle.New(spec)
		if err != nil {
			return nil, "", err
		}
		is, err := hasDigest(ctx, r, s)
		if err != nil || !is {
			return nil, "", err
		}
		return r, spec.Recipe, nil
	}
	var refused error // why no candidate can be tried, such as too many samples
	tried := false
	for _, c := range candidates {
		try := spec
		try.Recipe, try.Params = c.recipe, maps.Clone(spec.Params)
		if try.Params == nil {
			try.Params = map[string]string{}
		}
		maps.Copy(try.Params, c.params)
		if c.recipe != "torch.distributed_sampler" && (spec.World > 1 || spec.Seed == "") {
			continue // one process, and a seed of its own
		}
		r, err := shuffle.New(try)
		if err != nil {
			refused = err // the recipe does not have these options
			continue
		}
		tried = true
		is, err := hasDigest(ctx, r, s)
		if err != nil {
			return nil, "", err
		}
		if is {
			return r, c.name, nil
		}
	}
	if !tried {
		return nil, "", refused
	}
	return nil, "", nil
}

// hasDigest reports whether a replay's order of the state's epoch has the state's digest. A state without one can't contradict.
func hasDigest(ctx context.Context, r *shuffle.Replay, s loaderState) (bool, error) {
	if s.Digest == nil {
		return false, nil
	}
	order, err := interruptible(ctx, func() ([]uint32, error) { return r.Global(*s.Epoch, nil) })
	if err != nil {
		return false, err
	}
	h := sha256.New()
	if err := writeOrderBinary(h, order); err != nil {
		return false, err
	}
	return hex.EncodeToString(h.Sum(nil)) == *s.Digest, nil
}

// firstUnequal returns the first position where two orders differ; -1: nowhere.
func firstUnequal(a, b []uint32) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	if len(a) != len(b) {
		return min(len(a), len(b))
	}
	return -1
}

func sampleAt(order []uint32, i int) int64 {
	if i >= len(order) {
		return -1
	}
	return int64(order[i])
}
