package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"lcache/internal/serve/fetch"
	"lcache/internal/store/cache"
	"lcache/sample"
)

// Filled is what FillShare did.
type Filled struct {
	Samples int64 `json:"samples"` // read from the source
	Bytes   int64 `json:"bytes"`   // of those
	Already int64 `json:"already"` // samples that the cache had
	Failed  int64 `json:"failed"`  // samples that could not be read, or for which the cache had no room
}

// FillShare reads the samples whose home this machine is from the source, and stores them. It decides once which they are: machines that come or go
// meanwhile change nothing. jobs samples are read at once; 0: as many as the source may have. It returns an error if ctx ends, or no sample can be read.
func (e *Engine) FillShare(ctx context.Context, jobs int, progress func(cache.Progress)) (f Filled, err error) {
	if a := e.arrivals.Load(); a != nil {
		a.fills.Store(true)
		defer a.fills.Store(false)
	}
	var todo []sample.Index
	total := int64(0)
	for i := range e.cache.Manifest.Len() {
		index := sample.Index(i)
		switch size := e.cache.Manifest.Size(index); {
		case size == 0 || !e.peers.IsHome(index):
		case e.cache.Locations.Get(index) != 0:
			f.Already++
		default:
			todo, total = append(todo, index), total+int64(size)
		}
	}
	if jobs <= 0 {
		jobs = e.fetcher.Jobs()
	}
	var next, done, samples, failed atomic.Int64
	var first error
	var once sync.Once
	var readers sync.WaitGroup
	ctx = fetch.Alone(ctx)
	for range min(jobs, len(todo)) {
		readers.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(todo) {
					return
				}
				extents, got, err := e.fetcher.FetchAll(ctx, todo[i:i+1])
				if err != nil {
					failed.Add(1)
					once.Do(func() { first = err })
					continue
				}
				n := int64(len(got[0].Data))
				for _, x := range extents {
					e.staging.Drop(x)
				}
				if e.cache.Locations.Get(todo[i]) == 0 {
					failed.Add(1)
				}
				progress(cache.Progress{Stage: "reading", Done: done.Add(n), Total: total, Unit: "bytes", Samples: samples.Add(1), AllSamples: int64(len(todo))})
			}
		})
	}
	readers.Wait()
	f.Samples, f.Bytes, f.Failed = samples.Load(), done.Load(), failed.Load()
	if ctx.Err() != nil {
		return f, context.Cause(ctx)
	}
	if f.Samples == 0 && first != nil {
		return f, errors.Join(errors.New("no sample of the source could be read"), first)
	}
	return f, nil
}
