package packing

import (
	"sync"

	"lcache/internal/disk/offheap"
	"lcache/sample"
)

// A ring is a FIFO of sample copies between delivery and package. A sample that finds no room is dropped; it is
// packed after a later delivery. No lock is held while bytes are copied.
type ring struct {
	copies sync.WaitGroup // in progress; Add is called only with mu held, and not after close

	mu      sync.Mutex // guards the fields that follow
	mem     []byte
	list    []handed
	first   int // position in list of the next sample to be taken
	gone    int // number of samples already removed from list
	cleared int // samples with a smaller number were dropped
	end     int // where the bytes of the last sample end in mem
}

// handed is one sample in a ring.
type handed struct {
	index  sample.Index
	at, to int  // its bytes are mem[at:to]
	copied bool // mem has its bytes
}

func (r *ring) init(bytes int) (err error) {
	r.mem, err = offheap.MakeDense[byte](bytes)
	return err
}

// close waits for copies in progress and frees the memory. The ring accepts no sample after that.
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

// reserve allocates room for a sample of n bytes and returns the sample's number in the ring. The caller then copies
// the bytes and calls filled.
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

// filled records that the caller has copied a sample's bytes.
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
	case r.end <= begin: // the used part wraps around
		return r.end, n <= begin-r.end
	case n <= len(r.mem)-r.end:
		return r.end, true
	}
	return 0, n <= begin
}

// next returns the first sample, or false if the ring is empty or that sample is still being copied. The bytes stay
// valid until taken is called.
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

// taken removes the first sample and frees its room.
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

// clear drops all samples. The room of a sample that is being copied is freed when its copy is complete.
func (r *ring) clear() {
	r.mu.Lock()
	r.cleared = r.gone + len(r.list)
	r.mu.Unlock()
	r.next()
}
