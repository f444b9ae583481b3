// Package cache is an opened cache: the contents of its directories, and the size of each part. Code that serves, makes or checks a cache
// starts here.
//
// A [Cache] has the directories and their locks, the [Record] of its job (job.json), the manifest, the checksums, the compressed lengths
// (if it compresses), the store of both Logfiles, the location of every sample, the schedule of the job, and the sizes that follow from
// these. [Open] opens them in order, and Close closes them in reverse order. [Verify] reads and checks every sample.
//
// The package neither moves samples between Logfiles nor delivers them: see resort and engine. A Cache's fields are set while it is opened
// and do not change later. Its methods may then be called concurrently.
package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"lcache/chunker"
	"lcache/internal/compress"
	"lcache/internal/disk/blockio"
	"lcache/internal/errcode"
	"lcache/internal/serve/schedule"
	"lcache/internal/store/cachedir"
	"lcache/logfile"
	"lcache/metaindex"
	"lcache/sample"
	"lcache/source"
)

// A Cache is an opened cache. Ingest opens it step by step, because it makes the parts first.
type Cache struct {
	Dirs      []string // absolute; the first has everything except the arenas of the others
	Record    Record
	Format    logfile.Format
	Manifest  *sample.Manifest
	Sums      *sample.Sums
	Inodes    *sample.Inodes  // nil: unknown
	Lengths   *sample.Lengths // nil without compression
	Form      *compress.Form  // nil without compression
	Source    *source.Retrying
	Lister    source.Source // the same source, without retries
	IO        *blockio.IO
	Store     *logfile.Store
	Locations *metaindex.Locations
	Schedule  *schedule.Schedule
	Sizing    chunker.Sizing
	Logger    *slog.Logger

	Layout, LayoutReason string // how it is served: log or static, and why

	Shared    bool                                      // other machines serve the same dataset, and each keeps a part of it
	Elsewhere func(*sample.Manifest, sample.Index) bool // reports whether another machine keeps a sample; nil: none does

	learning     learning
	suspected    sync.Once // a changed file was found, and the record of the listing was removed
	disk         Disk
	planned      uint64 // length of the manifest's file while its form is being chosen; 0: its current length
	locks        []*logfile.LockFile
	recovered    [3]atomic.Bool                            // by Logfile, packages last: an earlier process began this Logfile
	closeTimeout time.Duration                             // how long Close waits for a hung device; 0: the default
	chosen       *Chosen                                   // the last noted layout; one caller at a time
	remote       source.Remote                             // the settings for reading the source
	readOnly     bool                                      // no file is changed, except the lock files
	askSpace     func(dir string, fs *unix.Statfs_t) error // replaces unix.Statfs
	asideErrors  int                                       // errors within a minute that quarantine a device; 0: the default
}

// The files that only the first directory of a cache has.
const (
	ManifestName = "manifest"
	SumsName     = "sums"
	LengthsName  = "stored"
	ListingName  = "listing"
	InodesName   = "inodes"
	ShardsName   = "shards"
)

// Options of Open.
type Options struct {
	Dirs   []string
	IO     IO
	Memory int64         // bytes; 0: the limit given to ingest
	Layout string        // as requested now; "" or "auto": the layout given to ingest, or chosen by the job and the disk
	Disk   Disk          // facts about the devices
	Remote source.Remote // for a source over a network: settings given now override the stored ones
	Shared bool          // other machines serve the same dataset, and each keeps a part of it
	Logger *slog.Logger
}

