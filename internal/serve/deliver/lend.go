package deliver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lcache/internal/serve/fetch"
	"lcache/internal/serve/staging"
	"lcache/sample"
)

// A temporaryLease is the part of a request that a client copies at once. It ends without a release, so a client that has
// stopped delays no other client. The copy is valid only if Copied reports that the lease had not ended.
//
// Temporary leases serve requests for which leases leave no room. Their samples are read into the spare part of side memory, which has room for
// the largest sample and which no lease may take.
type temporaryLease struct {
	hold  staging.Hold
	plan  Plan
	stats *Stats // of the request's job
	count Delivery
	bytes int64
	timer *time.Timer
}

// A LentPart is a part of an answer under a temporary lease. Batch.Lease is its number.
type LentPart struct {
	*Batch
	Next  int // position in the request of the first sample after this part
	Total int // number of samples of the request
}

// A RoomError tells a client that copies that leases leave no room for its request. The client then requests temporary leases.
type RoomError struct{ For string }

func (e *RoomError) Error() string { return e.For }

// Copies notes that this session's process takes temporary leases.
func (c *Client) Copies() {
	c.d.mu.Lock()
	c.copies = true
	c.d.mu.Unlock()
}

// waitSide waits for side memory for a lease. A client that copies waits at most a third of its time for other
// requests to end. It waits for leases only about as long as copying takes.
func (c *Client) waitSide(ctx context.Context, need int64) (*staging.Extent, error) {
	d := c.d
	if x, ok := d.o.Fetcher.TryRoom(need); ok {
		c.setLacksRoom(false)
		return x, nil
	}
	d.mu.Lock()
	copies, patience := c.copies, d.o.Patience/8
	if c.lacksRoom {
		patience = 0
	}
	d.mu.Unlock()
	if !copies {
		return d.o.Fetcher.Room(ctx, need)
	}
	if side := d.o.Staging.SideBytes(); need > side && need <= d.o.RequestBytes {
		return nil, &RoomError{fmt.Sprintf("%d bytes of side memory are needed at once, it has %d", need, side)}
	}
	soon, cancel := context.WithTimeout(ctx, d.o.Timeout/3)
	defer cancel()
	go func() {
		for look := time.NewTimer(patience); ; look.Reset(d.o.Patience / 8) {
			select {
			case <-look.C:
				if !d.leavesRoom(need) {
					cancel()
				}
			case <-soon.Done():
				look.Stop()
				return
			}
		}
	}()
	x, err := d.o.Fetcher.Room(soon, need)
	full := errors.Is(err, fetch.ErrNoRoom)
	c.setLacksRoom(full)
	if full && ctx.Err() == nil {
		return nil, &RoomError{fmt.Sprintf("%d bytes of side memory are needed; %s", need, d.holder())}
	}
	return x, err
}

func (c *Client) setLacksRoom(yes bool) {
	c.d.mu.Lock()
	c.lacksRoom = yes
	c.d.mu.Unlock()
}

// leavesRoom reports whether leases leave need bytes of side memory free in one piece.
func (d *Deliver) leavesRoom(need int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	var holds []*staging.Hold
	for _, c := range d.clients {
		for _, l := range c.leases {
			if l.side > 0 {
				holds = append(holds, &l.hold)
			}
		}
	}
	return d.o.Staging.LeavesRoom(holds, need)
}

// LendChunk is LendAt for the job with the server's own recipe.
func (c *Client) LendChunk(ctx context.Context, epoch, rank, batch, from int) (*LentPart, error) {
	return c.LendAt(ctx, Position{Epoch: epoch, Rank: rank, Batch: batch}, from)
}

// LendAt is Lend for the chunk at a position. io.EOF means that the rank has no such batch.
func (c *Client) LendAt(ctx context.Context, at Position, from int) (*LentPart, error) {
	return c.lendPart(ctx, &Request{At: &at, ByPosition: true, Again: true}, from)
}

