package packing

import (
	"sync"

	"lcache/internal/disk/offheap"
	"lcache/sample"
)

// A ring has copies of samples on their way from deliveries to packages: first in, first out. A sample without room is not taken; it is packed when it is delivered again. No lock is held while bytes are
// copied.
type ring struct {
	copies sync.WaitGroup // under way; added to only under mu, and not after close

	mu      sync.Mutex // guards the fields that follow
	mem     []byte
	list    []handed
	first   int // of list that was not taken
	gone    int // samples that are no longer in list
	cleared int // samples before this one were dropped
	end     int // in mem, of the last one's bytes
}

// handed is a sample in a ring.
type handed struct {
	index  sample.Index
	at, to int  // in mem
	copied bool // its bytes are there
}

func (r *ring) init(bytes int) (err error) {
	r.mem, err = offheap.MakeDense[byte](bytes)
	return err
}

// close waits for copies that are under way and frees the memory. No sample is taken from then on.
func (r *ring) close() {
	r.mu.Lock()
	mem := r.mem
	r.mem = nil
	r.mu.Unlock()
	r.copies.Wait()
	offheap.Free(mem)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list, r.first = nil, 0
}

// put copies a sample, and reports whether there was room.
func (r *ring) put(index sample.Index, data []byte) bool {
	room, number, ok := r.reserve(index, len(data))
	if ok {
		copy(room, data)
		r.filled(number)
	}
	return ok
}

// reserve returns room for a sample of n bytes, and its number. The caller copies the bytes and calls filled.
func (r *ring) reserve(index sample.Index, n int) (room []byte, number int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.roomLocked(n)
	if !ok || r.mem == nil {
		return nil, 0, false
	}
	r.copies.Add(1)
	r.end = at + n
	r.list = append(r.list, handed{index: index, at: at, to: r.end})
	return r.mem[at:r.end:r.end], r.gone + len(r.list) - 1, true
}

// filled records that a sample's bytes are there.
func (r *ring) filled(number int) {
	r.mu.Lock()
	r.list[number-r.gone].copied = true
	r.mu.Unlock()
	r.copies.Done()
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

// next returns the first sample. Its bytes stay until taken is called. While the first sample is being copied there is none.
func (r *ring) next() (index sample.Index, data []byte, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.mem != nil && len(r.list) > 0 && r.list[r.first].copied {
		if one := r.list[r.first]; r.gone+r.first >= r.cleared {
			return one.index, r.mem[one.at:one.to:one.to], true
		}
		r.takenLocked()
	}
	return 0, nil, false
}

// taken frees the room of the first sample.
func (r *ring) taken() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.takenLocked()
}

func (r *ring) takenLocked() {
	if r.first++; r.first == len(r.list) {
		r.gone += r.first
		r.list, r.first, r.end = r.list[:0], 0, 0
	} else if r.first >= 1024 {
		r.gone += r.first
		r.list, r.first = append(r.list[:0], r.list[r.first:]...), 0
	}
}

// clear drops all samples. The room of one that is being copied is free after that.
func (r *ring) clear() {
	r.mu.Lock()
	r.cleared = r.gone + len(r.list)
	r.mu.Unlock()
	r.next()
}
