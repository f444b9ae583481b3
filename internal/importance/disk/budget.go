package disk

import (
	"strings"
	"sync"
)

// room counts the bytes of the budget that the files use.
type room struct {
	mu    sync.Mutex       // guards the fields that follow; held only for sums
	total int64            // bytes of the budget for all files
	taken map[string]int64 // by name: bytes reserved by jobs that have importance
	other map[string]int64 // by name: bytes of all other files
}

// left returns the free bytes. mu is held.
func (r *room) left() int64 {
	n := r.total
	for _, bytes := range r.taken {
		n -= bytes
	}
	for _, bytes := range r.other {
		n -= bytes
	}
	return n
}

// isTaken reports whether a file belongs to a job that has importance. While a file is being replaced, its name has a suffix. mu is held.
func (r *room) isTaken(name string) bool {
	_, is := r.taken[name]
	_, replaced := r.taken[strings.TrimSuffix(name, ".new")]
	return is || replaced
}

// lack records the existing files, and returns the bytes that a job lacks.
func (r *room) lack(name string, bytes int64, files []file) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.other = map[string]int64{}
	for _, f := range files {
		if f.name != name && !r.isTaken(f.name) {
			r.other[f.name] = f.bytes
		}
	}
	return bytes - r.left()
}

// take raises a job's reservation to the given bytes. It reports whether they were free.
func (r *room) take(name string, bytes int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	has := r.taken[name]
	if bytes <= has {
		return true
	}
	if bytes-has > r.left() {
		return false
	}
	r.taken[name] = bytes
	return true
}

// giveBack frees a job's reservation, except its file.
func (r *room) giveBack(name string, file int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.taken, name)
	r.other[name] = file
}

// has reports whether a file belongs to a job that has importance.
func (r *room) has(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.isTaken(name)
}

// isUsed reports whether a job has importance.
func (r *room) isUsed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.taken) > 0
}

// of returns a job's reservation in bytes.
func (r *room) of(name string) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken[name]
}
