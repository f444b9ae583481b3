package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"lcache/internal/disk/durable"
	"lcache/logfile"
	"lcache/sample"
)

const olderPrefix = ManifestName + "-"

// OlderPath returns the path of a replaced manifest.
func (c *Cache) OlderPath(print sample.Fingerprint) string {
	return filepath.Join(c.Dirs[0], olderPrefix+print.String())
}

// OlderManifests lists the files of replaced manifests.
func (c *Cache) OlderManifests() (paths []string, err error) {
	entries, err := os.ReadDir(c.Dirs[0])
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), olderPrefix) {
			paths = append(paths, filepath.Join(c.Dirs[0], e.Name()))
		}
	}
	return paths, nil
}

// older returns the map from sample indices of a replaced manifest to this one, with which the store reads an older
// Logfile. A sample that is not admitted any longer counts as removed. nil: the cache does not have that manifest.
func (c *Cache) older(print sample.Fingerprint) (*logfile.Older, error) {
	m, err := sample.OpenManifest(c.OlderPath(print))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer m.Close()
	if m.Fingerprint() != print {
		return nil, fmt.Errorf("%s is the manifest of %s", c.OlderPath(print), m.Fingerprint().Short())
	}
	to, err := sample.Remap(m, c.Manifest)
	if err != nil {
		return nil, err
	}
	keeps := c.Placement()
	for i, index := range to {
		if index != sample.None && !keeps.Keeps(index) {
			to[i] = sample.None
		}
	}
	return &logfile.Older{Sizes: slices.Clone(m.Sizes()), To: to}, nil
}

// carrySums copies the checksums of a replaced manifest to this one, and opens them. A changed sample loses its checksum. It returns false
// if the file belongs to no known manifest.
func (c *Cache) carrySums(path string) (bool, error) {
	paths, err := c.OlderManifests()
	if err != nil {
		return false, err
	}
	carry := c.carryFrom
	if c.readOnly {
		carry = c.readFrom
	}
	for _, older := range paths {
		m, err := sample.OpenManifest(older)
		if err != nil {
			continue
		}
		err = errors.Join(carry(path, m), m.Close())
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, sample.ErrOtherManifest) && !errors.Is(err, sample.ErrCorrupt) {
			return false, err
		}
	}
	return false, nil
}

// carryFrom converts the checksums of a replaced manifest to this one, and opens them.
func (c *Cache) carryFrom(path string, from *sample.Manifest) (err error) {
	old, err := sample.OpenSums(path, from.Fingerprint(), from.Len())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, old.Close()) }()
	to, err := sample.Remap(from, c.Manifest)
	if err != nil {
		return err
	}
	c.carryInodes(from, to) // first, because an inode is useful only together with a checksum
	next := path + ".next"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	sums, err := sample.OpenSums(next, c.Manifest.Fingerprint(), c.Manifest.Len())
	if err != nil {
		return err
	}
	old.CopyTo(sums, to)
	if err := sums.Close(); err != nil {
		return err
	}
	if err := durable.Rename(next, path); err != nil {
		return err
	}
	c.Sums, err = sample.OpenSums(path, c.Manifest.Fingerprint(), c.Manifest.Len())
	return err
}
