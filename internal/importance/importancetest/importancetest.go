// Package importancetest has helpers that tests of several importance packages share: observations ([Observe]), a pair of caches ([Paired]), and
// requests to them ([Play]). It is only for tests.
package importancetest

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"lcache/internal/importance"
	"lcache/internal/importance/policy"
	"lcache/internal/importance/score"
	"lcache/sample"

	"golang.org/x/sys/unix"
)

// ImageNet is the number of samples of ImageNet-21k.
const ImageNet = 14_200_000

// Observe reports random losses to a scorer, from the log-normal distribution of the study, so that they spread over
// several powers of two.
func Observe(s score.Scorer, n, epoch int) {
	r := rand.New(rand.NewPCG(1, uint64(epoch)))
	o := score.Observation{Kind: score.Losses, Epoch: uint32(epoch)}
	for i := range uint32(n) {
		o.Index, o.Loss = append(o.Index, i), append(o.Loss, float32(math.Exp(0.8*r.NormFloat64())))
		if len(o.Index) == 256 || int(i) == n-1 {
			s.Observe(o)
			o.Batch, o.Index, o.Loss = o.Batch+1, o.Index[:0], o.Loss[:0]
		}
	}
}

// CPUTime returns the CPU time that this process has used, which is more reliable than the clock on a shared machine.
func CPUTime(tb testing.TB) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Contents returns the samples below n that a policy keeps.
func Contents(p interface{ Has(sample.Index) bool }, n int) []sample.Index {
	out := []sample.Index{}
	for i := range sample.Index(n) {
		if p.Has(i) {
			out = append(out, i)
		}
	}
	return out
}

// Unit returns 1, as the size of every sample.
func Unit(sample.Index) int64 { return 1 }

// Allow returns a policy.May that allows every substitute, or none.
func Allow(may bool) policy.May {
	if may {
		return policy.Always
	}
	return nil
}

// Paired returns SpiderCache's pair of caches, with the policy of the given name.
func Paired(t testing.TB, name string, labels []int32, capacity int64, ratio float64, maxUses int) *policy.Homophily {
	t.Helper()
	m, err := importance.Lookup("spider")
	if err != nil {
		t.Fatal(err)
	}
	p, err := m.WithNodes(name, labels, capacity, importance.Params{RatioStart: ratio, MaxUses: maxUses})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Play sends an epoch of requests to a policy, and returns the outcome of each.
func Play(p policy.Policy, order []sample.Index, values []float64, size func(sample.Index) int64) (told []any) {
	p.Begin(1, values, order)
	for _, id := range order {
		served, kind := p.Get(id, policy.Always)
		told = append(told, served, kind)
		if kind == policy.Miss {
			keep, drop := p.Offer(id, size(id))
			told = append(told, keep, slices.Clone(drop))
		}
	}
	return told
}