// Open opens a cache that ingest made. After an error nothing is open.
func Open(o Options) (*Cache, error) {
	c := &Cache{Logger: o.Logger, Elsewhere: o.IO.Elsewhere, Shared: o.Shared}
	if err := c.open(o); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Cache) open(o Options) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if c.Dirs, err = CleanDirs(o.Dirs); err != nil {
		return err
	}
	if _, err = os.Stat(filepath.Join(c.Dirs[0], RecordName)); errors.Is(err, fs.ErrNotExist) {
		if len(c.Dirs) > 1 {
			return errcode.Errorf(errcode.CacheUnfinished, "%s, the first directory of the cache, is lost or its ingest was not finished: it holds the cache's manifest and journals, so the other directories are useless without it; remove them with lcache rm, and run lcache ingest --cache %s --source …",
				c.Dirs[0], strings.Join(c.Dirs, ","))
		}
		if within := cachedir.Within(c.Dirs[0]); within != "" {
			return errcode.Errorf(errcode.NotACache, "%s is not a cache, it holds caches: give one of %s", c.Dirs[0], within)
		}
		return errcode.Errorf(errcode.NotACache, "%s is not a cache, or its ingest was not finished: run lcache ingest --cache %s --source …", c.Dirs[0], c.Dirs[0])
	}
	if err = c.Lock(true); err != nil {
		return err
	}
	if c.Record, err = ReadRecord(c.Dirs[0]); err != nil {
		return err
	}
	if c.remote, err = o.Remote.At(c.Record.Source, c.Record.Remote); err != nil {
		return err
	}
	if err = c.openData(); err != nil {
		return err
	}
	if c.Schedule, err = schedule.New(c.Record.Job, c.Manifest.Len()); err != nil {
		return err
	}
	c.disk = o.Disk
	c.Layout, c.LayoutReason = c.ChooseLayout(o.Layout, o.Disk)
	return c.OpenStore(o.IO, cmp.Or(o.Memory, c.Record.Memory))
}

// openData opens manifest, checksums and source.
func (c *Cache) openData() (err error) {
	c.Manifest, err = sample.OpenManifest(filepath.Join(c.Dirs[0], ManifestName))
	if errors.Is(err, sample.ErrCorrupt) || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: run lcache ingest again", err)
	}
	if err != nil {
		return err
	}
	if err = c.OpenSums(); err != nil {
		return err
	}
	if err = c.OpenSource(c.Record.Source, c.sourceOptions()); err != nil {
		return err
	}
	c.OpenInodes(false)
	return nil
}

// OpenSums opens the samples' checksums. Checksums of a replaced manifest are kept for unchanged samples. Damaged ones are dropped: a
// sample without a checksum is read from the source, and its checksum is learnt again.
func (c *Cache) OpenSums() (err error) {
	path := filepath.Join(c.Dirs[0], SumsName)
	if c.readOnly {
		return c.readSums(path)
	}
	c.Sums, err = sample.OpenSums(path, c.Manifest.Fingerprint(), c.Manifest.Len())
	if errors.Is(err, sample.ErrOtherManifest) {
		if carried, carryErr := c.carrySums(path); carried || carryErr != nil {
			return carryErr
		}
	}
	if !errors.Is(err, sample.ErrCorrupt) && !errors.Is(err, sample.ErrOtherManifest) {
		return err
	}
	c.Logger.Warn("the checksums are damaged or of another source: every sample is read from the source once more", "error", err)
	if err := os.Remove(path); err != nil {
		return err
	}
	c.Sums, err = sample.OpenSums(path, c.Manifest.Fingerprint(), c.Manifest.Len())
	return err
}

// OpenStore recovers the Logfiles and fills Locations from them.
func (c *Cache) OpenStore(o IO, memory int64) (err error) {
	c.closeTimeout, c.askSpace = o.CloseTimeout, o.Statfs
	if c.IO, err = o.open(c); err != nil {
		return err
	}
	sizes, err := c.openLengths()
	if err != nil {
		return err
	}
	c.Store, err = logfile.Open(c.Dirs, logfile.Options{IO: c.IO, Logger: c.Logger, Sizes: sizes,
		Fingerprint: c.Manifest.Fingerprint(), Older: c.older, Lost: c.lost, SyncEvery: syncEvery, SyncSizes: c.syncLengths, Deadline: o.Deadline, ProbeAfter: o.ProbeAfter, CloseTimeout: o.CloseTimeout, ReadOnly: c.readOnly, AsideErrors: c.asideErrors, Trace: o.Trace})
	if err != nil {
		return err
	}
	c.Format = c.Store.Format()
	if c.Locations, err = metaindex.NewLocations(c.Manifest.Len(), c.Format.Align); err != nil {
		return err
	}
	c.countBorders()
	if c.Shared {
		if err = c.beginArrivals(); err != nil {
			return err
		}
	}
	if c.Sizing, err = c.Size(uint64(memory)); err != nil {
		return err
	}
	if c.Lengths != nil {
		c.Form = compress.New(c.Manifest.Sizes(), c.Lengths, c.Format.Align, c.Record.Room, c.MostPacked())
	}
	c.locate()
	return nil
}

