package prefetch

import (
	"math"
	"time"
)

// Ranks share the memory: one half evenly, the other in proportion to the rate at which their clients take bytes. A rank that sleeps, or
// that decodes for long, needs little ahead. The even half lets a rank with little memory become fast again. If chunks are large,
// each rank still has room for two: the chunk that it waits for and the next, so that the device does not idle between them.

// paceHalf is the half-life of bytes in a client's pace.
const paceHalf = 2 * time.Second

// pace is the number of bytes that a client took recently.
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

// shares divides memory between the expected ranks. paces has the paces of the ranks that are connected.
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
			byPace = p / sum * float64(len(paces)) / float64(expected) // leave room for ranks that are not connected yet
		}
		all[i] = int64(float64(memory) / 2 * (1/float64(expected) + byPace))
	}
	return all
}

// shareOut sets the bytes of memory that each rank may fill. r.mu is held.
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
		case c.blocked && len(c.chunks) == 0: // for example while the prefetch window serves the rank
			idle += c.share
		case c.scanning:
			passing++
		}
	}
	for _, c := range cursors {
		if c.scanning && !(c.blocked && len(c.chunks) == 0) {
			c.lent = idle / passing
		}
	}
}
