package cache

import (
	"slices"

	"lcache/chunker"
	"lcache/sample"
)

// A Placement decides which samples the log on this machine's disks keeps. It determines what ingest reads, the layouts,
// the space and memory of a cache, when a cache is complete, and which samples come from the source. A Placement never
// changes.
type Placement struct {
	manifest  *sample.Manifest
	align     int
	most      uint64 // padded bytes of the largest kept sample; 0: any
	threshold uint64 // of name hashes
	elsewhere func(*sample.Manifest, sample.Index) bool
}

// Placement returns the placement by the record as it is now.
func (c *Cache) Placement() Placement {
	align := c.Format.Align
	if align == 0 {
		align = AlignFor(c.Manifest)
	}
	return Placement{c.Manifest, align, c.Record.Most, c.Record.Threshold, c.Elsewhere}
}

// Keeps reports whether the log keeps a sample.
func (c *Cache) Keeps(index sample.Index) bool { return c.Placement().Keeps(index) }

// Keeps reports whether the log keeps a sample. Empty samples are never kept: they are always hits.
func (p Placement) Keeps(index sample.Index) bool {
	return p.may(index) && chunker.Admitted(p.manifest.NameHash(index), p.threshold)
}

// may reports whether the log keeps a sample if there is room for it.
func (p Placement) may(index sample.Index) bool {
	return p.isHere(index) && (p.most == 0 || chunker.Padded(p.manifest.Size(index), p.align) <= p.most)
}

// isHere reports whether a sample has bytes, and this machine keeps them.
func (p Placement) isHere(index sample.Index) bool {
	return p.manifest.Size(index) > 0 && (p.elsewhere == nil || !p.elsewhere(p.manifest, index))
}

// sizes returns the size of each sample that the log may keep, and 0 for the others.
func (p Placement) sizes() []uint32 {
	all := p.manifest.Sizes()
	if p.most == 0 && p.elsewhere == nil {
		return all
	}
	all = slices.Clone(all)
	for i := range all {
		if !p.may(sample.Index(i)) {
			all[i] = 0
		}
	}
	return all
}

// Fit chooses the samples to keep, as many as fit into room, and stores the choice in the record. It returns their padded bytes.
func (c *Cache) Fit(room uint64) (bytes uint64) {
	p := c.Placement()
	p.threshold, bytes = chunker.Admit(p.manifest.NameHashes(), p.sizes(), p.align, room)
	c.Record.Threshold, c.Record.Kept, c.Record.KeptBytes = p.threshold, 0, 0
	for i, size := range p.manifest.Sizes() {
		if p.Keeps(sample.Index(i)) {
			c.Record.Kept++
			c.Record.KeptBytes += uint64(size)
		}
	}
	return bytes
}

// FitLargest stores in the record the largest size of a kept sample, by chunker.Facts.Most, and reports whether that leaves out any sample.
func (c *Cache) FitLargest(f chunker.Facts) bool {
	c.Record.Most = 0
	p := c.Placement()
	c.Record.Most = f.Most(p.sizes(), p.align)
	return c.Record.Most > 0
}

// fill sets the facts about the samples that this machine would keep with enough room, in padded bytes.
func (p Placement) fill(f *chunker.Facts) {
	for i, size := range p.manifest.Sizes() {
		index, n := sample.Index(i), chunker.Padded(size, p.align)
		if p.isHere(index) {
			f.Kept += n
		}
		if p.may(index) {
			f.LargestKept = max(f.LargestKept, n)
		}
	}
}
