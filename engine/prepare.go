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

	"lcache/chunker"
	"lcache/logfile"
	"lcache/metaindex"
	"lcache/sample"
	"lcache/source"
)

// prepare lists the source, decides the geometry and opens or makes the cache.
func (in *ingest) prepare(ctx context.Context) (err error) {
	c := in.core
	if c.dirs, err = cleanDirs(in.Dirs); err != nil {
		return err
	}
	if err = c.openSource(in.Source, source.Options{Exts: in.Exts, Flat: in.Flat, Labels: in.Labels, Jobs: in.Jobs}); err != nil {
		return err
	}
	for _, d := range c.dirs {
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
	if oldErr == nil && old.Source != c.source.String() {
		return fmt.Errorf("%s is the cache of %s, not of %s: use another --cache, or remove it", c.dirs[0], old.Source, c.source)
	}
	if oldErr == nil {
		in.old = &old
	}
	if err := in.list(ctx, oldErr == nil); err != nil {
		return err
	}
	if c.schedule, err = newSchedule(in.Job, c.manifest.Len()); err != nil {
		return err
	}
	c.job = jobFile{Schema: 1, Source: c.source.String(), Exts: in.Exts, Flat: in.Flat, Labels: in.Labels, Job: in.Job, Budget: in.Budget, Memory: in.Memory,
		Share: in.Share, Shares: in.Shares}
	if err := in.measureChunks(); err != nil {
		return err
	}
	if !in.fresh {
		if (in.Budget == 0 || in.Budget == old.Budget) && in.keepsPacking(old.Packing) {
			c.job.Packing = old.Packing
			c.job.Budget, c.job.Threshold, c.job.Kept, c.job.KeptBytes = old.Budget, old.Threshold, old.Kept, old.KeptBytes
		} else {
			in.fresh = true
		}
	}
	if in.fresh {
		if err := in.create(ctx); err != nil {
			return err
		}
	}
	if err := in.openLog(ctx); err != nil {
		return err
	}
	return writeJob(c.dirs[0], c.job)
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
	if c.schedule.replay == nil {
		return nil
	}
	order, err := c.schedule.order(0)
	if err != nil {
		return err
	}
	list, err := metaindex.NewList(order.Chunks, order.ranks, c.manifest.Sizes(), nil)
	if err != nil {
		return err
	}
	c.job.Chunk = list.Largest()
	list.Free()
	return nil
}

// list makes the manifest. The one that is there stays if the source is the same.
func (in *ingest) list(ctx context.Context, resume bool) error {
	c := in.core
	in.Progress(Progress{Stage: "listing", Unit: "samples"})
	classes, entries, err := c.source.List(ctx, func(n int) { in.Progress(Progress{Stage: "listing", Done: int64(n), Unit: "samples"}) })
	if err != nil {
		return err
	}
	path := filepath.Join(c.dirs[0], manifestName)
	tmp := path + ".listed"
	fp, err := sample.WriteManifest(tmp, classes, entries)
	if err != nil {
		return err
	}
	if resume {
		m, err := sample.OpenManifest(path)
		if err == nil && m.Fingerprint() == fp {
			c.manifest = m
			return os.Remove(tmp)
		}
		if err == nil {
			m.Close()
			in.report.Changed = true
		}
		in.logger().Info("the source is not the one that was ingested before: the log is made anew", "source", c.source.String())
	}
	in.fresh = true
	if err := in.clear(); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	if err := syncDir(c.dirs[0]); err != nil {
		return err
	}
	c.manifest, err = sample.OpenManifest(path)
	return err
}

func (in *ingest) logger() *slog.Logger { return in.IngestOptions.Logger }

// clear removes what an earlier listing made. job.json goes first: without it the directory is no cache that could be served.
func (in *ingest) clear() error {
	for i, d := range in.core.dirs {
		names := []string{"FORMAT", "journal-0", "journal-1", "arena"}
		if i == 0 {
			names = append([]string{jobName, sumsName, lengthsName}, names...)
		}
		for _, name := range names {
			if err := os.Remove(filepath.Join(d, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// create fixes block, budget and admission, and reserves the arena.
func (in *ingest) create(ctx context.Context) error {
	c := in.core
	if err := in.clear(); err != nil {
		return err
	}
	c.format = logfile.Format{Align: alignFor(c.manifest)}
	if err := in.choosePacking(ctx); err != nil {
		return err
	}
	f := c.facts()
	f.Memory = uint64(in.Memory)
	f.Block = uint64(in.Block)
	given := f.Budget > 0
	if !given {
		most, err := freeForCache(c.dirs)
		if err != nil {
			return err
		}
		if z, err := chunker.Size(f); err == nil && z.Budget > most {
			f.Budget = most
			c.job.Budget = int64(most)
			in.defaulted("budget", f.Budget, "free space less a reserve: the dataset needs "+bytesText(z.Budget))
		}
	}
	z, err := chunker.Size(f)
	if err != nil {
		return err
	}
	if !given && f.Budget == 0 {
		in.defaulted("budget", z.Budget, "what the dataset needs")
	}
	if in.Memory == 0 {
		in.defaulted("memory", z.Memory, "the need by the formula")
	}
	c.format.Block = int(z.Block)
	c.format.Places = int(z.Arena / z.Block)
	if _, err := rand.Read(c.format.UUID[:]); err != nil {
		return err
	}
	sizes := c.manifest.Sizes()
	var bytes uint64
	c.job.Threshold, bytes = chunker.Admit(c.manifest.NameHashes(), sizes, c.format.Align, f.Plain(z.Room))
	if c.job.packed() {
		c.job.Room = z.Room
	}
	for i := range sizes {
		if c.keep(sample.Index(i)) {
			c.job.Kept++
			c.job.KeptBytes += uint64(sizes[i])
		}
	}
	if bytes == 0 && f.Kept > 0 {
		return fmt.Errorf("budget of %s leaves no room for samples: give --budget %dMiB or more", bytesText(z.Budget), (z.Budget+z.Slack+f.Largest)>>20+1)
	}
	if err := logfile.Create(c.dirs, c.format); err != nil {
		return err
	}
	return nil
}

func (in *ingest) defaulted(name string, n uint64, from string) {
	in.report.Defaults = append(in.report.Defaults, Default{Name: name, Value: bytesText(n), From: from})
}
