package deliver

import (
	"fmt"
	"sync"

	"lcache/fetch"
	"lcache/sample"
	"lcache/staging"
)

// skips remembers which samples were left out, so that each is logged once.
type skips struct {
	mu    sync.Mutex // guards known
	known map[sample.Index]struct{}
}

// first notes a sample, and reports whether it is the first time.
func (s *skips) first(index sample.Index) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.known[index]; ok {
		return false
	}
	if s.known == nil {
		s.known = map[sample.Index]struct{}{}
	}
	s.known[index] = struct{}{}
	return true
}

// skip leaves one sample out of an answer where that was asked for. It reports false for an error that has to end the request: it
// says nothing about the sample, like a deadline.
func (d *Deliver) skip(r *collected, i int, err error) bool {
	if !d.SkipErrors || !fetch.Unavailable(err) {
		return false
	}
	if r.skipped == nil {
		r.skipped = make([]bool, len(r.indices))
	}
	r.skipped[i] = true
	index := r.indices[i]
	d.Stats.Skipped.Add(1)
	if d.skips.first(index) {
		name, nameErr := d.Manifest.Name(index)
		if nameErr != nil {
			name = fmt.Sprintf("sample %d", index)
		}
		d.Logger.Warn("a sample can't be read and is left out of its batches", "name", name, "index", index, "error", err)
	}
	return true
}

// compact takes what is skipped out of the columns. The indices may be a schedule's own, so they are copied.
func (r *collected) compact() {
	if r.skipped == nil {
		return
	}
	var indices []sample.Index
	var addr []staging.Address
	for i := range r.indices {
		if !r.skipped[i] {
			indices, addr = append(indices, r.indices[i]), append(addr, r.addr[i])
		}
	}
	r.indices, r.addr, r.skipped = indices, addr, nil
}

// isSkipped reports whether a sample is left out.
func (r *collected) isSkipped(i int) bool { return r.skipped != nil && r.skipped[i] }
