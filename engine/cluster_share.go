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
	Room    uint64   // bytes for samples, at most Bytes

	Manifest *sample.Manifest         // open as long as the engine is
	Padded   func(size uint32) uint64 // bytes that a sample takes on this cache's disks
}

// Share returns the cache's share. It looks at the size of each sample.
func (e *Engine) Share() Share {
	c := e.cache
	align := c.Format.Align
	s := Share{Dataset: c.Manifest.Fingerprint(), Cache: c.Format.UUID, Manifest: c.Manifest, Padded: func(size uint32) uint64 { return chunker.Padded(size, align) }}
	for _, size := range c.Manifest.Sizes() {
		s.Bytes += s.Padded(size)
	}
	s.Room = min(c.Sizing.Room, s.Bytes)
	return s
}
