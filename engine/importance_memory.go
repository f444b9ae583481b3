package engine

import (
	"context"

	"lcache/drawn"
	"lcache/internal/importance/memory"
	"lcache/sample"
)

// dataset returns what importance memory needs to know of the samples.
func (e *Engine) dataset() memory.Dataset {
	return memory.Dataset{Manifest: e.cache.Manifest, Sums: e.cache.Sums, Logger: e.cache.Logger}
}

// newHigh allocates the memory of a job with importance.
func (e *Engine) newHigh(c drawn.Config) (*memory.High, error) {
	return memory.NewHigh(c, memory.Options{Dataset: e.dataset(), Slice: e.staging.Slice, Read: e.readNow})
}

// readNow calls use with the bytes of a sample, if there is side memory to read it into now.
func (e *Engine) readNow(ctx context.Context, index sample.Index, use func(data []byte)) error {
	one := []sample.Index{index}
	x, ok := e.fetcher.TryRoom(e.fetcher.Need(one))
	if !ok {
		return nil
	}
	extents, got := e.fetcher.Into(ctx, x, one)
	defer func() {
		for _, x := range extents {
			e.staging.Drop(x)
		}
	}()
	if got[0].Err == nil {
		use(got[0].Data)
	}
	return got[0].Err
}
