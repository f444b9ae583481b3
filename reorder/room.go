package reorder

import (
	"errors"
	"sync"

	"lcache/logfile"
)

// errNoRoom is the error of a sample that the arena has no room for.
var errNoRoom = errors.New("the arena is full of blocks whose samples have moved")

// room bounds the appends of samples that a segment lacks, which free no block. They may use the free places of the arena except for a reserve. The reserve is for samples that move between
// the two Logfiles: without it these would wait for a place, and would not free their own blocks.
type room struct {
	store   *logfile.Store
	reserve int64
	full    sync.Once // logs that there is none

	mu    sync.Mutex // guards the field that follows
	taken int64      // bytes that are being appended
}

// reserve is how many bytes the tasks under way have in both Logfiles at most: a block each, and the largest sample of each of two loads.
func (p *Pass) reserve() int64 {
	largest := uint32(0)
	for _, size := range p.o.Sizes {
		largest = max(largest, size)
	}
	return int64(aheadTasks*p.o.Block) + 2*int64(p.padded(uint64(largest)))
}

// take reports whether there is room for n bytes. If so, give is to be called when they are appended.
func (r *room) take(n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.store.HasRoom(r.reserve + r.taken + n) {
		return false
	}
	r.taken += n
	return true
}

func (r *room) give(n int64) {
	r.mu.Lock()
	r.taken -= n
	r.mu.Unlock()
}
