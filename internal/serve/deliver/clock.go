package deliver

import (
	"sync"
	"time"
)

// A Clock adds up the wall time during which at least one wait is open.
type Clock struct {
	mu    sync.Mutex // guards the fields that follow
	n     int
	since time.Time
	total time.Duration
}

// Enter begins a wait.
func (c *Clock) Enter() {
	c.mu.Lock()
	if c.n == 0 {
		c.since = time.Now()
	}
	c.n++
	c.mu.Unlock()
}

// Leave ends a wait.
func (c *Clock) Leave() {
	c.mu.Lock()
	if c.n--; c.n == 0 {
		c.total += time.Since(c.since)
	}
	c.mu.Unlock()
}

// Total returns the time so far.
func (c *Clock) Total() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n > 0 {
		return c.total + time.Since(c.since)
	}
	return c.total
}
