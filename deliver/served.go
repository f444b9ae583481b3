package deliver

import (
	"context"

	"lcache/sample"
)

// Wanted is what a request is answered with: the samples that are served, and those that were requested. Requested is nil where they are the same.
type Wanted struct{ Indices, Requested []sample.Index }

// part is what is wanted in n places from one on.
func (w Wanted) part(from, n int) Wanted {
	p := Wanted{Indices: w.Indices[from : from+n]}
	if w.Requested != nil {
		p.Requested = w.Requested[from : from+n]
	}
	return p
}

// TakesOthers notes that this session's process takes other samples than it names, where its job allows substitutes. Any other process gets by index what it names.
func (c *Client) TakesOthers() {
	c.d.mu.Lock()
	c.foreign = true
	c.d.mu.Unlock()
}

// served is what a request by index is answered with.
func (c *Client) served(ctx context.Context, at *Position, indices []sample.Index) Wanted {
	c.d.mu.Lock()
	foreign := c.foreign
	c.d.mu.Unlock()
	if !foreign {
		return Wanted{Indices: indices}
	}
	return c.d.o.Window.Served(ctx, at, indices)
}
