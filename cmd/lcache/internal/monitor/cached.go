package monitor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"lcache/internal/serve/status"
)

const (
	freshTime  = 200 * time.Millisecond // a status this old is not asked again
	silentTime = 5 * time.Second        // a server that takes longer does not answer
)

var (
	errSilent = fmt.Errorf("the server has not answered for %v", silentTime)
	errClosed = errors.New("the server is stopping")
)

// cached is the status of one server, which all requests share.
type cached struct {
	name string // of the source; "": the dataset's
	ask  func() (status.Document, error)

	mu       sync.Mutex // guards the fields that follow
	now      answer
	at       time.Time     // of now; zero: none yet
	asking   chan struct{} // closed when the question in flight is answered; nil: there is none
	isClosed bool
}

type answer struct {
	status.Document
	err error
}

// status returns a fresh status. At most one question is in flight.
func (c *cached) status() (status.Document, error) {
	c.mu.Lock()
	if !c.at.IsZero() && time.Since(c.at) < freshTime {
		defer c.mu.Unlock()
		return c.now.Document, c.now.err
	}
	if c.isClosed {
		defer c.mu.Unlock()
		return status.Document{}, errClosed
	}
	if c.asking == nil {
		c.asking = make(chan struct{})
		go c.renew(c.asking)
	}
	asking := c.asking
	c.mu.Unlock()
	late := time.NewTimer(silentTime)
	defer late.Stop()
	select {
	case <-asking:
	case <-late.C:
		return status.Document{}, errSilent
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now.Document, c.now.err
}

func (c *cached) renew(done chan struct{}) {
	s, err := c.ask()
	c.mu.Lock()
	c.now, c.at, c.asking = answer{s, err}, time.Now(), nil
	c.mu.Unlock()
	close(done)
}

// close ends the questions, and waits for the one in flight.
func (c *cached) close(ctx context.Context) error {
	c.mu.Lock()
	c.isClosed = true
	asking := c.asking
	c.mu.Unlock()
	if asking == nil {
		return nil
	}
	select {
	case <-asking:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the status that was asked for metrics: %w", ctx.Err())
	}
}
