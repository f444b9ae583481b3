package hitratio

import (
	"context"
	"math"
	"slices"

	"lcache/importance"
	"lcache/offheap"
	"lcache/sample"
)

// setup is a method as it is counted.
type setup struct {
	method       string
	rep          float64
	samples      int
	plain        int // epochs of plain permutations, before the first that is drawn
	epochs, from int // of all; the first that counts
	draw         importance.Draw
}

// setups are plain permutations and the methods, each with the number of epochs after which its hit ratio has settled. The second is ImPACT.
func setups(o Options) []setup {
	n := o.Trace.Samples
	all := []setup{
		{method: Plain, rep: 1, samples: n, plain: 12, epochs: 12, from: 1, draw: importance.Systematic},
		{method: "impact", rep: 1, samples: n, plain: 6, epochs: 24, from: 6, draw: importance.Systematic},
		{method: "shade", rep: 1, samples: n, plain: 1, epochs: 16, from: 2, draw: importance.Multinomial},
		{method: "shade", rep: 3, samples: n, plain: 1, epochs: 16, from: 2, draw: importance.Multinomial},
	}
	if o.Trace.Name == AR1 { // a trace of losses has no embeddings
		all = append(all, setup{method: "spider", rep: 1, samples: min(n, 1500), plain: 1, epochs: 10, from: 2, draw: importance.Multinomial})
	}
	for k := range all {
		s := &all[k]
		if epochs := max(o.Epochs, o.Trace.Epochs); epochs > 0 {
			if o.Epochs > 0 {
				epochs = o.Epochs
			}
			s.epochs = epochs
			s.from = min(s.from, (epochs+1)/2)
			s.plain = min(s.plain, max(s.from, 1))
			if s.method == Plain {
				s.plain = epochs
			}
		}
	}
	return all
}

// plays reports whether a policy is one of the method's.
func (s setup) plays(policy string) bool {
	switch policy {
	case "paper":
		return s.method != Plain
	case "substitutes":
		return s.method == "spider"
	}
	return true
}

// player is one policy at one size.
type player struct {
	policy string
	cache  float64
	pinned float64 // share of its memory that holds unstable samples

	p                       importance.Policy
	s                       *sample.Set // pinned
	now                     map[sample.Index]bool
	asked, hit, substituted int
	unseen                  float64
}

func (p *player) hits() float64        { return float64(p.hit) / float64(max(p.asked, 1)) }
func (p *player) substitutes() float64 { return float64(p.substituted) / float64(max(p.asked, 1)) }

// play lets each player see the requests of a training. Where memory is repeated, each has its own; MIN sees those of next-use.
func (s setup) play(ctx context.Context, o Options, seed uint64, players []*player) error {
	var those, mins []*player
	for _, p := range players {
		if p.policy == "min" {
			mins = append(mins, p)
		} else {
			those = append(those, p)
		}
	}
	if s.rep == 1 {
		orders, err := s.train(ctx, o, seed, those, len(mins) > 0)
		for _, p := range mins {
			if err == nil {
				err = s.min(p, orders)
			}
		}
		return err
	}
	for _, p := range those {
		if _, err := s.train(ctx, o, seed, []*player{p}, false); err != nil {
			return err
		}
	}
	for _, p := range mins {
		orders, err := s.train(ctx, o, seed, []*player{{policy: "next-use", cache: p.cache}}, true)
		if err == nil {
			err = s.min(p, orders)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// train runs a training with all players, and returns its orders if they are to be kept.
func (s setup) train(ctx context.Context, o Options, seed uint64, players []*player, keep bool) (orders [][]sample.Index, err error) {
	t, err := s.begin(o, seed, players)
	if err != nil {
		return nil, err
	}
	defer t.end()
	for e := range s.epochs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		order, err := t.epoch(e)
		if keep {
			orders = append(orders, slices.Clone(order))
		}
		offheap.Free(order)
		if err != nil {
			return nil, err
		}
	}
	return orders, nil
}

// min lets a player see all epochs as one, whose order is known: that is Belady's MIN.
func (s setup) min(p *player, orders [][]sample.Index) error {
	policy, err := importance.NewNextUse(s.samples, s.room(p.cache))
	if err != nil {
		return err
	}
	defer policy.Close()
	p.p = policy
	policy.Begin(0, nil, slices.Concat(orders...))
	for e, order := range orders {
		for _, id := range order {
			p.ask(id, e >= s.from)
		}
	}
	return nil
}

func (s setup) room(share float64) int64 { return int64(math.Round(share * float64(s.samples))) }

// ask sends one request to a player's policy.
func (p *player) ask(id sample.Index, counts bool) {
	served, kind := id, importance.Hit
	if p.s == nil || !p.s.Has(id) {
		var may importance.May
		if p.policy == "substitutes" {
			may = func(i sample.Index) bool { return !p.now[i] } // none twice in a batch
		}
		if served, kind = p.p.Get(id, may); kind == importance.Miss {
			p.p.Offer(id, 1)
		}
	}
	if p.now != nil {
		p.now[served] = true
	}
	if !counts {
		return
	}
	p.asked++
	switch kind {
	case importance.Hit:
		p.hit++
	case importance.Substitute:
		p.substituted++
	}
}
