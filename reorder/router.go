package reorder

import (
	"sync/atomic"

	"lcache/chunker"
	"lcache/internal/disk/offheap"
	"lcache/sample"
)

// A Router maps a sample to its segment of the next line, if that line holds it. Its input is an index alone: no bytes,
// files or clocks. One bit a sample records that the sample is placed, so that a sample that is loaded twice is routed once.
type Router struct {
	segment []uint32 // of the next line, by index; not owned
	placed  []uint64
}

// NewRouter makes a router into the line whose segment map is given. Free it when the line is complete.
func NewRouter(segment []uint32) (*Router, error) {
	placed, err := offheap.Make[uint64]((len(segment) + 63) / 64)
	if err != nil {
		return nil, err
	}
	return &Router{segment: segment, placed: placed}, nil
}

// Route returns the segment that a sample is to be appended to; ok is false if it is placed already or the next line leaves it out.
func (r *Router) Route(index sample.Index) (segment uint32, ok bool) {
	segment = r.segment[index]
	return segment, segment != chunker.None && !r.Placed(index)
}

// Placed reports whether a sample is in the next line.
func (r *Router) Placed(index sample.Index) bool {
	return atomic.LoadUint64(&r.placed[index/64])&(1<<(index%64)) != 0
}

// Claim marks a sample as placed; only one of several callers gets true.
func (r *Router) Claim(index sample.Index) bool {
	bit := uint64(1) << (index % 64)
	return atomic.OrUint64(&r.placed[index/64], bit)&bit == 0
}

// Unclaim takes a claim back: the sample could not be appended.
func (r *Router) Unclaim(index sample.Index) {
	atomic.AndUint64(&r.placed[index/64], ^(uint64(1) << (index % 64)))
}

// Free gives the memory back.
func (r *Router) Free() { offheap.Free(r.placed); r.placed = nil }
