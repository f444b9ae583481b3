package engine

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
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"lcache/chunker"
	"lcache/logfile"
	"lcache/metaindex"
	"lcache/sample"
	"lcache/source"
)

// syncEvery is how often what was written is made durable.
const syncEvery = 5 * time.Second

// Progress is what a long run tells of itself.
type Progress struct {
	Stage string `json:"stage"`
	Done  int64  `json:"done"`
	Total int64  `json:"total"` // 0: unknown
	Unit  string `json:"unit"`  // "samples" or "bytes"
}

// IngestOptions of Ingest.
type IngestOptions struct {
	Source         string
	Exts           []string
	Flat           bool
	Dirs           []string
	Job            Job
	Budget, Memory int64 // bytes; 0: the default
	NoPrefill      bool
	Jobs           int // reads at once; 0: 16
	Share, Shares  int // the Share-th of Shares parts of the source, from 0; 0, 0: all of it
	Relist         bool
	IO             IO
	Block          int // bytes; 0: chosen (tests)
	Logger         *slog.Logger
	Progress       func(Progress)
}

// IngestReport is what an ingest did and what it made.
type IngestReport struct {
	Source        string    `json:"source"`
	Dirs          []string  `json:"dirs"`
	Samples       int       `json:"samples"`
	Classes       int       `json:"classes"`
	Bytes         int64     `json:"bytes"`
	Fingerprint   string    `json:"fingerprint"`
	Changed       bool      `json:"changed"` // the source is not the one that was ingested before
	ReadBytes     int64     `json:"read_bytes"`
	ReadSamples   int64     `json:"read_samples"`
	ReadSeconds   float64   `json:"read_seconds"`
	Already       int64     `json:"already"` // samples that were there before
	Resorted      bool      `json:"resorted"`
	StoredSamples int       `json:"stored_samples"`
	StoredBytes   int64     `json:"stored_bytes"`
	BudgetBytes   int64     `json:"budget_bytes"`
	ArenaBytes    int64     `json:"arena_bytes"`
	SlackBytes    int64     `json:"slack_bytes"`
	MetadataBytes int64     `json:"metadata_bytes"`
	FreeAfter     int64     `json:"free_after"`
	MemoryBytes   int64     `json:"memory_bytes"`
	Segments      int       `json:"segments"`
	SegmentBytes  int64     `json:"segment_bytes"`
	BlockBytes    int64     `json:"block_bytes"`
	Layout        string    `json:"layout"`
	LayoutReason  string    `json:"layout_reason"`
	HitRatio      float64   `json:"hit_ratio"`
	Defaults      []Default `json:"defaults"`
}

// Ingest makes a cache of a source, or completes or adapts the one that is there: what is stored already is not read again.
func Ingest(ctx context.Context, o IngestOptions) (report *IngestReport, err error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	if o.Jobs <= 0 {
		o.Jobs = 16
	}
	if o.Shares == 0 {
		o.Shares = 1
	}
	if o.Share < 0 || o.Share >= o.Shares {
		return nil, &UsageError{fmt.Sprintf("--share %d/%d: give i/N with 0 ≤ i < N", o.Share, o.Shares)}
	}
	in := &ingest{IngestOptions: o, core: &core{logger: o.Logger}, report: &IngestReport{Layout: "log",
		LayoutReason: "the log is reordered every epoch: large reads in exact order"}}
	defer func() { err = errors.Join(err, in.close()) }()
	if err := in.prepare(ctx); err != nil {
		return nil, err
	}
	if err := in.fill(ctx); err != nil {
		return nil, err
	}
	in.finish()
	return in.report, nil
}

type ingest struct {
	IngestOptions
	*core
	report *IngestReport
	fresh  bool // the cache is made anew
	line   *chunker.Line
	target *logfile.Logfile
}

