package hitratio

import (
	"context"
	"math"
	"slices"

	"lcache/internal/disk/offheap"
	"lcache/internal/importance/draw"
	"lcache/internal/importance/policy"
	"lcache/sample"
)

// setup is a method as it is counted.
type setup struct {
	method       string
	rep          float64
	samples      int
	plain        int // epochs of plain permutations, before the first that is drawn
	epochs, from int // of all; the first that counts
	draw         draw.Draw
}

// setups are plain permutations and the methods, each with the number of epochs after which its hit ratio has settled. The second is ImPACT.
func setups(o Options) []setup {
	n := o.Trace.Samples
	all := []setup{
		{method: Plain, rep: 1, samples: n, plain: 12, epochs: 12, from: 1, draw: draw.Systematic},
		{method: "impact", rep: 1, samples: n, plain: 6, epochs: 24, from: 6, draw: draw.Systematic},
		{method: "shade", rep: 1, samples: n, plain: 1, epochs: 16, from: 2, draw: draw.Multinomial},
		{method: "shade", rep: 3, samples: n, plain: 1, epochs: 16, from: 2, draw: draw.Multinomial},
	}
	if o.Trace.Name == AR1 { // a trace of losses has no embeddings
		all = append(all, setup{method: "spider", rep: 1, samples: min(n, 1500), plain: 1, epochs: 10, from: 2, draw: draw.Multinomial})
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
func (s setup) plays(name string) bool {
	switch name {
	case "paper":
		return s.method != Plain
	case packages:
		return s.method == "impact"
	case "substitutes", "planned", "planned-next-use":
		return s.method == "spider"
	}
	return true
}

// play sends the requests of a training to each player. MIN sees the requests of next-use. A player has a training of its own if samples in memory are repeated, or if it
// serves other samples, which are then trained.
func (s setup) play(ctx context.Context, o Options, seed uint64, players []*player) error {
	var those, alone, mins []*player
	for _, p := range players {
		switch {
		case p.policy == "min":
			mins = append(mins, p)
		case s.rep != 1 || p.substitutesSome():
			alone = append(alone, p)
		default:
			those = append(those, p)
		}
	}
	for _, p := range alone {
		if _, err := s.train(ctx, o, seed, []*player{p}, false); err != nil {
			return err
		}
	}
	if s.rep == 1 && len(those)+len(mins) > 0 {
		orders, err := s.train(ctx, o, seed, those, len(mins) > 0)
		for _, p := range mins {
			if err == nil {
				err = s.min(p, orders)
			}
		}
		return err
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
	next, err := policy.NewNextUse(s.samples, s.room(p.cache))
	if err != nil {
		return err
	}
	defer next.Close()
	p.p = next
	next.Begin(0, nil, slices.Concat(orders...))
	for e, order := range orders {
		p.served = order
		for k, id := range order {
			p.ask(id, k, e >= s.from)
		}
	}
	return nil
}

func (s setup) room(share float64) int64 { return int64(math.Round(share * float64(s.samples))) }