// Lend delivers the samples of a request from position from on: as many as fit the spare part, and at least one. The client copies them
// and then calls Copied.
func (c *Client) Lend(ctx context.Context, indices []sample.Index, from int, at *Position) (*LentPart, error) {
	if err := c.d.known(indices); err != nil {
		return nil, err
	}
	return c.lendPart(ctx, &Request{At: at, Indices: indices}, from)
}

func (c *Client) lendPart(ctx context.Context, q *Request, from int) (*LentPart, error) {
	d, began := c.d, time.Now()
	ctx, leave, err := d.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	plan, err := c.begin(ctx, q)
	if err != nil {
		return nil, err
	}
	indices := q.Indices
	if from > len(indices) {
		return nil, &ArgumentError{Reason: fmt.Sprintf("position %d of a request for %d samples", from, len(indices))}
	}
	n := d.o.Fetcher.Fitting(indices[from:])
	if n == 0 && from < len(indices) {
		size := d.o.Fetcher.Need(indices[from : from+1])
		return nil, &ArgumentError{Reason: (&fetch.TooLargeError{Need: size, Limit: d.o.Staging.SpareBytes()}).Error(), TooLarge: true}
	}
	r := d.newCollected(q.part(from, n), plan)
	if err := d.collect(ctx, r, func(ctx context.Context, _ int64) (*staging.Extent, error) { return d.o.Fetcher.SpareRoom(ctx) }); err != nil {
		return nil, d.explain(ctx, err, q.place())
	}
	b := d.columns(r)
	l := &temporaryLease{hold: r.hold, plan: plan, stats: r.stats, count: r.delivery(b), bytes: b.bytes()}
	l.count.Addresses = nil
	l.count.Part = from+n < len(indices)
	if !c.lend(b, l) {
		d.o.Staging.Release(&r.hold)
		return nil, ErrClosing
	}
	d.Stats.Waits.observe(time.Since(began))
	return &LentPart{Batch: b, Next: from + n, Total: len(indices)}, nil
}

// lend begins a temporary lease. It returns false if the process has ended or the server stops.
func (c *Client) lend(b *Batch, l *temporaryLease) bool {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	if c.d.closed || c.dead {
		return false
	}
	c.d.nextLease++
	number := c.d.nextLease
	b.Lease = number
	c.temporary[number] = l
	l.timer = time.AfterFunc(c.d.leaseTime(l.bytes), func() { c.endTemporary(number) })
	return true
}

// slowCopy is the number of bytes that any client copies in LeaseTime, even on a busy machine.
const slowCopy = 100e6

// leaseTime returns the duration of a temporary lease of some bytes.
func (d *Deliver) leaseTime(bytes int64) time.Duration {
	return time.Duration(max(1, float64(bytes)/slowCopy) * float64(d.o.LeaseTime))
}

// Copied ends a temporary lease, and reports whether it lasted until now. If so, the copied bytes are right and count as delivered.
func (c *Client) Copied(number uint64) bool {
	l := c.endTemporary(number)
	if l == nil {
		return false
	}
	c.d.delivered(l.stats, l.plan, l.count, l.bytes)
	return true
}

// endTemporary ends a temporary lease and returns it, or nil if it had ended before.
func (c *Client) endTemporary(number uint64) *temporaryLease {
	c.d.mu.Lock()
	l := c.temporary[number]
	delete(c.temporary, number)
	c.d.mu.Unlock()
	if l != nil {
		c.d.giveBack([]*temporaryLease{l})
	}
	return l
}

// takeTemporary removes all temporary leases of a session and returns them for giveBack. d.mu is held.
func (c *Client) takeTemporary() (leases []*temporaryLease) {
	for _, l := range c.temporary {
		leases = append(leases, l)
	}
	clear(c.temporary)
	return leases
}

func (d *Deliver) giveBack(leases []*temporaryLease) {
	for _, l := range leases {
		l.timer.Stop()
		d.o.Staging.Release(&l.hold)
	}
}

// endAllTemporary ends all temporary leases when the server stops.
func (d *Deliver) endAllTemporary() {
	d.mu.Lock()
	var leases []*temporaryLease
	for _, c := range d.clients {
		leases = append(leases, c.takeTemporary()...)
	}
	d.mu.Unlock()
	d.giveBack(leases)
}