// prepare lists the source, decides the geometry and opens or makes the cache.
func (in *ingest) prepare(ctx context.Context) (err error) {
	c := in.core
	if c.dirs, err = cleanDirs(in.Dirs); err != nil {
		return err
	}
	if c.source, err = source.Open(in.Source, source.Options{Exts: in.Exts, Flat: in.Flat, Jobs: in.Jobs}); err != nil {
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
	if err := c.lock(); err != nil {
		return err
	}
	old, oldErr := readJob(c.dirs[0])
	if oldErr != nil && !errors.Is(oldErr, fs.ErrNotExist) {
		return oldErr
	}
	if oldErr == nil && old.Source != c.source.String() {
		return fmt.Errorf("%s is the cache of %s, not of %s: use another --cache, or remove it", c.dirs[0], old.Source, c.source)
	}
	if err := in.list(ctx, oldErr == nil); err != nil {
		return err
	}
	if c.schedule, err = newSchedule(in.Job, c.manifest.Len()); err != nil {
		return err
	}
	c.job = jobFile{Schema: 1, Source: c.source.String(), Exts: in.Exts, Flat: in.Flat, Job: in.Job, Budget: in.Budget, Memory: in.Memory,
		Share: in.Share, Shares: in.Shares}
	if err := in.measureChunks(); err != nil {
		return err
	}
	if !in.fresh {
		if in.Budget == 0 || in.Budget == old.Budget {
			c.job.Budget, c.job.Threshold, c.job.Kept, c.job.KeptBytes = old.Budget, old.Threshold, old.Kept, old.KeptBytes
		} else {
			in.fresh = true
		}
	}
	if in.fresh {
		if err := in.create(); err != nil {
			return err
		}
	}
	if c.sums, err = sample.OpenSums(filepath.Join(c.dirs[0], sumsName), c.manifest.Fingerprint(), c.manifest.Len()); err != nil {
		return err
	}
	if err := c.openStore(in.IO, in.Memory); err != nil {
		return err
	}
	return writeJob(c.dirs[0], c.job)
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
			names = append([]string{jobName, sumsName}, names...)
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
func (in *ingest) create() error {
	c := in.core
	if err := in.clear(); err != nil {
		return err
	}
	c.format = logfile.Format{Align: alignFor(c.manifest)}
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
	c.job.Threshold, bytes = chunker.Admit(c.manifest.NameHashes(), sizes, c.format.Align, z.Room)
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

// fill lays out the first epoch and reads what the log lacks, in the source's own order.
func (in *ingest) fill(ctx context.Context) error {
	order, err := in.firstOrder()
	if err != nil {
		return err
	}
	done, err := in.resort(ctx, order)
	if err != nil || done {
		return err
	}
	if in.NoPrefill {
		return nil
	}
	return in.read(ctx)
}

// firstOrder is what the first Logfile is laid out for.
func (in *ingest) firstOrder() (*epochOrder, error) {
	if in.core.schedule.replay == nil {
		return canonical(in.core.manifest.Len()), nil
	}
	return in.core.schedule.order(0)
}

// resort begins the first epoch's Logfile, or finds it, or a later epoch's of the same job. A log in another order is re-sorted by
// the server's mover, which does the same after a jump: then done is true unless samples are missing.
func (in *ingest) resort(ctx context.Context, order *epochOrder) (done bool, err error) {
	c := in.core
	logs := c.store.Logfiles()
	var held *logfile.Logfile
	for _, l := range logs {
		if l == nil || l.Empty() {
			continue
		}
		if held == nil || l.Generation() > held.Generation() {
			held = l
		}
	}
	if held != nil && !c.ofThisJob(held, order) {
		if err := in.sort(ctx, order); err != nil {
			return false, err
		}
		in.report.Resorted = true
		held = nil
		for _, l := range c.store.Logfiles() {
			if l != nil && l.Header().Key == order.key {
				held = l
			}
		}
	}
	if held != nil {
		in.target = held
		if held.Header().Key != order.key {
			// The job has run on: its log is in use as it is, the pass brings what is missing.
			in.report.Already = int64(in.stored())
			return true, nil
		}
		in.line, err = c.newLine(order, held)
		return false, err
	}
	for slot, l := range c.store.Logfiles() {
		if l != nil {
			if err := c.store.Drop(slot); err != nil {
				return false, err
			}
		}
	}
	if in.line, err = c.newLine(order, nil); err != nil {
		return false, err
	}
	epoch := uint32(0)
	in.target, err = c.begin(0, in.line, order, epoch)
	return false, err
}

// ofThisJob reports whether a Logfile is in the order of one of this job's epochs.
func (c *core) ofThisJob(l *logfile.Logfile, first *epochOrder) bool {
	h := l.Header()
	if h.Key == first.key {
		return true
	}
	if c.schedule.replay == nil || !c.schedule.exists(int(h.Epoch)) {
		return false
	}
	o, err := c.schedule.order(int(h.Epoch))
	return err == nil && o.key == h.Key
}

// read fills the target from the source.
func (in *ingest) read(ctx context.Context) error {
	c := in.core
	var todo []sample.Index
	var total int64
	for i := range c.manifest.Len() {
		index := sample.Index(i)
		if !c.keep(index) || i%in.Shares != in.Share {
			continue
		}
		if _, known := c.sums.Get(index); known && c.loc.Get(index) != 0 {
			in.report.Already++
			continue
		}
		todo = append(todo, index)
		total += int64(c.manifest.Size(index))
	}
	start := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next, done atomic.Int64
	var wg sync.WaitGroup
	for range in.Jobs {
		wg.Add(1)
		go func() {
			defer wg.Done()
			buf := []byte(nil)
			for ctx.Err() == nil {
				k := int(next.Add(1)) - 1
				if k >= len(todo) {
					return
				}
				size := int(c.manifest.Size(todo[k]))
				buf = slices.Grow(buf[:0], size)[:size]
				if err := in.store1(ctx, todo[k], buf); err != nil {
					cancel(err)
					return
				}
				in.Progress(Progress{Stage: "reading", Done: done.Add(int64(size)), Total: total, Unit: "bytes"})
			}
		}()
	}
	wg.Wait()
	in.report.ReadSamples, in.report.ReadBytes = int64(len(todo)), done.Load()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := in.target.WriteTails(ctx); err != nil {
		return err
	}
	if err := in.target.Seal(ctx); err != nil {
		return fmt.Errorf("make the log durable: %w", err)
	}
	if err := c.sums.Sync(); err != nil {
		return err
	}
	in.report.ReadSeconds = time.Since(start).Seconds()
	return nil
}

// store1 reads one sample and appends it where the first epoch wants it.
func (in *ingest) store1(ctx context.Context, index sample.Index, buf []byte) error {
	c := in.core
	entry, err := c.manifest.Entry(index)
	if err != nil {
		return err
	}
	if err := c.source.Read(ctx, entry, buf); err != nil {
		return err
	}
	sum := sample.Sum(buf)
	if old, known := c.sums.Get(index); known && old != sum {
		in.logger().Warn("content changed though size and modification time agree: the new content is taken", "name", entry.Name)
	}
	seg := in.line.Segment[index]
	off, err := in.target.Append(ctx, int(seg), index, buf)
	if errors.Is(err, logfile.ErrFull) {
		in.logger().Warn("no room in its segment: the sample will be read from the source", "name", entry.Name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("store %q: %w", entry.Name, err)
	}
	c.sums.Set(index, sum)
	c.loc.Set(index, c.loc.At(in.target.Slot(), int(seg), off))
	return nil
}

// stored counts the samples that are in the log.
func (in *ingest) stored() (n int) {
	for i := range in.core.manifest.Len() {
		if in.core.loc.Get(sample.Index(i)) != 0 {
			n++
		}
	}
	return n
}

func (in *ingest) finish() {
	c, r := in.core, in.report
	r.Source, r.Dirs = c.source.String(), c.dirs
	r.Samples, r.Classes, r.Bytes = c.manifest.Len(), len(c.manifest.Classes()), int64(c.manifest.Bytes())
	r.Fingerprint = c.manifest.Fingerprint().String()
	for i := range c.manifest.Len() {
		if c.loc.Get(sample.Index(i)) != 0 {
			r.StoredSamples++
			r.StoredBytes += int64(c.manifest.Size(sample.Index(i)))
		}
	}
	z := c.sizing
	r.BudgetBytes, r.ArenaBytes, r.SlackBytes = int64(z.Budget), int64(z.Arena), int64(z.Slack)
	r.MetadataBytes = int64(c.facts().Metadata)
	r.MemoryBytes, r.SegmentBytes, r.BlockBytes = int64(z.Memory), int64(z.Segment), int64(z.Block)
	if in.target != nil {
		r.Segments = int(in.target.Header().Segments)
	}
	if r.Bytes > 0 {
		r.HitRatio = float64(c.job.KeptBytes) / float64(r.Bytes)
	}
	if free, err := freeSpace(c.dirs[0]); err == nil {
		r.FreeAfter = int64(free)
	}
}

// freeForCache is what a cache may take by default: free space less the larger of 10 GB and 5 % of each file system.
func freeForCache(dirs []string) (uint64, error) {
	least := ^uint64(0)
	for _, d := range dirs {
		var st unix.Statfs_t
		if err := unix.Statfs(d, &st); err != nil {
			return 0, fmt.Errorf("free space of %s: %w", d, err)
		}
		free, total := st.Bavail*uint64(st.Bsize), st.Blocks*uint64(st.Bsize)
		reserve := max(10<<30, total/20)
		if free <= reserve {
			return 0, fmt.Errorf("%s has %s free, and %s are to stay free: make room, or give --budget", d, bytesText(free), bytesText(reserve))
		}
		least = min(least, free-reserve)
	}
	return least * uint64(len(dirs)), nil
}

func freeSpace(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return st.Bavail * uint64(st.Bsize), nil
}

// refuseFileSystem keeps caches off file systems where they make no sense. LCACHE_TMPFS=1 allows memory, for tests.
func refuseFileSystem(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("look at %s: %w", dir, err)
	}
	const lustre = 0x0bd00bd0
	switch kind := uint32(st.Type); kind {
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CEPH_SUPER_MAGIC, lustre:
		names := map[uint32]string{unix.NFS_SUPER_MAGIC: "NFS", unix.CEPH_SUPER_MAGIC: "Ceph", lustre: "Lustre"}
		return fmt.Errorf("%s is on a network file system (%s): a cache belongs on a local SSD; give another --cache", dir, cmp.Or(names[kind], "SMB"))
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC:
		if os.Getenv("LCACHE_TMPFS") != "1" {
			return fmt.Errorf("%s is in memory (tmpfs), which the cache would take from training: a cache belongs on a local SSD; give another --cache", dir)
		}
	}
	return nil
}
