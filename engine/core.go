package engine

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
	"sync/atomic"
	"time"

	"lcache/blockio"
	"lcache/caches"
	"lcache/chunker"
	"lcache/logfile"
	"lcache/metaindex"
	"lcache/sample"
	"lcache/schedule"
	"lcache/source"
	"lcache/stored"
	"lcache/usage"
)

// core is an open cache directory: what serving, ingesting and verifying have in common.
type core struct {
	dirs      []string
	locks     []*logfile.LockFile
	job       jobFile
	format    logfile.Format
	manifest  *sample.Manifest
	sums      *sample.Sums
	lengths   *sample.Lengths // nil without compression
	form      *stored.Form    // nil without compression
	source    *source.Retrying
	lister    source.Source // the same, without trying again
	io        *blockio.IO
	store     *logfile.Store
	loc       *metaindex.Locations
	schedule  *schedule.Schedule
	sizing    chunker.Sizing
	logger    *slog.Logger
	recovered [2]atomic.Bool // Logfiles that another process began

	closeTimeout time.Duration // of a device that hangs; 0: the default
	readOnly     bool          // no file is changed but the lock files
	asideErrors  int           // within a minute put a device aside; 0: the default

	layout, layoutReason string // how it is served
}

const (
	manifestName = "manifest"
	sumsName     = "sums"
	lengthsName  = "stored"
	listingName  = "listing"
)

// openCore opens what ingest made, to be served in a layout. On an error everything is closed again.
func openCore(dirs []string, o IO, memory int64, layout string, logger *slog.Logger) (*core, error) {
	c := &core{logger: logger}
	if err := c.open(dirs, o, memory, layout); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *core) open(dirs []string, o IO, memory int64, layout string) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if c.dirs, err = cleanDirs(dirs); err != nil {
		return err
	}
	if _, err = os.Stat(filepath.Join(c.dirs[0], jobName)); errors.Is(err, fs.ErrNotExist) {
		if len(c.dirs) > 1 {
			return fmt.Errorf("%s, the first directory of the cache, is lost or its ingest was not finished: it holds the cache's manifest and journals, so the others are of no use without it; remove what is left with lcache rm, and run lcache ingest --cache %s --source …",
				c.dirs[0], strings.Join(c.dirs, ","))
		}
		if within := caches.Within(c.dirs[0]); within != "" {
			return fmt.Errorf("%s is not a cache, it holds caches: give one of %s", c.dirs[0], within)
		}
		return fmt.Errorf("%s is not a cache, or its ingest was not finished: run lcache ingest --cache %s --source …", c.dirs[0], c.dirs[0])
	}
	if err = c.lock(true); err != nil {
		return err
	}
	if c.job, err = readJob(c.dirs[0]); err != nil {
		return err
	}
	if err = c.openData(); err != nil {
		return err
	}
	if c.schedule, err = schedule.New(c.job.Job, c.manifest.Len(), machineMemory()); err != nil {
		return err
	}
	c.layout, c.layoutReason = c.chooseLayout(layout)
	if memory == 0 {
		memory = c.job.Memory
	}
	return c.openStore(o, memory)
}

func cleanDirs(dirs []string) ([]string, error) {
	if len(dirs) == 0 || dirs[0] == "" {
		return nil, &usage.Error{Reason: "no cache given: say --cache DIR"}
	}
	clean := make([]string, len(dirs))
	seen := map[string]bool{}
	for i, d := range dirs {
		abs, err := filepath.Abs(d)
		if err != nil {
			return nil, err
		}
		if seen[abs] {
			return nil, usage.Errorf("cache directory %s is given twice", d)
		}
		if err := caches.CheckLink(abs); err != nil {
			return nil, err
		}
		seen[abs] = true
		clean[i] = abs
	}
	return clean, nil
}

// lock takes the directories for this process. With lacking, one that is lost is done without, unless it is the first: who holds that
// has the cache.
func (c *core) lock(lacking bool) error {
	for i, d := range c.dirs {
		if _, err := os.Lstat(filepath.Join(d, "FORMAT")); err != nil && lacking && i > 0 {
			continue // the store says what is wrong with it; nothing is made there
		}
		l, err := logfile.Lock(d)
		var busy *logfile.BusyError
		// A server that was just killed holds its lock until the kernel is done with it.
		for tries := 0; errors.As(err, &busy) && tries < 20; tries++ {
			time.Sleep(50 * time.Millisecond)
			l, err = logfile.Lock(d)
		}
		switch {
		case errors.As(err, &busy):
			return fmt.Errorf("%s is in use by process %d: stop it, or use another cache", d, busy.Pid)
		case err != nil && lacking && i > 0:
			c.logger.Warn("a directory of the cache can't be locked", "dir", d, "error", err)
			continue
		case err != nil:
			return err
		}
		c.locks = append(c.locks, l)
	}
	return nil
}

// openData opens what is the same whoever comes: manifest, sums, source.
func (c *core) openData() (err error) {
	c.manifest, err = sample.OpenManifest(filepath.Join(c.dirs[0], manifestName))
	if errors.Is(err, sample.ErrCorrupt) || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: run lcache ingest again", err)
	}
	if err != nil {
		return err
	}
	if err = c.openSums(); err != nil {
		return err
	}
	return c.openSource(c.job.Source, c.job.sourceOptions())
}

