package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"lcache/chunker"
	"lcache/logfile"
	"lcache/metaindex"
	"lcache/sample"
	"lcache/schedule"
	"lcache/source"
)

// prepare lists the source, decides the geometry and opens or makes the cache.
func (in *ingest) prepare(ctx context.Context) (err error) {
	c := in.core
	if c.dirs, err = cleanDirs(in.Dirs); err != nil {
		return err
	}
	if err = c.openSource(in.Source, source.Options{Exts: in.Exts, Flat: in.Flat, Group: in.Group, Labels: in.Labels, Jobs: in.Jobs, NoFollowLinks: !in.follows(), Apart: c.dirs}); err != nil {
		return err
	}
	for _, d := range c.dirs {
		if err := refuseInside(d, c.source.String()); err != nil {
			return err
		}
		if err := os.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("make the cache directory: %w", err)
		}
		if err := refuseFileSystem(d); err != nil {
			return err
		}
	}
	if err := c.lock(false); err != nil {
		return err
	}
	old, oldErr := readJob(c.dirs[0])
	if errors.Is(oldErr, errDamagedJob) {
		in.logger().Warn("the cache is made anew", "error", oldErr)
	} else if oldErr != nil && !errors.Is(oldErr, fs.ErrNotExist) {
		return oldErr
	}
	if oldErr == nil && !source.Same(old.Source, c.source.String()) {
		return fmt.Errorf("%s is the cache of %s, not of %s: use another --cache, or remove it", c.dirs[0], old.Source, c.source)
	}
	if err := logfile.CheckDirs(c.dirs); err != nil {
		return err
	}
	if oldErr == nil {
		in.old = &old
		in.mend()
	}
	if err := in.list(ctx); err != nil {
		return err
	}
	if c.schedule, err = schedule.New(in.Job, c.manifest.Len(), machineMemory()); err != nil {
		return err
	}
	c.job = jobFile{Schema: 1, Source: c.source.String(), Exts: in.Exts, Flat: in.Flat, Group: in.Group, Labels: in.Labels, Job: in.Job, Budget: in.Budget, Memory: in.Memory,
		Layout: in.Layout, Share: in.Share, Shares: in.Shares, linkFacts: in.linkFacts()}
	if c.job.Counted, err = in.count(); err != nil {
		return err
	}
	if in.Layout == "" && in.old != nil {
		c.job.Layout = in.old.Layout
	}
	in.report.Layout, in.report.LayoutReason = c.chooseLayout(in.Layout)
	if err := in.measureChunks(); err != nil {
		return err
	}
	if err := in.space(ctx); err != nil {
		return err
	}
	if err := in.openLog(ctx); err != nil {
		return err
	}
	if err := writeJob(c.dirs[0], c.job); err != nil {
		return err
	}
	return in.record()
}

// mend repairs what a directory but the first may have lost and others know. What it can't repair is told when the store is opened.
func (in *ingest) mend() {
	mended, err := logfile.Mend(in.core.dirs)
	for _, dir := range mended {
		in.logger().Warn("a directory's FORMAT was damaged, and is written anew", "dir", dir)
	}
	if err != nil && !errors.Is(err, logfile.ErrDamaged) {
		in.logger().Warn("the directories can't be mended", "error", err)
	}
}

// openLog opens sums and store. Damage that the store can't be opened with costs what it held.
func (in *ingest) openLog(ctx context.Context) error {
	c := in.core
	if err := c.openSums(); err != nil {
		return err
	}
	err := c.openStore(in.IO, in.Memory)
	if in.fresh || !errors.Is(err, logfile.ErrDamaged) {
		return err
	}
	in.logger().Warn("the log is made anew", "error", err)
	if err := errors.Join(c.io.Close(), c.closeLengths(), c.sums.Close()); err != nil {
		return err
	}
	c.io, c.sums, c.store = nil, nil, nil
	in.fresh = true
	c.job.Threshold, c.job.Kept, c.job.KeptBytes = 0, 0, 0
	if err := in.create(ctx); err != nil {
		return err
	}
	return in.openLog(ctx)
}

// measureChunks finds the largest chunk of the first epoch; later ones are much the same.
func (in *ingest) measureChunks() error {
	c := in.core
	if !c.schedule.Replays() {
		return nil
	}
	order, err := c.schedule.Order(context.Background(), 0)
	if err != nil {
		return err
	}
	list, err := metaindex.NewList(order.Chunks, order.Ranks, c.manifest.Sizes(), nil)
	if err != nil {
		return err
	}
	c.job.Chunk = list.Largest()
	list.Free()
	return nil
}

// otherBudget: a cache of another budget is made anew.
func (in *ingest) otherBudget() bool { return in.Budget != 0 && in.Budget != in.old.Budget }

