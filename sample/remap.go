package sample

import (
	"fmt"
	"slices"
)

// Remap maps the samples of an old listing to a new one: for each old index the new index with the same name, size and version, or [None].
// Exactly then the facts about the old sample (its checksum, its bytes in the log) are valid for the new one.
func Remap(old, new *Manifest) ([]Index, error) {
	mapping := make([]Index, old.Len())
	oldNames, newNames := nameReader{m: old}, nameReader{m: new}
	index := new.byName()
	for i := range mapping {
		mapping[i] = None
		for j := range index.candidates(old.hashes[i]) {
			if old.sizes[i] != new.sizes[j] || old.versions[i] != new.versions[j] || !sameBytes(old, Index(i), new, j) {
				continue
			}
			a, err := oldNames.at(Index(i))
			if err != nil {
				return nil, fmt.Errorf("old manifest: %w", err)
			}
			b, err := newNames.at(j)
			if err != nil {
				return nil, fmt.Errorf("new manifest: %w", err)
			}
			if a == b {
				mapping[i] = j
				break
			}
		}
	}
	return mapping, nil
}

// sameBytes reports whether samples with the same size and version have the same bytes: their parts have the same order, and their shards the
// same size. A web server's version of a shard may be a time in whole seconds. Records must also be at the same location, because an index that
// is not in the shard can move them. A part with a checksum that the old listing did not have is read again, so that it is compared with it.
func sameBytes(old *Manifest, i Index, new *Manifest, j Index) bool {
	if old.places.shards != nil && new.places.shards != nil {
		a, b := old.ShardOf(i), new.ShardOf(j)
		x, y := old.places.shards[a], new.places.shards[b]
		if x.Size != y.Size || x.Records != y.Records {
			return false
		}
		if x.Records && (x.Name != y.Name || !slices.Equal(old.offsets(i, a), new.offsets(j, b))) {
			return false
		}
	}
	return slices.EqualFunc(old.Parts(i), new.Parts(j), func(a, b Part) bool {
		return a.Ext == b.Ext && a.Size == b.Size && (b.Sum == 0 || a.Sum == b.Sum)
	})
}

// CopyTo copies the known checksums to other, with a mapping from [Remap], and returns their number.
func (s *Sums) CopyTo(other *Sums, mapping []Index) int {
	copied := 0
	for from := 0; from < len(mapping); from += guarded {
		part, here, whole := mapping[from:min(from+guarded, len(mapping))], 0, false
		s.guard(func() {
			whole = other.guard(func() { here = copySums(s.get, other.set, from, part) })
		})
		if !whole {
			here = copySums(s.Get, other.Set, from, part)
		}
		copied += here
	}
	return copied
}

func copySums(get func(Index) (uint64, bool), set func(Index, uint64), from int, mapping []Index) (copied int) {
	for k, j := range mapping {
		if j == None {
			continue
		}
		if sum, known := get(Index(from + k)); known {
			set(j, sum)
			copied++
		}
	}
	return copied
}
