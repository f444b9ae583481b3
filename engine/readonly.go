package engine

import (
	"errors"
	"fmt"
	"io/fs"

	"lcache/sample"
)

// A cache that is only looked at: where serving would mend a file, or replace it, the same is made in memory, so that what is found is what
// serving would find, and is there to be found again.

// readSums is openSums without a change of any file.
func (c *core) readSums(path string) (err error) {
	c.sums, err = sample.ReadSums(path, c.manifest.Fingerprint(), c.manifest.Len())
	if errors.Is(err, sample.ErrOtherManifest) {
		if carried, carryErr := c.carrySums(path); carried || carryErr != nil {
			return carryErr
		}
	}
	if !isUseless(err) {
		return err
	}
	c.logger.Warn("the sums are of no use: nothing that the log holds can be compared with one", "error", err)
	c.sums, err = sample.BlankSums(c.manifest.Len())
	return err
}

// isUseless reports whether a learnt file is one that serving would replace.
func isUseless(err error) bool {
	return errors.Is(err, sample.ErrCorrupt) || errors.Is(err, sample.ErrOtherManifest) || errors.Is(err, fs.ErrNotExist)
}

// readFrom is carryFrom without a change of any file.
func (c *core) readFrom(path string, from *sample.Manifest) error {
	old, err := sample.ReadSums(path, from.Fingerprint(), from.Len())
	if err != nil {
		return err
	}
	defer old.Close()
	to, err := sample.Remap(from, c.manifest)
	if err != nil {
		return err
	}
	if c.sums, err = sample.BlankSums(c.manifest.Len()); err != nil {
		return fmt.Errorf("carry the sums over: %w", err)
	}
	old.CopyTo(c.sums, to)
	return nil
}

// readLengths is openLengths without a change of any file.
func (c *core) readLengths(path string) ([]uint32, error) {
	var err error
	c.lengths, err = sample.ReadLengths(path, c.manifest.Fingerprint(), c.manifest.Sizes())
	if isUseless(err) {
		c.logger.Warn("the stored lengths are of no use: nothing that the log holds can be found", "error", err)
		c.lengths, err = sample.BlankLengths(c.manifest.Sizes())
	}
	if err != nil {
		return nil, err
	}
	return c.lengths.All(), nil
}
