package hitratio

import (
	"slices"

	"lcache/internal/importance"
	"lcache/internal/importance/policy"
	"lcache/internal/importance/substitute"
	"lcache/sample"
)

// player is one policy at one size.
type player struct {
	policy string
	cache  float64
	pinned float64 // share of its memory that holds unstable samples
	ratio  float64 // the importance cache's share, the rest is for nodes; 0: the paper's

	p                       policy.Policy
	s                       *sample.Set      // pinned
	served                  []sample.Index   // of the epoch; the drawn samples, unless a plan replaces them
	kinds                   substitute.Kinds // with packages: how each place is served by the plan of the epoch
	most                    int64            // with packages: samples that were loaded at once
	asked, hit, substituted int
	loaded                  int // samples of a package that was loaded when they were asked for
	gone                    int // substitutes that had left memory when their turn came; they count as substituted, too
	unseen                  float64
}

func (p *player) hits() float64        { return float64(p.hit) / float64(max(p.asked, 1)) }
func (p *player) substitutes() float64 { return float64(p.substituted) / float64(max(p.asked, 1)) }
func (p *player) loads() float64       { return float64(p.loaded) / float64(max(p.asked, 1)) }

// withNodes are the policies that serve other samples, and the policy that keeps important samples next to their nodes.
var withNodes = map[string]string{"substitutes": "paper", "planned": "paper", "planned-next-use": "next-use"}

// substitutesSome reports whether the policy serves other samples than the requested ones. The player then determines the trained samples, and so later draws.
func (p *player) substitutesSome() bool { return withNodes[p.policy] != "" || p.policy == packages }

// make makes the policy.
func (p *player) make(m importance.Method, labels []int32, capacity int64, with importance.Params) (policy.Policy, error) {
	of := withNodes[p.policy]
	switch {
	case p.policy == packages:
		return m.NewPolicy("paper", len(labels), highRoom(capacity), with)
	case of == "":
		return m.NewPolicy(p.policy, len(labels), capacity, with)
	}
	if with.RatioStart = p.ratio; p.ratio == 0 {
		with.RatioStart = with.RatioEnd
	}
	if p.policy == "substitutes" { // as in the paper
		with.MaxUses = 0
	}
	pair, err := m.WithNodes(of, labels, capacity, with)
	if err != nil {
		return nil, err
	}
	return pair, nil
}

// serves plans an epoch, if the player does: which sample is served at each place of its order.
func (p *player) serves(e int, values, expected []float64, order []sample.Index, t *training) ([]sample.Index, error) {
	pair, is := p.p.(*policy.Homophily)
	if !is || p.policy == "substitutes" {
		return slices.Clone(order), nil
	}
	r, err := substitute.NewRehearsal(pair, unit)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	high, err := policy.Top(values, t.room(p.cache), unit)
	if err != nil {
		return nil, err
	}
	defer high.Close()
	r.Begin(e, values, expected, order)
	plan, err := substitute.NewRules(substitute.Class, r, high.Has).Serve(order, substitute.Cut{World: 1, Batch: t.batch})
	if err != nil {
		return nil, err
	}
	defer plan.Close()
	return slices.Clone(plan.Indices), nil
}

// ask sends one request to a player's policy and returns the served sample. p.served has the planned sample for its place in the epoch.
func (p *player) ask(id sample.Index, place int, counts bool) (served sample.Index) {
	planned := p.served[place]
	served, kind := planned, policy.Hit
	if p.s == nil || !p.s.Has(id) {
		var may policy.May
		if p.policy == "substitutes" {
			may = policy.Always // the paper has no rules for substitutes
		}
		if served, kind = p.p.Get(planned, may); kind == policy.Miss {
			p.p.Offer(planned, 1)
		}
	}
	if !counts {
		return served
	}
	p.asked++
	switch {
	case served != id:
		p.substituted++
		if kind == policy.Miss {
			p.gone++
		}
	case kind == policy.Hit:
		p.hit++
	case p.kinds != nil && p.kinds.At(place) == policy.Hit:
		p.loaded++
	}
	return served
}
