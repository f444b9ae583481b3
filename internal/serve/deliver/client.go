package deliver

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
)

// A Client is one session of one process: its leases, over any number of connections.
type Client struct {
	Pid   int
	Token string
	d     *Deliver

	// d.mu guards the fields that follow.
	leases    map[uint64]*lease
	temporary map[uint64]*temporaryLease
	held      int64
	side      int64 // bytes of side memory in held
	conns     int
	dead      bool
	copies    bool // the client takes temporary leases
	others    bool // the client takes substitutes for the samples that it names
	lacksRoom bool // its last wait for room failed, so it does not wait again until a request gets room at once
}

// leastLeases is the smallest limit of leases of a session. mostLeft is the maximum number of sessions of one process
// that have no connection but unreleased batches.
const (
	leastLeases = 1 << 16
	mostLeft    = 1024
)

// Attach begins a session for a process, or continues the session of the token, if that belongs to the process.
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
	left := 0
	for _, c := range d.clients {
		if c.Pid == pid && c.conns == 0 {
			left++
		}
	}
	if left >= mostLeft {
		return nil, &ArgumentError{Reason: fmt.Sprintf("process %d has closed %d connections with batches that it has not released: it has to end first", pid, left)}
	}
	var random [16]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, err
	}
	c := &Client{Pid: pid, Token: hex.EncodeToString(random[:]), d: d, leases: map[uint64]*lease{}, temporary: map[uint64]*temporaryLease{}, conns: 1}
	if err := d.watch.add(c); err != nil {
		return nil, err
	}
	d.clients[c.Token] = c
	return c, nil
}

// Disconnected ends one connection of the session. Its leases stay until the process ends, because the process may still read the memory.
func (c *Client) Disconnected() {
	c.d.mu.Lock()
	c.conns--
	over := c.conns == 0 && len(c.leases) == 0 && !c.dead
	var loans []*temporaryLease
	if over {
		c.dead = true
		delete(c.d.clients, c.Token)
		loans = c.takeTemporary()
	}
	c.d.mu.Unlock()
	c.d.giveBack(loans)
	if over {
		c.d.watch.remove(c)
	}
}

// gone ends a client whose process has ended, so that no mapping of its batches is left.
func (d *Deliver) gone(c *Client) {
	d.mu.Lock()
	if c.dead {
		d.mu.Unlock()
		return
	}
	c.dead = true
	delete(d.clients, c.Token)
	leases, loans := c.leases, c.takeTemporary()
	c.leases, c.held, c.side = nil, 0, 0
	d.mu.Unlock()
	d.giveBack(loans)
	for _, l := range leases {
		d.o.Staging.Release(&l.hold)
	}
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

// holder describes the process with the most side memory.
func (d *Deliver) holder() string {
	held := map[int]int64{}
	d.mu.Lock()
	for _, c := range d.clients {
		held[c.Pid] += c.side
	}
	d.mu.Unlock()
	pid, most := 0, int64(0)
	for p, n := range held {
		if n > most {
			pid, most = p, n
		}
	}
	if most == 0 {
		return "no client holds leases of it: other requests, or reads in flight, use it"
	}
	return fmt.Sprintf("process %d holds %d bytes of it in unreleased batches", pid, most)
}

// Connected reports whether any client is attached.
func (d *Deliver) Connected() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.clients)
}
