package engine

import (
	"context"

	"lcache/internal/serve/deliver"
)

// begunAt returns a request at a position that was begun before.
func (e *Engine) begunAt(at *deliver.Position) *begun {
	j := e.lookUp(at.Job)
	return &begun{window: e.window, at: at, j: j, important: j.importance.Load()}
}

// samplesAt returns the samples of a request by position. It records nothing.
func (e *Engine) samplesAt(ctx context.Context, at deliver.Position) (deliver.Request, error) {
	q := deliver.Request{At: &at, ByPosition: true}
	_, err := e.begunAt(&at).resolve(ctx, &q)
	return q, err
}
