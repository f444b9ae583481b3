package prefetch

import (
	"slices"

	"lcache/chunker"
	"lcache/internal/serve/fetch"
	"lcache/internal/serve/staging"
	"lcache/sample"
)

// Listed reports whether some chunk wants a sample.
func (r *Prefetcher) Listed(index sample.Index) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.prefetches[index] != nil
}

// Taken reports whether the read of a sample is about to begin.
func (r *Prefetcher) Taken(index sample.Index) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	pf := r.prefetches[index]
	return pf != nil && pf.state == prefetchTaken
}

// NewOf makes a Prefetcher with a number of paths: 1 is the source; 2 adds the log before it; 3 adds a path between
// them, for the samples that copy copies, as another machine would.
func NewOf(paths int, f *fetch.Fetcher, o Options, has func(sample.Index) bool, copy func(index sample.Index, dst []byte)) *Prefetcher {
	return newPrefetcher(f, o, func(r *Prefetcher) []path {
		list := r.usual()
		switch paths {
		case 1:
			return list[1:]
		case 3:
			return slices.Insert(list, 1, path{from: sample.FromMemory, jobs: 4, has: has, begin: func() { r.readSingly(sample.FromMemory) }, read: func(pf *prefetch, x *staging.Extent) {
				data := x.Buf[:pf.size:pf.size]
				copy(pf.index, data)
				r.publishOne(pf, x, data, sample.FromMemory)
			}})
		}
		return list
	})
}

// Miscounted returns the first chunk whose todoBytes are wrong.
func (r *Prefetcher) Miscounted() (at chunker.Position, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.ranks {
		for _, k := range c.chunks {
			var bytes [sample.Origins]int64
			for from, todo := range k.todo {
				for _, pf := range todo {
					bytes[from] += int64(pf.size)
				}
			}
			if bytes != k.todoBytes {
				return k.at, true
			}
		}
	}
	return at, false
}
