package fetch

import "lcache/sample"

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
