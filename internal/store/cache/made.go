package cache

import (
	"path/filepath"
)

// MadeIn lists the files that every directory of a cache has.
func MadeIn(dir string) (paths []string) {
	for _, name := range []string{"FORMAT", "journal-0", "journal-1", "journal-packages", "places", "arena"} {
		paths = append(paths, filepath.Join(dir, name))
	}
	return paths
}

// MadeFirst lists the files that only the first directory has, without its manifests.
func (c *Cache) MadeFirst() (paths []string) {
	for _, name := range []string{RecordName, SumsName, LengthsName, ListingName, InodesName} {
		paths = append(paths, filepath.Join(c.Dirs[0], name))
	}
	return paths
}

// Made lists the files that lcache makes in a directory of this cache, without manifests.
func (c *Cache) Made(dir string) []string {
	if dir == c.Dirs[0] {
		return append(c.MadeFirst(), MadeIn(dir)...)
	}
	return MadeIn(dir)
}
