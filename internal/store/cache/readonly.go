package cache

import (
	"errors"
	"fmt"
	"io/fs"

	"lcache/sample"
)

// A read-only cache changes no file. If serving would repair or replace a file, that is done in memory. So a check finds the same state
// that a server would find, and so does the next check.

// readSums is OpenSums without changing files.
func (c *Cache) readSums(path string) (err error) {
	c.Sums, err = sample.ReadSums(path, c.Manifest.Fingerprint(), c.Manifest.Len())
	if errors.Is(err, sample.ErrOtherManifest) {
		if carried, carryErr := c.carrySums(path); carried || carryErr != nil {
			return carryErr
		}
	}
	if !isUseless(err) {
		return err
	}
	c.Logger.Warn("the checksums are unusable: no sample in the log can be verified", "error", err)
	c.Sums, err = sample.BlankSums(c.Manifest.Len())
	return err
}

// isUseless reports whether serving would replace a learnt file.
func isUseless(err error) bool {
	return errors.Is(err, sample.ErrCorrupt) || errors.Is(err, sample.ErrOtherManifest) || errors.Is(err, fs.ErrNotExist)
}

// readLengths is openLengths without changing files.
func (c *Cache) readLengths(path string) ([]uint32, error) {
	var err error
	c.Lengths, err = sample.ReadLengths(path, c.Manifest.Fingerprint(), c.Manifest.Sizes())
	if isUseless(err) {
		c.Logger.Warn("the compressed lengths are unusable: no sample in the log can be found", "error", err)
		c.Lengths, err = sample.BlankLengths(c.Manifest.Sizes())
	}
	if err != nil {
		return nil, err
	}
	return c.Lengths.All(), nil
}

// readFrom is carryFrom without changing files.
func (c *Cache) readFrom(path string, from *sample.Manifest) error {
	old, err := sample.ReadSums(path, from.Fingerprint(), from.Len())
	if err != nil {
		return err
	}
	defer old.Close()
	to, err := sample.Remap(from, c.Manifest)
	if err != nil {
		return err
	}
	if c.Sums, err = sample.BlankSums(c.Manifest.Len()); err != nil {
		return fmt.Errorf("carry the checksums over: %w", err)
	}
	old.CopyTo(c.Sums, to)
	return nil
}
