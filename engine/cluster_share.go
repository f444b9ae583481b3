package engine

import (
	"lcache/chunker"
	"lcache/sample"
)

// A Share is the part of a dataset that one cache can keep, if several machines serve the dataset.
type Share struct {
	Dataset sample.Fingerprint
	Cache   [16]byte // its identity, the same after a restart
	Bytes   uint64   // of the dataset on this cache's disks
	Room    uint64   // bytes for samples in an empty cache, at most Bytes

	Left func() uint64           // of Room, now
	Held func(sample.Index) bool // reports whether the cache has a sample

	Manifest *sample.Manifest         // open as long as the engine is
	Padded   func(size uint32) uint64 // bytes that a sample takes on this cache's disks
}

// Share returns the cache's share. It looks at the size of each sample. Left and Held may be used when the engine is open.
func (e *Engine) Share() Share {
	c := e.cache
	align := c.Format.Align
	s := Share{Dataset: c.Manifest.Fingerprint(), Cache: c.Format.UUID, Manifest: c.Manifest, Padded: func(size uint32) uint64 { return chunker.Padded(size, align) }}
	for _, size := range c.Manifest.Sizes() {
		s.Bytes += s.Padded(size)
	}
	s.Room = min(c.Sizing.Room, s.Bytes)
	s.Held = func(index sample.Index) bool { return c.Locations.Get(index) != 0 }
	s.Left = func() uint64 { return e.roomLeft(s) }
	return s
}

// roomLeft returns how many bytes of a share's room are left.
func (e *Engine) roomLeft(s Share) uint64 {
	a := e.arrivals.Load()
	if a == nil || a.packages == nil { // nothing can be added
		return 0
	}
	room := uint64(max(a.left(), 0))
	held := uint64(0)
	for i, size := range s.Manifest.Sizes() {
		if s.Held(sample.Index(i)) {
			held += s.Padded(size)
		}
	}
	return min(room, s.Room-min(s.Room, held))
}
