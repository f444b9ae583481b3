// Package hitratio counts how many requests of a training memory serves: orders are drawn by importance from the losses of a [Trace], and each of several policies,
// at each of several sizes, sees the same requests. Run covers every method of package importance, and plain permutations.
//
// Samples have the same size, and nothing is read or written. So the numbers are about orders and policies, not about a machine; `lcache simulate --importance`
// prints and draws them. Run may be called concurrently.
package hitratio

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"lcache/internal/usage"
)

// Policies lists the policies that Run knows in addition to those of package importance:
//   - min knows all epochs.
//   - substitutes is SpiderCache's own policy with substitutes as in the paper: from the samples in memory at the moment, without the rules of a server.
//   - planned is SpiderCache's policy with substitutes as a server serves them, by a plan that is made between two epochs.
//   - planned-next-use is such a plan with next-use in place of the paper's policy.
//   - packages is ImPACT's policy with a tenth of its memory for packages of unimportant samples, which serve for each other as a server plans it.
var Policies = []string{"lru", "minio", "paper", packages, "substitutes", "planned", "planned-next-use", "next-use", "min"}

// Options say what to count.
type Options struct {
	Trace    Trace
	Epochs   int // 0: the trace's, or for AR1 as many as each method needs to settle
	Batch    int
	Seed     uint64
	Policies []string  // none: all
	Caches   []float64 // shares of the samples that memory has room for; none: 0.1 to 0.9
	Progress func(done, total int)
}

// Report is what Run found.
type Report struct {
	Trace    string  `json:"trace"`
	Samples  int     `json:"samples"`
	Batch    int     `json:"batch_size"`
	Seeds    int     `json:"seeds"` // that each number is the mean of
	Curves   []Curve `json:"curves"`
	Unstable []Share `json:"unstable"`         // of ImPACT with memory for a fifth of the samples
	Ratios   []Ratio `json:"ratios,omitempty"` // of SpiderCache with memory for a fifth of the samples
}

// Ratio is the share of requests that memory serves, by the part of memory for important samples. The other part has possible substitutes.
type Ratio struct {
	Ratio       float64 `json:"ratio"`
	Policy      string  `json:"policy"`
	Hits        float64 `json:"hits"`
	Substituted float64 `json:"substituted"`
}

// Curve is the hit ratio of one policy by the size of memory.
type Curve struct {
	Method  string  `json:"method"` // or Plain
	Rep     float64 `json:"rep"`    // how often SHADE repeats samples in memory
	Policy  string  `json:"policy"`
	Samples int     `json:"samples"`
	Epochs  int     `json:"epochs"`
	From    int     `json:"from"` // the first epoch that counts
	Points  []Point `json:"points"`
}

// Plain is the method of orders without importance: permutations of all samples.
const Plain = "none"

// Point is the hit ratio at one size.
type Point struct {
	Cache       float64 `json:"cache"` // share of the samples
	Hits        float64 `json:"hits"`
	Loaded      float64 `json:"loaded,omitempty"` // requests for a sample of a package that was loaded
	Substituted float64 `json:"substituted"`      // requests that another sample served
	Unseen      float64 `json:"unseen"`           // samples that an epoch leaves out
}

// Share is the hit ratio with a part of memory for S, the unstable samples.
type Share struct {
	Share float64 `json:"s_share"`
	Hits  float64 `json:"hits"`
}

// fifth is the memory of Unstable and of the papers' comparisons.
const fifth = 0.2

var ratios = []float64{0.5, 0.6, 0.7, 0.8, 0.9, 1}

var shares = []float64{0, 0.1, 0.25, 0.5, 0.75}

