package reorder

import (
	"sync/atomic"

	"lcache/chunker"
	"lcache/internal/disk/offheap"
	"lcache/sample"
)

// A Router maps a sample to its segment of the next layout, if the layout has it. Its input is only an index: no bytes, files or clocks. One bit
// for each sample records that it is placed, so that a sample that is loaded twice is routed once.
type Router struct {
	segment []uint32 // of the next layout, by index; owned by the layout
	placed  []uint64
}

// NewRouter makes a router into the layout with this segment map. Free it when all samples are placed.
func NewRouter(segment []uint32) (*Router, error) {
	placed, err := offheap.Make[uint64]((len(segment) + 63) / 64)
	if err != nil {
		return nil, err
	}
	return &Router{segment: segment, placed: placed}, nil
}

// Route returns the segment that a sample must be appended to. ok is false if it is placed already or the next layout leaves it out.
func (r *Router) Route(index sample.Index) (segment uint32, ok bool) {
	segment = r.segment[index]
	return segment, segment != chunker.None && !r.Placed(index)
}

// Placed reports whether a sample is in the next log.
func (r *Router) Placed(index sample.Index) bool {
	return atomic.LoadUint64(&r.placed[index/64])&(1<<(index%64)) != 0
}

// Claim marks a sample as placed; only one of several callers gets true.
func (r *Router) Claim(index sample.Index) bool {
	bit := uint64(1) << (index % 64)
	return atomic.OrUint64(&r.placed[index/64], bit)&bit == 0
}

// Unclaim undoes a Claim: the sample could not be appended.
func (r *Router) Unclaim(index sample.Index) {
	atomic.AndUint64(&r.placed[index/64], ^(uint64(1) << (index % 64)))
}

// Free frees the memory.
func (r *Router) Free() { offheap.Free(r.placed); r.placed = nil }
