package ingest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/dustin/go-humanize"

	"lcache/internal/disk/durable"
	"lcache/internal/errcode"
	"lcache/internal/serve/schedule"
	"lcache/internal/store/cache"
	"lcache/internal/trust"
	"lcache/internal/usage"
	"lcache/logfile"
	"lcache/metaindex"
	"lcache/sample"
	"lcache/source"
)

// prepare lists the source, decides the geometry, and opens or makes the cache.
func (in *run) prepare(ctx context.Context) error {
	c := in.cache
	if err := in.takeDirs(); err != nil {
		return err
	}
	if err := in.find(); err != nil {
		return err
	}
	disk, end := in.lookAtDisk(ctx)
	defer end()
	if err := in.list(ctx); err != nil {
		return err
	}
	if err := in.hint(); err != nil {
		return err
	}
	if n := in.streams(); n > 0 && in.o.Lister != nil {
		return usage.Errorf("%s: its compressed shards have no random access, so machines cannot divide them: decompress them (gunzip or zstd -d), or leave --cluster out", in.o.Source)
	}
	if n := in.streams(); n > 0 && in.o.NoPrefill {
		in.logger().Info("shards that can only be read front to back are read now", "shards", n)
		in.o.NoPrefill = false
	}
	if err := in.describe(); err != nil {
		return err
	}
	known := disk(c.Manifest.Bytes()) // before the check of free space, because a measurement takes some
	if err := in.space(ctx); err != nil {
		return err
	}
	if err := in.checkStreams(); err != nil {
		return err
	}
	in.report.Layout, in.report.LayoutReason = c.ChooseLayout(in.o.Layout, known)
	if err := in.openLog(ctx); err != nil {
		return err
	}
	if err := in.compareFiles(ctx); err != nil {
		return err
	}
	if err := cache.WriteRecord(c.Dirs[0], c.Record); err != nil {
		return err
	}
	return in.record()
}

// takeDirs opens the source, and makes and locks the cache's directories.
func (in *run) takeDirs() (err error) {
	c := in.cache
	if c.Dirs, err = cache.CleanDirs(in.o.Dirs); err != nil {
		return ownDirectory(err)
	}
	if err = c.OpenSource(in.o.Source, source.Options{Exts: in.o.Exts, Flat: in.o.Flat, Group: in.o.Group, Part: in.o.Part, Records: in.o.Records, Labels: in.o.Labels, Stream: in.o.Stream, AllowEmpty: in.o.AllowEmpty, Jobs: in.o.Jobs, NoFollowLinks: !in.follows(), Remote: in.o.Remote, Excluded: c.Dirs,
		Kept: filepath.Join(c.Dirs[0], cache.ShardsName), Logger: in.o.Logger}); err != nil {
		return err
	}
	for _, d := range c.Dirs {
		if err := refuseInside(d, c.Source.String()); err != nil {
			return err
		}
	}
	for tries := 0; ; tries++ {
		err := in.makeDirs()
		if err == nil {
			err = c.Lock(false)
			in.locked = err == nil
		}
		if tries == 3 || !errors.Is(err, fs.ErrNotExist) { // another process may remove a directory without a cache
			return in.busy(err)
		}
	}
}

// makeDirs makes the cache's directories.
func (in *run) makeDirs() error {
	for _, d := range in.cache.Dirs {
		in.was.note(d)
		if err := os.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("make the cache directory: %w", err)
		}
		if err := trust.Dir(d); err != nil { // another user may have created it first
			return fmt.Errorf("make the cache directory: %w", err)
		}
		if err := refuseFileSystem(d); err != nil {
			return err
		}
	}
	return nil
}

