package fetch

import (
	"context"
	"sync/atomic"
	"time"

	"lcache/sample"
)

// A Count counts reads from one origin. It only grows.
type Count struct {
	Reads, Bytes atomic.Int64
	Time         atomic.Int64 // sum over all reads, in nanoseconds
}

// Counts has a Count for each origin.
type Counts [sample.Origins]Count

func (c *Counts) add(from sample.Origin, bytes int, took time.Duration) {
	c[from].Reads.Add(1)
	c[from].Bytes.Add(int64(bytes))
	c[from].Time.Add(int64(took))
}

type countKey struct{}

// CountedBy returns a context whose reads also count in c.
func CountedBy(ctx context.Context, c *Counts) context.Context {
	return context.WithValue(ctx, countKey{}, c)
}

// count counts a read that began at a time, in Stats and in the Counts of its context. A read for another machine is none of a job here.
func (f *Fetcher) count(ctx context.Context, from sample.Origin, bytes int, began time.Time) {
	took := time.Since(began)
	f.Stats.Reads.add(from, bytes, took)
	c, ok := ctx.Value(countKey{}).(*Counts)
	switch {
	case ok:
	case isForPeers(ctx):
		c = &f.Stats.ForPeers
	default:
		c = f.Rest.Load()
	}
	if c != nil {
		c.add(from, bytes, took)
	}
}
