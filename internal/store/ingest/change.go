package ingest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"lcache/chunker"
	"lcache/internal/serve/schedule"
	"lcache/internal/store/cache"
	"lcache/logfile"
	"lcache/sample"

	"github.com/dustin/go-humanize"
)

// A changed source. The new manifest takes the old one's name. The old manifest stays, as manifest-<fingerprint>, while a journal or the
// checksums name samples by its indices. A process that opens the cache meanwhile maps old indices to new ones, by name. Adapting writes no
// other file of the cache. So a kill at any point leaves the old cache, or the new cache with a log that partly belongs to the old one. Then
// the log is sorted into the new order, as for another job, and only the new samples are read.

// errRemake means that the cache can't be adapted to the source and is made again. Errors that wrap it have the reason.
var errRemake = errors.New("the cache is made again")

// adapt replaces the old manifest by the new listing at path, and closes the old one.
func (in *run) adapt(ctx context.Context, old *sample.Manifest, path string) error {
	c := in.cache
	if err := in.settleOld(ctx, old); err != nil && !errors.Is(err, logfile.ErrDamaged) { // a damaged log is made again later
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
	manifest := filepath.Join(c.Dirs[0], cache.ManifestName)
	if err := os.Link(manifest, c.OlderPath(from)); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("keep the manifest before: %w", err)
	}
	if err := in.replaceManifest(path); err != nil {
		return err
	}
	if !same {
		return nil
	}
	// Only labels have changed: the log stays as it is.
	return logfile.Reprint(c.Dirs, from, to)
}

// settleOld completes a Logfile that was being filled, with the old manifest and the old job: only they have its order.
func (in *run) settleOld(ctx context.Context, old *sample.Manifest) (err error) {
	c := in.cache
	for _, name := range []string{"journal-0", "journal-1"} {
		if _, err := os.Lstat(filepath.Join(c.Dirs[0], name)); err != nil {
			return nil // there are not two Logfiles
		}
	}
	c.Manifest, c.Record = old, *in.old
	defer func() {
		err = errors.Join(err, c.CloseStore())
		c.Store, c.IO, c.Locations, c.Sums = nil, nil, nil, nil
		c.Manifest, c.Record = nil, cache.Record{}
	}()
	if c.Schedule, err = schedule.New(c.Record.Job, old.Len()); err != nil {
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

// compare counts the added, removed and changed samples in the report. same means that every sample has the same bytes and the same index.
func (in *run) compare(old, next *sample.Manifest) (same bool, err error) {
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

// refit fits the cache's space to a changed manifest. The arena grows if there is space; otherwise fewer samples are admitted.
func (in *run) refit() (err error) {
	c := in.cache
	if c.Format, err = logfile.ReadFormat(c.Dirs); err != nil {
		return fmt.Errorf("%w: %w", errRemake, err)
	}
	f := c.Facts()
	f.Memory, f.Block = uint64(in.o.Memory), uint64(c.Format.Block)
	arena := uint64(c.Format.Places) * f.Block
	needed := c.MetadataBytes(f.InLog(), min(f.Block, 128<<10))
	if c.Record.PackedManifest {
		if needed, err = in.neededMeanwhile(arena, needed); err != nil {
			return err
		}
		f.Metadata = max(f.Metadata, needed) // so that the arena does not grow into it
	}
	if f.Budget > 0 && arena+needed > f.Budget {
		return fmt.Errorf("%w: its index takes %s now, and with the log more than the budget", errRemake, humanize.Bytes(needed))
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
	if arena = uint64(c.Format.Places) * f.Block; z.Slack >= arena || c.Fit(arena-z.Slack) == 0 && f.Kept > 0 {
		return fmt.Errorf("%w: its log of %s has no room for the samples", errRemake, humanize.Bytes(arena))
	}
	return nil
}

// neededMeanwhile returns the bytes that the cache needs in addition to its arena while it is adapted, if it needs after bytes later. That is
// the larger of two sums: after and the replaced manifests, until the log is sorted; and the present files and a second file of checksums,
// until the checksums are copied.
func (in *run) neededMeanwhile(arena, after uint64) (uint64, error) {
	c := in.cache
	older, err := c.OlderManifests()
	if err != nil {
		return 0, err
	}
	var all []string
	for _, dir := range c.Dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return 0, err
		}
		for _, e := range entries {
			all = append(all, filepath.Join(dir, e.Name()))
		}
	}
	kept, err := lengthOf(older)
	used, err2 := lengthOf(all)
	return max(after+kept, used+cache.SumsBytes(c.Manifest.Len())-min(used, arena)), errors.Join(err, err2)
}

// lengthOf returns the total length of some files.
func lengthOf(paths []string) (n uint64, err error) {
	for _, path := range paths {
		st, err := os.Lstat(path)
		if err != nil {
			return 0, err
		}
		n += uint64(st.Size())
	}
	return n, nil
}

// grow enlarges the arena if there is space.
func (in *run) grow(places int) error {
	c := in.cache
	more := uint64(places-c.Format.Places) * uint64(c.Format.Block)
	volumes, err := in.volumes(func(string) []string { return nil })
	if err != nil {
		return err
	}
	if room, _ := mostBudget(volumes, 0); room < more {
		in.logger().Warn("the source has grown, but the disk has no space for a larger log: every epoch reads the other samples from the source", "needs", humanize.Bytes(more))
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

// forgetOlder removes replaced manifests that no Logfile needs.
func (in *run) forgetOlder() error {
	c := in.cache
	needed := map[string]bool{}
	for num := range logfile.PackagesNum + 1 {
		if l := c.Store.Log(num); l != nil && l.IsOlder() {
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