// find reads the record of the existing cache into in.old, which stays nil if no cache exists yet.
func (in *run) find() error {
	c := in.cache
	old, err := cache.ReadRecord(c.Dirs[0])
	switch {
	case errors.Is(err, cache.ErrDamaged):
		in.logger().Warn("a new cache is made", "error", err)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case err == nil && !source.SameAs(c.Source.String(), old.Source, old.Identity):
		return errcode.Errorf(errcode.OtherCache, "%s is the cache of %s, not of %s: use another --cache, or remove it", c.Dirs[0], old.Source, c.Source)
	case err == nil && !in.o.Remote.S3.IsAt(old.Remote.S3.Endpoint):
		return errcode.Errorf(errcode.OtherCache, "%s is the cache of %s at %s, not at %s: use another --cache, or remove it", c.Dirs[0], old.Source, cmp.Or(old.Remote.S3.Endpoint, "AWS"), cmp.Or(in.o.Remote.S3.Endpoint, "AWS"))
	}
	if err := logfile.CheckDirs(c.Dirs); err != nil {
		return err
	}
	if err == nil {
		in.old = &old
		in.compareFilter()
		in.mend()
	}
	return in.takeShards()
}

// describe makes the job's schedule, and the record of the cache.
func (in *run) describe() (err error) {
	c := in.cache
	if c.Schedule, err = schedule.New(in.o.Job, c.Manifest.Len()); err != nil {
		return err
	}
	c.Record = cache.Record{Schema: 1, Source: c.Source.String(), Identity: source.IdentityOfList(c.Source), Exts: in.o.Exts, Flat: in.o.Flat, AllowEmpty: in.o.AllowEmpty, Group: in.o.Group, FirstPart: in.o.Part, RecordFlags: in.o.Records, Labels: in.o.Labels, Stream: in.o.Stream, NoRanges: source.GivesNoRanges(c.Lister), Job: in.o.Job, Budget: in.o.Budget, Memory: in.o.Memory,
		Layout: in.o.Layout, Share: in.o.Share, Shares: in.o.Shares, LinkFacts: in.linkFacts(), LeftOut: in.leftOut, Remote: in.o.Remote, Listed: in.listedAt}
	if c.Record.Counted, err = in.count(); err != nil {
		return err
	}
	if in.o.Layout == "" && in.old != nil {
		c.Record.Layout = in.old.Layout
	}
	return in.measureChunks()
}

// mend repairs the FORMAT of later directories from that of the others. Opening the store reports damage that mend can't repair.
func (in *run) mend() {
	mended, err := logfile.Mend(in.cache.Dirs)
	for _, dir := range mended {
		in.logger().Warn("a directory's FORMAT was damaged, and is written again", "dir", dir)
	}
	if err != nil && !errors.Is(err, logfile.ErrDamaged) {
		in.logger().Warn("the directories can't be mended", "error", err)
	}
}

// openLog opens checksums and store. If the store is too damaged to open, the log is made again, empty.
func (in *run) openLog(ctx context.Context) error {
	c := in.cache
	if err := c.OpenSums(); err != nil {
		return err
	}
	err := c.OpenStore(in.o.IO, in.o.Memory)
	if in.fresh || !errors.Is(err, logfile.ErrDamaged) {
		return err
	}
	in.logger().Warn("the log is made again", "error", err)
	if err := errors.Join(c.IO.Close(), c.CloseLengths(), c.Sums.Close()); err != nil {
		return err
	}
	c.IO, c.Sums, c.Store = nil, nil, nil
	in.fresh = true
	if err := in.create(ctx); err != nil {
		return err
	}
	return in.openLog(ctx)
}

// measureChunks measures the largest chunk of the first epoch. Chunks of later epochs are about as large.
func (in *run) measureChunks() error {
	c := in.cache
	if !c.Schedule.Replays() {
		return nil
	}
	order, err := c.Schedule.Order(context.Background(), 0)
	if err != nil {
		return err
	}
	c.Record.Chunk = 0
	for _, rank := range order.Ranks {
		chunk := func(batch int) ([]sample.Index, bool) { return order.Chunk(rank, batch, nil) }
		c.Record.Chunk = max(c.Record.Chunk, metaindex.NewList(order.Batches(rank), chunk, c.Manifest.Sizes(), nil).Largest())
	}
	return nil
}

// lookAtCache collects the facts for decideCache, without the manifest's state.
func (in *run) lookAtCache() found {
	if in.old == nil {
		return found{}
	}
	return found{record: true, otherBudget: in.o.Budget != 0 && in.o.Budget != in.old.Budget, otherPacking: !in.keepsPacking(in.old.Packing),
		packed: in.old.IsPacked()}
}

