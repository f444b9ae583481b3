package deliver

import (
	"fmt"
	"maps"
	"slices"

	"lcache/chunker"
	"lcache/internal/serve/staging"
)

type lease struct {
	hold  staging.Hold
	bytes int64
	side  int64
	rank  chunker.JobRank // of the request; a negative rank: no position
}

// lease puts a batch under a new lease, unless the process has ended or the server stops. A session may have as many
// leases as shared memory has KiB, because leases without bytes also take memory of the server.
func (c *Client) lease(b *Batch, hold *staging.Hold, at *Position) error {
	l := &lease{hold: *hold, bytes: b.Pinned, side: c.d.o.Staging.SideBytesOf(hold), rank: chunker.JobRank{Rank: -1}}
	if at != nil {
		l.rank = at.JobRank()
	}
	most := max(leastLeases, int(c.d.o.Staging.Bytes()>>10))
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	switch {
	case c.d.closed || c.dead:
		return ErrClosing
	case len(c.leases) >= most:
		return &ArgumentError{Reason: fmt.Sprintf("process %d holds %d batches that it has not released: no session may hold more", c.Pid, most)}
	}
	c.d.nextLease++
	b.Lease = c.d.nextLease
	c.leases[b.Lease] = l
	c.held += l.bytes
	c.side += l.side
	return nil
}

// Holds reports whether a lease belongs to this session and has not ended.
func (c *Client) Holds(lease uint64) bool {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	return c.leases[lease] != nil
}

// Release ends leases. It ignores numbers of other sessions.
func (c *Client) Release(leases ...uint64) {
	var ended []*lease
	c.d.mu.Lock()
	for _, id := range leases {
		if l := c.leases[id]; l != nil {
			delete(c.leases, id)
			c.held -= l.bytes
			c.side -= l.side
			ended = append(ended, l)
		}
	}
	c.d.mu.Unlock()
	for _, l := range ended {
		c.d.o.Staging.Release(&l.hold)
	}
}

// CheckReleased ends all sessions as if their processes had ended. It returns an error if staging still has held
// memory. It is for tests, after the engine is closed; before that, a live process may read the memory that it holds.
func (d *Deliver) CheckReleased() error {
	d.mu.Lock()
	clients := slices.Collect(maps.Values(d.clients))
	d.mu.Unlock()
	for _, c := range clients {
		d.gone(c)
	}
	return d.o.Staging.CheckReleased()
}

// Held returns the bytes that each attached process holds.
func (d *Deliver) Held() map[int]int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	held := map[int]int64{}
	for _, c := range d.clients {
		held[c.Pid] += c.held
	}
	return held
}

// HeldByRank returns the bytes held by each rank, for batches requested with a position, and by each process, for batches requested
// without one.
func (d *Deliver) HeldByRank() (ranks map[chunker.JobRank]int64, unplaced map[int]int64) {
	ranks, unplaced = map[chunker.JobRank]int64{}, map[int]int64{}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.clients {
		for _, l := range c.leases {
			if l.rank.Rank >= 0 {
				ranks[l.rank] += l.bytes
			} else {
				unplaced[c.Pid] += l.bytes
			}
		}
	}
	return ranks, unplaced
}
