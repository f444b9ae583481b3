package deliver

import (
	"fmt"
	"sync"

	"lcache/internal/serve/fetch"
	"lcache/internal/serve/staging"
	"lcache/sample"
)

// skips remembers which samples were left out, so that each is logged once.
type skips struct {
	mu    sync.Mutex // guards known
	known map[sample.Index]struct{}
}

// first adds a sample, and reports whether it was new.
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

// skip leaves one sample out of an answer, if Options.SkipErrors is set. It returns false if the error does not
// concern the sample, such as a deadline. Then the request must end.
func (d *Deliver) skip(r *collected, i int, err error) bool {
	if !d.o.SkipErrors || !fetch.Unavailable(err) {
		return false
	}
	if r.skipped == nil {
		r.skipped = make([]bool, len(r.indices))
	}
	r.skipped[i] = true
	index := r.indices[i]
	d.Stats.Skipped.Add(1)
	if d.skips.first(index) {
		name, nameErr := d.o.Manifest.Name(index)
		if nameErr != nil {
			name = fmt.Sprintf("sample %d", index)
		}
		d.o.Logger.Warn("a sample can't be read and is left out of its batches", "sample_name", name, "index", index, "error", err)
	}
	return true
}

// compact removes skipped samples from the columns. It copies the indices, which may belong to a schedule.
func (r *collected) compact() {
	if r.skipped == nil {
		return
	}
	var indices, requested []sample.Index
	var addr []staging.Address
	for i := range r.indices {
		if !r.skipped[i] {
			indices, addr = append(indices, r.indices[i]), append(addr, r.addr[i])
			if r.requested != nil {
				requested = append(requested, r.requested[i])
			}
		}
	}
	r.indices, r.requested, r.addr, r.skipped = indices, requested, addr, nil
}

// isSkipped reports whether a sample is left out.
func (r *collected) isSkipped(i int) bool { return r.skipped != nil && r.skipped[i] }
