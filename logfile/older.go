package logfile

import (
	"fmt"
	"math"

	"lcache/sample"
)

// Older maps the samples of another manifest (of the source before files were added, removed or changed) to this manifest. A Logfile of
// the other manifest can then be read and freed, but not appended to.
//
// A sample that was removed from the manifest still has its bytes in the log, and its neighbours' offsets depend on its length. So it gets
// an index after the manifest's own indices. This index is never visible outside this package.
type Older struct {
	Sizes []uint32       // bytes of each sample of that manifest, by index
	To    []sample.Index // for each of them the index in the present manifest, with the same size; sample.None: removed
}

// translate maps each index of an older Logfile's journal to an index of this Store.
func (s *Store) translate(o *Older) ([]sample.Index, error) {
	if len(o.To) != len(o.Sizes) {
		return nil, fmt.Errorf("%d sizes and %d indices of the older manifest", len(o.Sizes), len(o.To))
	}
	to := make([]sample.Index, len(o.To))
	for i, index := range o.To {
		switch {
		case index == sample.None:
			next := uint64(len(s.sizes)) + uint64(len(s.gone))
			if next >= math.MaxUint32 {
				return nil, fmt.Errorf("%d samples in both manifests: more than there are numbers", next)
			}
			to[i] = sample.Index(next)
			s.gone = append(s.gone, o.Sizes[i])
		case int(index) >= len(s.sizes) || s.sizes[index] != o.Sizes[i]:
			return nil, fmt.Errorf("sample %d of the older manifest is not sample %d of this one", i, index)
		default:
			to[i] = index
		}
	}
	return to, nil
}

// size returns a sample's length in the log, for an index of the present manifest or of a removed sample.
func (s *Store) size(index sample.Index) uint32 {
	if int(index) < len(s.sizes) {
		return s.sizes[index]
	}
	return s.gone[int(index)-len(s.sizes)]
}

// present reports whether a sample is in the present manifest.
func (s *Store) present(index sample.Index) bool { return int(index) < len(s.sizes) }

// IsOlder reports whether the Logfile belongs to another manifest than the present one: see [Older].
func (l *Logfile) IsOlder() bool { return l.head.Fingerprint != l.s.print }

// index returns a record's i-th sample as an index of this Store. It returns false if the record's manifest has no such sample.
func (r *recovery) index(rec *record, i int) (sample.Index, bool) {
	index := rec.index(i)
	if r.to == nil {
		return index, true
	}
	if int(index) >= len(r.to) {
		return 0, false
	}
	return r.to[index], true
}
