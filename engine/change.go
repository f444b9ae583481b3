package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"lcache/chunker"
	"lcache/logfile"
	"lcache/sample"
	"lcache/schedule"
)

// A source that changed. The new manifest takes the old one's name, and the old one stays beside it, as manifest-<fingerprint>, for as long
// as a journal or the sums name samples by its indices: whoever opens the cache meanwhile reads those through a map from old index to new,
// by name. Nothing else of the cache is written for that, so a kill at any point leaves the old cache, or the new one with a log that
// is partly the old one's. Then the log is sorted into the new order, as for another job, and only what is new is read.

// errAnew says that the cache can't be adapted to the source, and why: it is made anew.
var errAnew = errors.New("the cache is made anew")

const olderPrefix = ManifestName + "-"

// OlderPath is where a manifest lies that has been replaced.
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

// older is how the store reads a Logfile of a replaced manifest. What the log is not to keep any more counts as gone.
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
	for i, index := range to {
		if index != sample.None && !c.Keeps(index) {
			to[i] = sample.None
		}
	}
	return &logfile.Older{Sizes: slices.Clone(m.Sizes()), To: to}, nil
}

// carrySums opens the sums after those of a replaced manifest, which are there, were carried over: a changed sample loses its sum. false
// if it is not known what they are of.
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

// carryFrom replaces the sums of a replaced manifest, and opens the new ones.
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
	if err := os.Rename(next, path); err != nil {
		return err
	}
	if err := SyncDir(c.Dirs[0]); err != nil {
		return err
	}
	c.Sums, err = sample.OpenSums(path, c.Manifest.Fingerprint(), c.Manifest.Len())
	return err
}

// adapt puts a new listing, at path, in the place of the manifest that is there, which is closed.
func (in *ingest) adapt(ctx context.Context, old *sample.Manifest, path string) error {
	c := in.cache
	if err := in.settle(ctx, old); err != nil && !errors.Is(err, logfile.ErrDamaged) { // what is damaged is made anew, later
		return errors.Join(err, old.Close())
	}
	next, err := sample.OpenManifest(path)
	if err != nil {
		return errors.Join(err, old.Close())
	}
	same, err := in.compare(old, next)
	from, to := old.Fingerprint(), next.Fingerprint()
	if err := errors.Join(err, old.Close(), next.Close()); err != nil {
		return err
	}
	manifest := filepath.Join(c.Dirs[0], ManifestName)
	if err := os.Link(manifest, c.OlderPath(from)); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("keep the manifest before: %w", err)
	}
	if err := in.replaceManifest(path); err != nil {
		return err
	}
	if !same {
		return nil
	}
	// Only labels are other ones: the log stays as it is.
	return logfile.Reprint(c.Dirs, from, to)
}

// settle completes, with the old manifest and job, a Logfile that was being filled: only under these is its order known.
func (in *ingest) settle(ctx context.Context, old *sample.Manifest) (err error) {
	c := in.cache
	for _, name := range []string{"journal-0", "journal-1"} {
		if _, err := os.Lstat(filepath.Join(c.Dirs[0], name)); err != nil {
			return nil // there are no two
		}
	}
	c.Manifest, c.Record = old, *in.old
	defer func() {
		err = errors.Join(err, c.CloseStore())
		c.Store, c.IO, c.Locations, c.Sums = nil, nil, nil, nil
		c.Manifest, c.Record = nil, Record{}
	}()
	if c.Schedule, err = schedule.New(c.Record.Job, old.Len(), MachineMemory()); err != nil {
		return err
	}
	if err := c.OpenSums(); err != nil {
		return err
	}
	if err := c.OpenStore(in.o.IO, in.o.Memory); err != nil {
		return err
	}
	return in.finishOld(ctx)
}

// compare counts what is new, gone and changed. same says that every sample is what and where it was.
func (in *ingest) compare(old, next *sample.Manifest) (same bool, err error) {
	to, err := sample.Remap(old, next)
	if err != nil {
		return false, err
	}
	same = old.Len() == next.Len()
	r := in.report
	kept := 0
	for i, index := range to {
		if index != sample.None {
			kept++
			same = same && int(index) == i
			continue
		}
		same = false
		name, err := old.Name(sample.Index(i))
		if err != nil {
			return false, err
		}
		_, there, err := next.Lookup(name)
		if err != nil {
			return false, err
		}
		if there {
			r.ChangedSamples++
		} else {
			r.RemovedSamples++
		}
	}
	r.AddedSamples = next.Len() - kept - r.ChangedSamples
	return same, nil
}

// refit fits the space that the cache has to a changed manifest: the arena grows if it may, else less of the dataset is kept.
func (in *ingest) refit() (err error) {
	c := in.cache
	if c.Format, err = logfile.ReadFormat(c.Dirs); err != nil {
		return fmt.Errorf("%w: %w", errAnew, err)
	}
	f := c.Facts()
	f.Memory, f.Block = uint64(in.o.Memory), uint64(c.Format.Block)
	arena := uint64(c.Format.Places) * f.Block
	needed := MetadataBytes(c.Dirs[0], c.Manifest, f.Kept)
	if f.Budget > 0 && arena+needed > f.Budget {
		return fmt.Errorf("%w: its index takes %s now, and with the log more than the budget", errAnew, bytesText(needed))
	}
	z, err := chunker.Size(f)
	if err != nil {
		return err
	}
	if places := int(z.Arena / z.Block); places > c.Format.Places {
		if err := in.grow(places); err != nil {
			return err
		}
	}
	if arena = uint64(c.Format.Places) * f.Block; z.Slack >= arena || in.admit(arena-z.Slack) == 0 && f.Kept > 0 {
		return fmt.Errorf("%w: its log of %s has no room for the samples", errAnew, bytesText(arena))
	}
	return nil
}

// grow makes the arena larger, if there is space.
func (in *ingest) grow(places int) error {
	c := in.cache
	more := uint64(places-c.Format.Places) * uint64(c.Format.Block)
	volumes, err := in.volumes(func(string) []string { return nil })
	if err != nil {
		return err
	}
	if room, _ := mostBudget(volumes, 0); room < more {
		in.logger().Warn("the source has grown and there is no space for the log to grow with it: a part of it is read from the source in every epoch", "needs", bytesText(more))
		return nil
	}
	err = logfile.Grow(c.Dirs, places)
	if full := new(logfile.NoSpaceError); errors.As(err, &full) {
		in.logger().Warn("the log can't grow with the source: a part of it is read from the source in every epoch", "reason", err)
		return nil
	}
	if err == nil {
		c.Format.Places = places
	}
	return err
}

// forgetOlder removes the manifests that no Logfile is of any more.
func (in *ingest) forgetOlder() error {
	c := in.cache
	needed := map[string]bool{}
	for _, l := range c.Store.Logfiles() {
		if l != nil && l.IsOlder() {
			needed[c.OlderPath(l.Header().Fingerprint)] = true
		}
	}
	paths, err := c.OlderManifests()
	for _, path := range paths {
		if !needed[path] {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return err
}
