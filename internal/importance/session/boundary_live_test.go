package session

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestNoRankWaitsForever: whatever ranks have requested before, each rank that waits for an order gets it in the end,
// whether other ranks wait, stop training, or are gone.
func TestNoRankWaitsForever(t *testing.T) {
	const silence, patience = 10 * time.Second, 30 * time.Second
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		world := 1 + r.IntN(4)
		published := map[int]bool{5: true}
		p := positions{world: world, silence: silence, epoch: 5, published: func(epoch int) bool { return published[epoch] }, ranks: map[int]*rankState{}}
		now := time.Unix(1e9, 0)
		boundary := func() {
			step := decideBoundary(now, p.view(patience))
			if step.to < 0 {
				return
			}
			if step.to < p.epoch {
				clear(published)
			}
			published[step.to] = true
			if r.IntN(2) == 0 { // drawn one epoch ahead
				published[step.to+1] = true
			}
			p.made(now, step.to, step.to, false)
		}
		for range r.IntN(30) {
			rank, epoch := r.IntN(world), r.IntN(9)
			switch r.IntN(6) {
			case 0:
				p.join(now, rank, string('a'+rune(r.IntN(2))), false)
			case 1, 2:
				p.asks(now, rank, epoch)
			case 3:
				p.names(now, rank, epoch)
			case 4:
				now = now.Add(time.Duration(r.IntN(40)) * time.Second)
			case 5:
				boundary()
			}
		}
		wants := map[int]int{}
		for rank := range world {
			if r.IntN(4) > 0 { // otherwise it is gone
				wants[rank] = r.IntN(9)
			}
		}
		ask := func() {
			for rank := range world {
				epoch, waits := wants[rank]
				if !waits {
					continue
				}
				if p.asks(now, rank, epoch); published[epoch] {
					delete(wants, rank)
				}
			}
		}
		end := now.Add(time.Duration(2*world) * (patience + silence))
		for ask(); len(wants) > 0 && now.Before(end); now = now.Add(time.Second) {
			before := p.epoch
			boundary()
			if p.epoch != before { // a boundary wakes all waiting ranks
				ask()
			}
		}
		if len(wants) > 0 {
			t.Fatalf("seed %d: ranks wait for %v in epoch %d; decided: %v", seed, wants, p.epoch, decideBoundary(now, p.view(patience)))
		}
	}
}
