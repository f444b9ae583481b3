package policy_test

import (
	"testing"

	"lcache/internal/disk/offheap"
	"lcache/internal/importance/draw"
	"lcache/internal/importance/policy"
)

// BenchmarkNextUse measures a request and, after a miss, an offer, with a fifth of the samples in memory.
func BenchmarkNextUse(b *testing.B) {
	const n = 1_000_000
	p, err := policy.NewNextUse(n, n/5)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	order, err := draw.Plain(n, 1, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer offheap.Free(order)
	at := n
	for b.Loop() {
		if at == n {
			p.Begin(0, nil, order)
			at = 0
		}
		if _, k := p.Get(order[at], nil); k == policy.Miss {
			p.Offer(order[at], 1)
		}
		at++
	}
}
