package packing

import (
	"sync"

	"lcache/offheap"
	"lcache/sample"
)

// A ring has copies of samples on their way from deliveries to packages: first in, first out. A sample without room is not taken; it is packed when it is delivered again.
type ring struct {
	mu    sync.Mutex // guards the fields that follow
	mem   []byte
	list  []handed
	first int // of list that was not taken
	end   int // in mem, of the last one's bytes
}

// handed is a sample in a ring.
type handed struct {
	index  sample.Index
	at, to int // in mem
}

func (r *ring) init(bytes int) (err error) {
	r.mem, err = offheap.MakeDense[byte](bytes)
	return err
}

func (r *ring) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	offheap.Free(r.mem)
	r.mem, r.list, r.first, r.end = nil, nil, 0, 0
}

// put copies a sample, and reports whether there was room.
func (r *ring) put(index sample.Index, data []byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.roomLocked(len(data))
	if !ok {
		return false
	}
	copy(r.mem[at:], data)
	r.end = at + len(data)
	r.list = append(r.list, handed{index, at, r.end})
	return true
}

// roomLocked finds n contiguous bytes.
func (r *ring) roomLocked(n int) (at int, ok bool) {
	if len(r.list) == 0 {
		return 0, n <= len(r.mem)
	}
	begin := r.list[r.first].at
	switch {
	case r.end <= begin: // it has wrapped around
		return r.end, n <= begin-r.end
	case n <= len(r.mem)-r.end:
		return r.end, true
	}
	return 0, n <= begin
}

// next returns the first sample. Its bytes stay until taken is called.
func (r *ring) next() (index sample.Index, data []byte, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.list) == 0 {
		return 0, nil, false
	}
	one := r.list[r.first]
	return one.index, r.mem[one.at:one.to:one.to], true
}

// taken frees the room of the first sample.
func (r *ring) taken() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.first++; r.first == len(r.list) {
		r.list, r.first, r.end = r.list[:0], 0, 0
	} else if r.first >= 1024 {
		r.list, r.first = append(r.list[:0], r.list[r.first:]...), 0
	}
}

// clear frees the room of all samples.
func (r *ring) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list, r.first, r.end = r.list[:0], 0, 0
}