// adaptable reports whether the log can go on with a changed source. What a compressed one holds can be found only by the lengths
// of the manifest that it was made for.
func (in *ingest) adaptable() bool {
	return !in.otherBudget() && !in.old.packed() && in.keepsPacking(in.old.Packing)
}

// anew takes a listing as the manifest of a cache that holds nothing.
func (in *ingest) anew(listed string) error {
	in.fresh = true
	if err := in.clear(); err != nil {
		return err
	}
	return in.replaceManifest(listed)
}

func (in *ingest) replaceManifest(listed string) error {
	if err := os.Rename(listed, filepath.Join(in.core.dirs[0], manifestName)); err != nil {
		return err
	}
	return syncDir(in.core.dirs[0])
}

// space fits the cache that is there to what is asked for now, or makes one.
func (in *ingest) space(ctx context.Context) error {
	c := in.core
	if !in.fresh && (in.otherBudget() || !in.keepsPacking(in.old.Packing)) {
		in.fresh = true
	}
	if !in.fresh {
		c.job.Packing = in.old.Packing
		c.job.Budget, c.job.Threshold, c.job.Kept, c.job.KeptBytes = in.old.Budget, in.old.Threshold, in.old.Kept, in.old.KeptBytes
		older, err := c.olderManifests()
		if err != nil || len(older) == 0 {
			return err
		}
		if err = in.refit(); !errors.Is(err, errAnew) {
			return err
		}
		in.logger().Warn("the cache can't be adapted to the changed source", "reason", err)
		in.fresh = true
	}
	in.report.Anew = in.report.Changed
	return in.create(ctx)
}

func (in *ingest) logger() *slog.Logger { return in.IngestOptions.Logger }

// clear removes what an earlier listing made. job.json goes first: without it the directory is no cache that could be served. Directories go from
// the last to the first: as long as a later one has a FORMAT, the first shows that it is of the same cache.
func (in *ingest) clear() error {
	older, err := in.core.olderManifests()
	if err != nil {
		return err
	}
	paths := in.core.madeFirst()
	for _, d := range slices.Backward(in.core.dirs) {
		paths = append(paths, madeIn(d)...)
	}
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, path := range older {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// madeIn are the files that every directory of a cache has.
func madeIn(dir string) (paths []string) {
	for _, name := range []string{"FORMAT", "journal-0", "journal-1", "arena"} {
		paths = append(paths, filepath.Join(dir, name))
	}
	return paths
}

// madeFirst are those that only the first has, but for manifests.
func (c *core) madeFirst() (paths []string) {
	for _, name := range []string{jobName, sumsName, lengthsName, listingName} {
		paths = append(paths, filepath.Join(c.dirs[0], name))
	}
	return paths
}

// made are the files in a directory that clear removes, but for manifests.
func (c *core) made(dir string) []string {
	if dir == c.dirs[0] {
		return append(c.madeFirst(), madeIn(dir)...)
	}
	return madeIn(dir)
}

// create fixes block, budget and admission, and reserves the arena. What is there stays until it is known that the new one can be had.
func (in *ingest) create(ctx context.Context) error {
	c := in.core
	c.format = logfile.Format{Align: alignFor(c.manifest)}
	if err := in.choosePacking(ctx); err != nil {
		return err
	}
	f := c.facts()
	f.Memory = uint64(in.Memory)
	f.Block = uint64(in.Block)
	z, err := in.fit(&f)
	if err != nil {
		return err
	}
	if in.Memory == 0 {
		in.defaulted("memory", z.Memory, "the need by the formula")
	}
	c.format.Block = int(z.Block)
	c.format.Places = int(z.Arena / z.Block)
	if _, err := rand.Read(c.format.UUID[:]); err != nil {
		return err
	}
	room := z.Room
	if c.job.packed() {
		c.job.Room, room = z.Room, f.Plain(z.Room)
	}
	if bytes := in.admit(room); bytes == 0 && f.Kept > 0 {
		return fmt.Errorf("budget of %s leaves no room for samples: give --budget %dMiB or more", bytesText(z.Budget), (z.Budget+z.Slack+f.Largest)>>20+1)
	}
	if err := in.clear(); err != nil {
		return err
	}
	return logfile.Create(c.dirs, c.format)
}

// admit draws what the log keeps, and gives its padded bytes.
func (in *ingest) admit(room uint64) (bytes uint64) {
	c := in.core
	sizes := c.manifest.Sizes()
	c.job.Threshold, bytes = chunker.Admit(c.manifest.NameHashes(), sizes, c.format.Align, room)
	c.job.Kept, c.job.KeptBytes = 0, 0
	for i := range sizes {
		if c.keep(sample.Index(i)) {
			c.job.Kept++
			c.job.KeptBytes += uint64(sizes[i])
		}
	}
	return bytes
}

func (in *ingest) defaulted(name string, n uint64, from string) {
	in.report.Defaults = append(in.report.Defaults, Default{Name: name, Value: bytesText(n), From: from})
}
