package count

import (
	"slices"
	"time"
)

// An Epoch has the counters of a current epoch. The caller adds to the exported ones.
type Epoch struct {
	Hits, Misses int64 // samples
	Diverged     bool  // delivered samples differ from the schedule: the epoch has no digest

	number   int
	began    time.Time
	received map[int][]uint64 // by rank: a bit for each batch delivered
	parts    map[int]part     // by rank
	asked    int64            // value of the job's request counter at the last request in this epoch
	endings  int              // how often it ended: a late rank opens it again
}

// part is how many batches of an epoch a rank has received.
type part struct{ first, count int }

// has reports whether a rank has received a batch of the epoch.
func (ep *Epoch) has(rank int) bool {
	_, has := ep.received[rank]
	return has
}

// Deliver notes that a rank has received a batch. batches is how many it has in the epoch.
func (ep *Epoch) Deliver(rank, batch, batches int) {
	bits, has := ep.received[rank]
	if !has {
		bits = make([]uint64, 0, (batches+63)/64)
		ep.received[rank] = bits
	}
	if batch >= batches { // the rank's order is not known, or was dropped meanwhile
		ep.Diverged = true
		return
	}
	for len(bits) <= batch/64 {
		bits = append(bits, 0)
	}
	if p, seen := ep.parts[rank]; bits[batch/64]&(1<<(batch%64)) == 0 {
		if !seen || batch < p.first {
			p.first = batch
		}
		p.count++
		ep.parts[rank] = p
	}
	bits[batch/64] |= 1 << (batch % 64)
	ep.received[rank] = bits
}

// IsWhole reports whether a rank has received all its batches, from the first one that it requested. It counts them, because workers of one rank do not
// receive batches in order.
func (ep *Epoch) IsWhole(rank, batches int) bool {
	p := ep.parts[rank]
	return p.count > 0 && p.count == batches-p.first
}

// An Ended is a copy of an epoch at the time when it ended. A late rank may open the epoch again before it is closed.
type Ended struct {
	Number   int
	Received map[int][]uint64 // by rank: bit i is set if batch i was delivered
	Diverged bool             // it has no digest

	of           *Epoch
	ending       int
	seconds      float64
	hits, misses int64
}

func (ep *Epoch) end(took time.Duration) Ended {
	ep.endings++
	received := make(map[int][]uint64, len(ep.received))
	for rank, bits := range ep.received {
		received[rank] = slices.Clone(bits)
	}
	return Ended{Number: ep.number, Received: received, Diverged: ep.Diverged, of: ep, ending: ep.endings, seconds: took.Seconds(), hits: ep.Hits, misses: ep.Misses}
}
