package reorder

import (
	"errors"
	"sync"

	"lcache/logfile"
)

// errNoRoom is the error of a sample for which the arena has no room.
var errNoRoom = errors.New("the arena is full of blocks whose samples have moved")

// room bounds the appends of missing samples, which free no block. They may use the free arena blocks except for a reserve. The reserve
// is for samples that move between the two Logfiles: without it they would wait for a block, and would not free their own blocks.
type room struct {
	store   *logfile.Store
	reserve int64
	full    sync.Once // logs once that the arena is full

	mu    sync.Mutex // guards the field that follows
	taken int64      // bytes that are being appended
}

// reserve returns the most bytes that the tasks in progress have in both Logfiles: a block each, and the largest sample of each of two loads.
func (p *Scan) reserve() int64 {
	largest := uint32(0)
	for _, size := range p.o.Sizes {
		largest = max(largest, size)
	}
	return int64(aheadTasks*p.o.Block) + 2*int64(p.padded(uint64(largest)))
}

// take reports whether there is room for n bytes. If so, the caller calls give after they are appended.
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
