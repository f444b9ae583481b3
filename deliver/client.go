package deliver

import (
	"crypto/rand"
	"encoding/hex"

	"lcache/staging"
)

// A Client is one session of one process: its leases, whatever connection it speaks through.
type Client struct {
	Pid   int
	Token string
	d     *Deliver

	// Guarded by d.mu.
	leases map[uint64]*lease
	held   int64
	conns  int
	dead   bool
}

type lease struct {
	hold  staging.Hold
	bytes int64
}

// Attach begins a session for a process, or goes on with the one that the token names, if it is that process's.
func (d *Deliver) Attach(pid int, token string) (*Client, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, ErrClosing
	}
	if c := d.clients[token]; c != nil && c.Pid == pid && !c.dead {
		c.conns++
		return c, nil
	}
	var random [16]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, err
	}
	c := &Client{Pid: pid, Token: hex.EncodeToString(random[:]), d: d, leases: map[uint64]*lease{}, conns: 1}
	if err := d.watch.add(c); err != nil {
		return nil, err
	}
	d.clients[c.Token] = c
	return c, nil
}

// lease puts a batch under a lease of its own; false if the process is gone or the server stops.
func (c *Client) lease(b *Batch, hold *staging.Hold) bool {
	l := &lease{hold: *hold, bytes: b.Pinned}
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	if c.d.closed || c.dead {
		return false
	}
	c.d.nextLease++
	b.Lease = c.d.nextLease
	c.leases[b.Lease] = l
	c.held += l.bytes
	return true
}

// Release ends leases; numbers that are not this session's are ignored.
func (c *Client) Release(leases ...uint64) {
	var ended []*lease
	c.d.mu.Lock()
	for _, id := range leases {
		if l := c.leases[id]; l != nil {
			delete(c.leases, id)
			c.held -= l.bytes
			ended = append(ended, l)
		}
	}
	c.d.mu.Unlock()
	for _, l := range ended {
		c.d.Staging.Release(&l.hold)
	}
}

// Disconnected ends one connection of the session. Its leases stay until the process is gone: what it mapped, it still sees.
func (c *Client) Disconnected() {
	c.d.mu.Lock()
	c.conns--
	over := c.conns == 0 && len(c.leases) == 0 && !c.dead
	if over {
		c.dead = true
		delete(c.d.clients, c.Token)
	}
	c.d.mu.Unlock()
	if over {
		c.d.watch.remove(c)
	}
}

// gone is called when a client's process has ended: nothing can see its batches any more.
func (d *Deliver) gone(c *Client) {
	d.mu.Lock()
	if c.dead {
		d.mu.Unlock()
		return
	}
	c.dead = true
	delete(d.clients, c.Token)
	leases := c.leases
	c.leases, c.held = nil, 0
	d.mu.Unlock()
	for _, l := range leases {
		d.Staging.Release(&l.hold)
	}
}

// Held reports, for each process attached, how many bytes it holds.
func (d *Deliver) Held() map[int]int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	held := map[int]int64{}
	for _, c := range d.clients {
		held[c.Pid] += c.held
	}
	return held
}

// Attached reports whether a process has an open connection.
func (d *Deliver) Attached(pid int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.clients {
		if c.Pid == pid && c.conns > 0 && !c.dead {
			return true
		}
	}
	return false
}

func (d *Deliver) mostHeld() (pid int, bytes int64) {
	for p, n := range d.Held() {
		if n > bytes {
			pid, bytes = p, n
		}
	}
	return pid, bytes
}

// Connected reports whether any client is attached.
func (d *Deliver) Connected() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.clients)
}