// Run counts.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	r := &Report{Trace: o.Trace.Name, Samples: o.Trace.Samples, Batch: o.Batch, Seeds: o.seeds()}
	all := setups(o)
	for k, s := range all {
		curves, err := o.curves(ctx, s, func(part float64) { o.Progress(int(1000*(float64(k)+part)), 1000*(len(all)+1)) })
		if err != nil {
			return nil, err
		}
		r.Curves = append(r.Curves, curves...)
	}
	for k, share := range shares {
		sum := 0.0
		for seed := range uint64(r.Seeds) {
			p := &player{policy: "paper", cache: fifth, pinned: share}
			if _, err := all[1].train(ctx, o, o.Seed+seed, []*player{p}, false); err != nil {
				return nil, err
			}
			sum += p.hits() / float64(r.Seeds)
		}
		r.Unstable = append(r.Unstable, Share{share, sum})
		o.Progress(1000*len(all)+500*(k+1)/len(shares), 1000*(len(all)+1))
	}
	return r, o.byRatio(ctx, r, all[len(all)-1])
}

// byRatio counts SpiderCache by the ratio of its caches, if it is one of the methods.
func (o Options) byRatio(ctx context.Context, r *Report, s setup) error {
	if s.method != "spider" {
		return nil
	}
	for _, policy := range o.Policies {
		if withNodes[policy] == "" {
			continue
		}
		for _, ratio := range ratios {
			at := Ratio{Ratio: ratio, Policy: policy}
			for seed := range uint64(r.Seeds) {
				p := &player{policy: policy, cache: fifth, ratio: ratio}
				if err := s.play(ctx, o, o.Seed+seed, []*player{p}); err != nil {
					return err
				}
				at.Hits, at.Substituted = at.Hits+p.hits()/float64(r.Seeds), at.Substituted+p.substitutes()/float64(r.Seeds)
			}
			r.Ratios = append(r.Ratios, at)
		}
	}
	return nil
}

func (o *Options) complete() error {
	if len(o.Policies) == 0 {
		o.Policies = Policies
	}
	for _, name := range o.Policies {
		if !slices.Contains(Policies, name) {
			hint := ""
			if near := usage.Nearest(name, Policies); near != "" {
				hint = fmt.Sprintf("; did you mean %s?", near)
			}
			return usage.Errorf("no policy %q of importance: there are %s%s", name, strings.Join(Policies, ", "), hint)
		}
	}
	if len(o.Caches) == 0 {
		o.Caches = []float64{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9}
	}
	if o.Progress == nil {
		o.Progress = func(int, int) {}
	}
	if o.Batch == 0 {
		o.Batch = 64
	}
	if o.Epochs < 0 || o.Epochs == 1 || o.Batch < 1 {
		return usage.Errorf("%d epochs of batches of %d: give at least 2 epochs, and a batch of at least one sample", o.Epochs, o.Batch)
	}
	if o.Trace.Epochs > 0 && o.Epochs > o.Trace.Epochs {
		return usage.Errorf("%s has %d epochs, not %d", o.Trace.Name, o.Trace.Epochs, o.Epochs)
	}
	return nil
}

// seeds returns the number of trainings whose mean is reported: synthetic losses depend on a seed, recorded losses do not.
func (o Options) seeds() int {
	if o.Trace.Name == AR1 {
		return 3
	}
	return 1
}

// curves counts one method: each policy at each size.
func (o Options) curves(ctx context.Context, s setup, progress func(part float64)) ([]Curve, error) {
	var curves []Curve
	for _, policy := range o.Policies {
		if s.plays(policy) {
			c := Curve{Method: s.method, Rep: s.rep, Policy: policy, Samples: s.samples, Epochs: s.epochs, From: s.from}
			for _, share := range o.Caches {
				c.Points = append(c.Points, Point{Cache: share})
			}
			curves = append(curves, c)
		}
	}
	n := float64(o.seeds())
	for seed := range uint64(o.seeds()) {
		var players []*player
		for _, c := range curves {
			for _, p := range c.Points {
				players = append(players, &player{policy: c.Policy, cache: p.Cache})
			}
		}
		if err := s.play(ctx, o, o.Seed+seed, players); err != nil {
			return nil, err
		}
		for k, p := range players {
			at := &curves[k/len(o.Caches)].Points[k%len(o.Caches)]
			at.Hits, at.Substituted, at.Unseen = at.Hits+p.hits()/n, at.Substituted+p.substitutes()/n, at.Unseen+p.unseen/n
			at.Loaded += p.loads() / n
		}
		progress(float64(seed+1) / n)
	}
	return curves, nil
}
