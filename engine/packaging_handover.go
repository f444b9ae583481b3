package engine

import (
	"sync"

	"lcache/offheap"
	"lcache/sample"
)

// A handover has copies of samples on their way from deliveries to packages, in a ring of bytes: first in, first out. What finds no room is not taken, and is packed another time.
type handover struct {
	mu    sync.Mutex // guards the fields that follow
	mem   []byte
	list  []handed
	first int // of list that was not taken
	end   int // in mem, of the last one's bytes
}

type handed struct {
	index  sample.Index
	at, to int // in mem
}

func (h *handover) init(bytes int) (err error) {
	h.mem, err = offheap.MakeDense[byte](bytes)
	return err
}

func (h *handover) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	offheap.Free(h.mem)
	h.mem, h.list, h.first, h.end = nil, nil, 0, 0
}

// put takes a copy of a sample, and reports whether there was room.
func (h *handover) put(index sample.Index, data []byte) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, ok := h.roomLocked(len(data))
	if !ok {
		return false
	}
	copy(h.mem[at:], data)
	h.end = at + len(data)
	h.list = append(h.list, handed{index, at, h.end})
	return true
}

// roomLocked finds room for n bytes in one piece.
func (h *handover) roomLocked(n int) (at int, ok bool) {
	if len(h.list) == 0 {
		return 0, n <= len(h.mem)
	}
	begin := h.list[h.first].at
	switch {
	case h.end <= begin: // it has gone around
		return h.end, n <= begin-h.end
	case n <= len(h.mem)-h.end:
		return h.end, true
	}
	return 0, n <= begin
}

// next returns the first sample. Its bytes stay until taken is called.
func (h *handover) next() (index sample.Index, data []byte, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.list) == 0 {
		return 0, nil, false
	}
	one := h.list[h.first]
	return one.index, h.mem[one.at:one.to:one.to], true
}

// taken lets go of the first sample.
func (h *handover) taken() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.first++; h.first == len(h.list) {
		h.list, h.first, h.end = h.list[:0], 0, 0
	} else if h.first >= 1024 {
		h.list, h.first = append(h.list[:0], h.list[h.first:]...), 0
	}
}

// clear lets go of all.
func (h *handover) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list, h.first, h.end = h.list[:0], 0, 0
}
