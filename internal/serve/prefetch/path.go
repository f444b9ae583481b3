package prefetch

import (
	"slices"

	"lcache/internal/serve/staging"
	"lcache/sample"
)

// path reads samples from one origin. Each path has limits and a goroutine of its own, so that a path that hangs does not delay the others.
type path struct {
	from  sample.Origin
	jobs  int                     // reads of one sample at once
	has   func(sample.Index) bool // reports whether the origin has a sample
	begin func()                  // begins reads until Stop
	// read reads one sample to x, in a goroutine of its own. It ends with publishOne, or drops x and calls failed or putBack.
	read func(pf *prefetch, x *staging.Extent)
}

// usual lists the paths: this machine's log, with random reads, its peers, if there are any, and the source, which has every sample.
func (r *Prefetcher) usual() []path {
	return r.withPeers([]path{
		{from: sample.FromLog, jobs: r.f.LogReads(), has: r.isInLog, begin: r.beginRandomReads, read: r.readOne},
		{from: sample.FromSource, jobs: r.f.Jobs(), has: func(sample.Index) bool { return true }, begin: func() { r.readSingly(sample.FromSource) }, read: r.readSource},
	})
}

// isInLog reports whether a sample can be read at its location in the log.
func (r *Prefetcher) isInLog(index sample.Index) bool {
	_, known := r.cache.Sums.Get(index)
	return known && r.cache.Locations.Get(index) != 0
}

// pathOf returns the first path that has a sample. The last path has every sample.
func (r *Prefetcher) pathOf(index sample.Index) sample.Origin {
	for _, p := range r.paths {
		if p.has(index) {
			return p.from
		}
	}
	return r.paths[len(r.paths)-1].from
}

// pathFrom returns the path of an origin, which must exist.
func (r *Prefetcher) pathFrom(from sample.Origin) *path {
	return &r.paths[slices.IndexFunc(r.paths, func(p path) bool { return p.from == from })]
}

// pathAfter returns the first path after another one that has a sample.
func (r *Prefetcher) pathAfter(before sample.Origin, index sample.Index) sample.Origin {
	behind := false
	for _, p := range r.paths {
		if behind && p.has(index) {
			return p.from
		}
		behind = behind || p.from == before
	}
	return r.paths[len(r.paths)-1].from
}