// remake empties the cache, and takes a listing as its manifest.
func (in *run) remake(listed string) error {
	in.fresh = true
	if err := in.clear(); err != nil {
		return err
	}
	return in.replaceManifest(listed)
}

// replaceManifest takes a listing as the manifest, durably.
func (in *run) replaceManifest(listed string) error {
	return durable.Rename(listed, filepath.Join(in.cache.Dirs[0], cache.ManifestName))
}

// space fits an existing cache to the options of this ingest, or makes a cache.
func (in *run) space(ctx context.Context) error {
	c := in.cache
	f := in.lookAtCache()
	f.manifest = manifestSame // list has adapted the cache to it
	if what, _ := decideCache(f); what == remake {
		in.fresh = true
	}
	if !in.fresh {
		c.Record.Packing = in.old.Packing
		c.Record.Budget, c.Record.Threshold, c.Record.Kept, c.Record.KeptBytes = in.old.Budget, in.old.Threshold, in.old.Kept, in.old.KeptBytes
		c.Record.Most, c.Record.PackedManifest = in.old.Most, in.old.PackedManifest
		older, err := c.OlderManifests()
		if err != nil || len(older) == 0 {
			return err
		}
		if err = in.refit(); !errors.Is(err, errRemake) {
			return err
		}
		in.logger().Warn("the cache can't be adapted to the changed source", "reason", err)
		in.fresh = true
	}
	in.report.Anew = in.report.Changed
	return in.create(ctx)
}

func (in *run) logger() *slog.Logger { return in.o.Logger }

// clear removes all files of the cache, first job.json: a directory without it can't be served. It goes from the last directory to the first:
// while a later directory has a FORMAT, the first one shows that both belong to the same cache.
func (in *run) clear() error {
	older, err := in.cache.OlderManifests()
	if err != nil {
		return err
	}
	paths := in.cache.MadeFirst()
	for _, d := range slices.Backward(in.cache.Dirs) {
		paths = append(paths, cache.MadeIn(d)...)
	}
	// Durably, because a file system need not keep the order of removals over a power cut.
	if err := durable.Trace(nil).Remove(paths[0]); err != nil {
		return err
	}
	for _, path := range paths[1:] {
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

// create fixes block, budget and admission, and reserves the arena. It removes an existing cache only after it is known that the new one fits.
func (in *run) create(ctx context.Context) error {
	c := in.cache
	c.Format = logfile.Format{Align: cache.AlignFor(c.Manifest)}
	if err := in.choosePacking(ctx); err != nil {
		return err
	}
	c.Record.Threshold, c.Record.Kept, c.Record.KeptBytes = 0, 0, 0
	chosen, err := in.chooseForm()
	if err != nil {
		return err
	}
	f, z := chosen.facts, chosen.sizing
	if in.o.Memory == 0 {
		in.defaulted("memory", z.Memory, "computed from the dataset and the job")
	}
	c.Format.Block = int(z.Block)
	c.Format.Places = int(z.Arena / z.Block)
	if _, err := rand.Read(c.Format.UUID[:]); err != nil {
		return err
	}
	room := z.Room
	if c.Record.IsPacked() {
		c.Record.Room, room = z.Room, f.Plain(z.Room)
	}
	if bytes := c.Fit(room); bytes == 0 && f.Kept > 0 {
		return errcode.Errorf(errcode.BudgetTooSmall, "budget of %s leaves no room for samples: give --budget %dMiB or more", humanize.Bytes(z.Budget), (z.Budget+z.Slack+f.Largest)>>20+1)
	}
	if err := in.checkStreams(); err != nil {
		return err
	}
	if err := in.clear(); err != nil {
		return err
	}
	if err := c.Manifest.Rewrite(filepath.Join(c.Dirs[0], cache.ManifestName), chosen.packed); err != nil { // before the arena exists: both forms exist for a moment
		return err
	}
	c.PlanManifest(0)
	return logfile.Create(c.Dirs, c.Format)
}

// defaulted records a default in the report.
func (in *run) defaulted(name string, n uint64, from string) {
	in.report.Defaults = append(in.report.Defaults, cache.Default{Name: name, Value: humanize.Bytes(n), From: from})
}
