package logfile

import (
	"fmt"
	"math"

	"lcache/sample"
)

// Older maps the samples of another manifest, that of a source before files were added, removed or changed, to this manifest. With it a Logfile
// whose journal names those samples can be read and freed, never appended to.
//
// A sample that is no longer in the manifest still lies between its neighbours in the log, whose offsets follow from its
// length. So it gets a number behind those of the manifest, which is never visible outside this package.
type Older struct {
	Sizes []uint32       // bytes of each sample of that manifest, by index
	To    []sample.Index // for each of them the index in the present manifest, with the same size; sample.None: it is gone
}

// translate prepares for one older Logfile: the result gives every index of its journal a number here.
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

// size is a sample's length in the log. The index is one of the present manifest, or that of a sample that is gone from it.
func (s *Store) size(index sample.Index) uint32 {
	if int(index) < len(s.sizes) {
		return s.sizes[index]
	}
	return s.gone[int(index)-len(s.sizes)]
}

// present reports whether a sample is in the present manifest.
func (s *Store) present(index sample.Index) bool { return int(index) < len(s.sizes) }

// IsOlder reports whether the Logfile is of another manifest than the present one: see [Older].
func (l *Logfile) IsOlder() bool { return l.head.Fingerprint != l.s.print }

// index is a record's i-th sample in the numbers of this Store; false if the record's manifest has no such sample.
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