// locate sets every sample's location from the recovered logs. A sample in both Logfiles gets its location in the newer one, which is being
// filled. A sample that is also in a package gets the location that was written last, because after a kill the other copy may be in a
// block that was freed and overwritten.
func (c *Cache) locate() {
	logs := c.Store.ByAge()
	if p := c.Store.Packages(); p != nil {
		logs = append(logs, p.Log())
	}
	for _, l := range logs {
		num := l.Num()
		c.recovered[num].Store(true)
		for seg := range int(l.Header().Segments) {
			l.Arrivals(seg, func(_ int, index sample.Index, off uint64) bool {
				if num != logfile.PackagesNum || c.written(index) < l.Written(seg, off) {
					c.Locations.Set(index, c.Locations.At(num, seg, off))
				}
				return true
			})
		}
	}
	c.Store.ForgetWritten()
}

// written returns the generation of the block with a sample's location so far: see Logfile.Written.
func (c *Cache) written(index sample.Index) uint64 {
	num, seg, off, ok := c.Locations.Split(c.Locations.Get(index))
	if !ok {
		return 0
	}
	return c.Store.Log(num).Written(seg, off)
}

// lost turns samples into misses because their block could not be written or read back.
func (c *Cache) lost(l *logfile.Logfile, seg int, indices []sample.Index, offsets []uint64) {
	for i, index := range indices {
		c.Locations.Clear(index, c.Locations.At(l.Num(), seg, offsets[i]))
	}
}

// Logfile returns Logfile A (0) or B (1), or the log of packages, or nil.
func (c *Cache) Logfile(num int) *logfile.Logfile { return c.Store.Log(num) }

// WasRecovered reports whether an earlier process began a Logfile.
func (c *Cache) WasRecovered(num int) bool { return c.recovered[num].Load() }

// closeIO closes the I/O engine, and stops waiting for a hung device. The memory of transfers in flight stays mapped until the process
// ends, because the device may still write to it.
func (c *Cache) closeIO() error {
	closed := make(chan error, 1)
	go func() { closed <- c.IO.Close() }()
	wait := time.NewTimer(cmp.Or(c.closeTimeout, 10*time.Second))
	defer wait.Stop()
	select {
	case err := <-closed:
		return err
	case <-wait.C:
		return errcode.Errorf(errcode.Hung, "a device of %s does not answer: transfers are left in flight", strings.Join(c.Dirs, ","))
	}
}

// Close closes everything in reverse order of opening. If a file of the cache hangs, the memory of the log stays mapped and the directories
// stay locked until the process ends.
func (c *Cache) Close() (err error) {
	if c.Schedule != nil {
		c.Schedule.Stop()
	}
	err = c.CloseStore()
	if late := new(logfile.HungError); errors.As(err, &late) {
		return err
	}
	if c.Source != nil {
		err = errors.Join(err, c.Source.Close())
	}
	if c.Manifest != nil {
		err = errors.Join(err, c.Manifest.Close())
	}
	return errors.Join(err, c.unlock())
}

// CloseStore closes what OpenSums and OpenStore opened.
func (c *Cache) CloseStore() (err error) {
	if c.Store != nil {
		err = c.Store.Close()
	}
	if c.IO != nil {
		err = errors.Join(err, c.closeIO())
	}
	if late := new(logfile.HungError); errors.As(err, &late) {
		return err
	}
	if c.Locations != nil {
		c.Locations.Free()
	}
	if c.Lengths == nil && c.Sums == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(c.closeTimeout, 30*time.Second))
	defer cancel()
	lengths, sums, inodes := c.CloseLengths, c.closeSums, c.CloseInodes
	return errors.Join(err, logfile.Within(ctx, "sync of learnt data in "+c.Dirs[0], func() error { return errors.Join(lengths(), sums(), inodes()) }))
}

// closeSums makes the checksums durable and closes them.
func (c *Cache) closeSums() error {
	if c.Sums == nil {
		return nil
	}
	var err error
	if c.IO != nil {
		err = c.IO.Plain(filepath.Join(c.Dirs[0], SumsName), "sync")
	}
	return errors.Join(err, c.Sums.Close())
}

// syncEvery is the time between two syncs of the log.
const syncEvery = 5 * time.Second
