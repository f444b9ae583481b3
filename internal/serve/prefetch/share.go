package prefetch

import (
	"math"
	"time"
)

// Ranks share the memory: one half evenly, the other by how fast their consumers take bytes. A rank that sleeps, or a loop that decodes for long, needs little ahead
// of it. The even half keeps a rank from staying slow because it has no room. Where chunks are large each rank has room for two all the same: one that it waits for and
// one after that, so that the device does not idle between them.

// paceHalf is after how long what a consumer took counts half.
const paceHalf = 2 * time.Second

// pace is how many bytes a consumer took lately.
type pace struct {
	bytes float64
	at    time.Time
}

func (p *pace) take(bytes int64, now time.Time) {
	p.bytes, p.at = p.lately(now)+float64(bytes), now
}

func (p *pace) lately(now time.Time) float64 {
	if p.at.IsZero() {
		return 0
	}
	return p.bytes * math.Exp2(-now.Sub(p.at).Seconds()/paceHalf.Seconds())
}

// shares divides memory between expected ranks, of which some are there with their paces.
func shares(memory int64, expected int, paces []float64) []int64 {
	sum := 0.0
	for _, p := range paces {
		sum += p
	}
	expected = max(1, expected, len(paces))
	all := make([]int64, len(paces))
	for i, p := range paces {
		byPace := 1 / float64(expected)
		if sum > 0 {
			byPace = p / sum * float64(len(paces)) / float64(expected) // the others may come
		}
		all[i] = int64(float64(memory) / 2 * (1/float64(expected) + byPace))
	}
	return all
}

// shareOut notes for each rank how many bytes of the memory it may fill. r.mu is held.
func (r *Prefetcher) shareOut() {
	memory := r.memory()
	memory = max(memory-r.o.Leased, memory/4)
	now := time.Now()
	var cursors []*rankCursor
	var paces []float64
	for _, c := range r.ranks {
		cursors, paces = append(cursors, c), append(paces, c.pace.lately(now))
	}
	most := r.memory() * 3 / 4 / int64(max(1, r.o.Ranks, len(cursors)))
	idle, passing := int64(0), int64(0)
	for i, share := range shares(memory, r.o.Ranks, paces) {
		c := cursors[i]
		c.share, c.lent = max(share, min(most, 2*c.largest)), 0
		switch {
		case c.blocked && len(c.chunks) == 0: // as while the window serves the rank
			idle += c.share
		case c.passing:
			passing++
		}
	}
	for _, c := range cursors {
		if c.passing && !(c.blocked && len(c.chunks) == 0) {
			c.lent = idle / passing
		}
	}
}
