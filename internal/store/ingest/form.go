package ingest

import (
	"slices"

	"lcache/chunker"
	"lcache/internal/store/cache"
)

// A manifest lists all samples, even if some do not fit into the log. In a small cache it would take much of
// the budget, so it is packed there. A cache with all samples has a plain manifest: packing would save nothing, and
// every version of lcache can read a plain one. The form is chosen when the cache is made, and recorded in job.json.

// A form is one of the two forms of a manifest, and the resulting sizes of a new cache.
type form struct {
	packed   []byte // nil: plain
	record   cache.Record
	defaults []cache.Default
	facts    chunker.Facts
	sizing   chunker.Sizing
}

// chooseForm chooses the form of the manifest for a new cache, and sizes the cache.
func (in *run) chooseForm() (form, error) {
	c := in.cache
	asked := form{record: c.Record, defaults: slices.Clip(in.report.Defaults)}
	plain, err := in.size(asked)
	if err != nil || plain.sizing.HoldsAll(plain.facts) {
		return plain, err
	}
	if asked.packed, err = c.Manifest.Pack(); err != nil {
		return plain, err
	}
	chosen := plain
	if packed, err := in.size(asked); err == nil && isBetter(plain, packed) {
		chosen = packed
	}
	c.Record, in.report.Defaults = chosen.record, chosen.defaults
	c.PlanManifest(chosen.length(c.Manifest.PlainBytes()))
	return chosen, nil
}

// isBetter reports whether to pack a manifest: only if the log then has more room. It may have less, because a cache with a packed manifest
// keeps more space free for a change of the source. While the packed form is written the plain one still exists, so both must fit the budget.
func isBetter(plain, packed form) bool {
	return packed.packed != nil && packed.sizing.Room > plain.sizing.Room && plain.facts.Metadata+uint64(len(packed.packed)) <= plain.facts.Budget
}

// length returns the length of the manifest's file, in bytes.
func (f form) length(plainBytes uint64) uint64 {
	if f.packed == nil {
		return plainBytes
	}
	return uint64(len(f.packed))
}

// size computes the sizes of a new cache with a form of the manifest, and first the size of the largest admitted sample. It stores them in the cache, the record and the report.
func (in *run) size(f form) (form, error) {
	c := in.cache
	c.Record, in.report.Defaults = f.record, f.defaults
	c.Record.Most, c.Record.PackedManifest = 0, f.packed != nil
	c.PlanManifest(f.length(c.Manifest.PlainBytes()))
	facts := func() chunker.Facts {
		f := c.Facts()
		f.Block = uint64(in.o.Block)
		return f
	}
	f.facts = facts()
	if c.FitLargest(f.facts) {
		f.facts = facts()
	}
	f.facts.Memory = uint64(in.o.Memory)
	var err error
	f.sizing, err = in.fit(&f.facts)
	f.record, f.defaults = c.Record, in.report.Defaults
	return f, err
}