// openSums opens what is known of the samples' bytes. Sums of an earlier manifest are carried over as far as that is known; those that
// are damaged are forgotten: samples without one are read from the source, and learnt again.
func (c *core) openSums() (err error) {
	path := filepath.Join(c.dirs[0], sumsName)
	if c.readOnly {
		return c.readSums(path)
	}
	c.sums, err = sample.OpenSums(path, c.manifest.Fingerprint(), c.manifest.Len())
	if errors.Is(err, sample.ErrOtherManifest) {
		if carried, carryErr := c.carrySums(path); carried || carryErr != nil {
			return carryErr
		}
	}
	if !errors.Is(err, sample.ErrCorrupt) && !errors.Is(err, sample.ErrOtherManifest) {
		return err
	}
	c.logger.Warn("the sums are made anew: every sample is read from the source once more", "error", err)
	if err := os.Remove(path); err != nil {
		return err
	}
	c.sums, err = sample.OpenSums(path, c.manifest.Fingerprint(), c.manifest.Len())
	return err
}

// openStore recovers the Logfiles and fills Locations from them.
func (c *core) openStore(o IO, memory int64) (err error) {
	c.closeTimeout = o.CloseTimeout
	if c.io, err = o.open(c); err != nil {
		return err
	}
	sizes, err := c.openLengths()
	if err != nil {
		return err
	}
	c.store, err = logfile.Open(c.dirs, logfile.Options{IO: c.io, Logger: c.logger, Sizes: sizes,
		Fingerprint: c.manifest.Fingerprint(), Older: c.older, Lost: c.lost, SyncEvery: syncEvery, SyncSizes: c.syncLengths, Deadline: o.Deadline, ProbeAfter: o.ProbeAfter, CloseTimeout: o.CloseTimeout, ReadOnly: c.readOnly, AsideErrors: c.asideErrors})
	if err != nil {
		return err
	}
	c.format = c.store.Format()
	if c.loc, err = metaindex.NewLocations(c.manifest.Len(), c.format.Align); err != nil {
		return err
	}
	if c.sizing, err = c.size(uint64(memory)); err != nil {
		return err
	}
	if c.lengths != nil {
		c.form = stored.New(c.manifest.Sizes(), c.lengths, c.format.Align, c.job.Room)
	}
	c.locate()
	return nil
}

// locate sets every sample's place from the recovered Logfiles: the newer one, which is being filled, wins.
func (c *core) locate() {
	logs := c.store.Logfiles()
	order := []int{0, 1}
	if logs[0] != nil && logs[1] != nil && logs[0].Generation() > logs[1].Generation() {
		order = []int{1, 0}
	}
	for _, slot := range order {
		l := logs[slot]
		if l == nil {
			continue
		}
		c.recovered[slot].Store(true)
		for seg := range int(l.Header().Segments) {
			l.Arrivals(seg, func(_ int, index sample.Index, off uint64) bool {
				c.loc.Set(index, c.loc.At(slot, seg, off))
				return true
			})
		}
	}
}

// lost makes misses of the samples whose block could not be written or read back.
func (c *core) lost(l *logfile.Logfile, seg int, indices []sample.Index, offsets []uint64) {
	for i, index := range indices {
		c.loc.Clear(index, c.loc.At(l.Slot(), seg, offsets[i]))
	}
}

// keep is admission: what the log holds. Empty samples never enter it, they are always hits.
func (c *core) keep(index sample.Index) bool {
	return c.manifest.Size(index) > 0 && chunker.Admitted(c.manifest.NameHash(index), c.job.Threshold)
}

// logfile is the Logfile in a slot now, or nil.
func (c *core) logfile(slot int) *logfile.Logfile { return c.store.Logfiles()[slot] }

func (c *core) wasRecovered(slot int) bool { return c.recovered[slot].Load() }

// closeIO does not wait for ever for a device that hangs: what it has in flight belongs to it until the process ends, and is mapped that long.
func (c *core) closeIO() error {
	closed := make(chan error, 1)
	go func() { closed <- c.io.Close() }()
	wait := time.NewTimer(cmp.Or(c.closeTimeout, 10*time.Second))
	defer wait.Stop()
	select {
	case err := <-closed:
		return err
	case <-wait.C:
		return fmt.Errorf("a device of %s does not answer: transfers are left in flight", strings.Join(c.dirs, ","))
	}
}

// close gives everything back in reverse order of opening. While a file of the cache hangs what the log uses stays mapped, and the
// directories locked: the kernel takes both back when the process ends.
func (c *core) close() (err error) {
	if c.schedule != nil {
		c.schedule.Stop()
	}
	err = c.closeStore()
	if late := new(logfile.HungError); errors.As(err, &late) {
		return err
	}
	if c.source != nil {
		err = errors.Join(err, c.source.Close())
	}
	if c.manifest != nil {
		err = errors.Join(err, c.manifest.Close())
	}
	for _, l := range c.locks {
		err = errors.Join(err, l.Close())
	}
	return err
}

// closeStore gives back what openSums and openStore took.
func (c *core) closeStore() (err error) {
	if c.store != nil {
		err = c.store.Close()
	}
	if c.io != nil {
		err = errors.Join(err, c.closeIO())
	}
	if late := new(logfile.HungError); errors.As(err, &late) {
		return err
	}
	if c.loc != nil {
		c.loc.Free()
	}
	if c.lengths == nil && c.sums == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(c.closeTimeout, 30*time.Second))
	defer cancel()
	lengths, sums := c.closeLengths, c.closeSums
	return errors.Join(err, logfile.Within(ctx, "sync of what is learnt in "+c.dirs[0], func() error { return errors.Join(lengths(), sums()) }))
}

func (c *core) closeSums() error {
	if c.sums == nil {
		return nil
	}
	if c.io != nil {
		if err := c.io.Plain(filepath.Join(c.dirs[0], sumsName), "sync"); err != nil {
			return err
		}
	}
	return errors.Join(c.sums.Sync(), c.sums.Close())
}
