package logfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/internal/disk/durable"
	"lcache/internal/trust"
	"lcache/sample"
)

// closeTimeout bounds how long Close waits for a hung device, unless Options says otherwise.
const closeTimeout = 30 * time.Second

// Options of Open.
type Options struct {
	IO          *blockio.IO        // does all transfers; it must stay open longer than the Store
	Logger      *slog.Logger       // nil: no messages
	Sizes       []uint32           // bytes of each sample by index, as the manifest has them; kept, not copied
	Fingerprint sample.Fingerprint // of that manifest; a Logfile of another one is opened only with Older
	// Older returns the other manifest to which a Logfile belongs. After an error or nil that Logfile is not opened. Older may be nil. Only
	// Open calls it.
	Older func(sample.Fingerprint) (*Older, error)
	Spare int // write buffers of a Logfile in addition to one a segment; 0: 16 for each directory; the minimum is 2
	// Lost is called with samples of a segment, and their offsets, that are lost because a block could not be written or read back. It is
	// called without locks, on any goroutine, and must not block for long. Append may return the offset of such a sample later. Lost may be nil.
	Lost        func(l *Logfile, seg int, indices []sample.Index, offsets []uint64)
	Deadline    time.Duration // a device that completes no read for this long, or no write for twice as long, is quarantined; 0: 5 s
	AsideErrors int           // errors within a minute that quarantine a device; 0: 3
	ProbeAfter  time.Duration // the wait before the first probe of a quarantined device; 0: 2 s
	// CloseTimeout is how long Close waits for a hung device; 0: 30 s.
	CloseTimeout time.Duration
	// SyncEvery is the interval of background syncs; 0: only Seal and Close sync.
	SyncEvery time.Duration
	// SyncSizes makes Sizes durable if they are learnt while samples are appended: a record is useless if the lengths of its samples are
	// unknown. It is called before records are made durable. nil: Sizes are fixed.
	SyncSizes func() error
	// ReadOnly changes no file: recovery leaves a torn journal alone, Begin, Drop and Append return ErrReadOnly, probes only read, and Close
	// writes nothing.
	ReadOnly bool
	Trace    durable.Trace // receives each step outside the arenas, for crash tests; may be nil
}

// Store is an open cache: the arena, its free places, up to two Logfiles, and packages if there are any.
type Store struct {
	format Format
	dirs   []string
	io     *blockio.IO
	log    *slog.Logger
	sizes  []uint32
	print  sample.Fingerprint
	older  func(sample.Fingerprint) (*Older, error)
	gone   []uint32 // sizes of samples that are only in an older manifest; their indices follow the indices of sizes
	spare  int
	before func() error // Options.SyncSizes
	lost   func(l *Logfile, seg int, indices []sample.Index, offsets []uint64)
	trace  durable.Trace

	readOnly bool

	free      *freeList
	gen       atomic.Uint64 // the last generation given
	stats     counters
	transfers gauge // in flight, without journals

	table    placeTable
	noting   turn          // held while table is written; guards table and the field that follows
	unnoted  bool          // the last write of table failed
	more     chan struct{} // the free list requests more noted places
	noteFrom atomic.Int64  // when the current noting began; 0: none is in progress
	deadline time.Duration // of a device

	dirty  atomic.Bool   // a record was queued since the last sync
	kick   chan struct{} // a record was queued
	stop   chan struct{}
	joined sync.WaitGroup

	stopLoops func() // closes stop

	devices      []*device
	asides       signal // a device was quarantined
	probeAfter   time.Duration
	asideErrors  int
	closeTimeout time.Duration
	now          func() time.Time // for the windows of errors and probes
	probes       sync.WaitGroup
	stopped      context.Context // ends with Close: it belongs to the Store, not to a call
	stopProbes   context.CancelFunc

	syncTurn turn // held while syncing
	slotTurn turn // held by Begin, Drop and Close; taken before mu; guards the fields that follow

	outgrown []*pool // write buffers to free when they are idle
	shut     bool    // a Close has finished

	mu       sync.Mutex // guards the fields that follow
	slots    [logs]*Logfile
	pools    [logs]*pool
	packages *Packages // over the last element of slots
	closed   bool
}

// PackagesNum is the number of the packages' log, where Logfiles have 0 (A) or 1 (B).
const PackagesNum = 2

// logs is the number of logs of a Store: two Logfiles, and packages.
const logs = 3

// Open opens the cache over dirs, in the order of its creation, and recovers Logfiles and packages from their journals. The caller holds
// the directories' locks. The first directory must exist, because it holds the journals. Any other directory that is missing, empty or
// damaged is quarantined with a log message, and its samples are lost. A journal that is damaged, or belongs to another manifest, costs
// its Logfile, with a log message, but not the cache.
func Open(dirs []string, opts Options) (*Store, error) {
	f, broken, err := readFormats(dirs)
	if err != nil {
		return nil, fmt.Errorf("open cache: %w", err)
	}
	s := &Store{format: f, dirs: dirs, io: opts.IO, log: opts.Logger, sizes: opts.Sizes, print: opts.Fingerprint, older: opts.Older, spare: opts.Spare, lost: opts.Lost, before: opts.SyncSizes, trace: withFaults(opts.IO, opts.Trace), readOnly: opts.ReadOnly,
		syncTurn: newTurn(), slotTurn: newTurn(), noting: newTurn(), more: make(chan struct{}, 1), kick: make(chan struct{}, 1), stop: make(chan struct{}), probeAfter: opts.ProbeAfter, asideErrors: opts.AsideErrors, now: time.Now}
	s.stopLoops = sync.OnceFunc(func() { close(s.stop) })
	s.stopped, s.stopProbes = context.WithCancel(context.Background())
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.spare == 0 {
		s.spare = 16 * len(dirs)
	}
	s.spare = max(s.spare, 2)
	if s.probeAfter == 0 {
		s.probeAfter = defaultProbe
	}
	if s.closeTimeout = opts.CloseTimeout; s.closeTimeout == 0 {
		s.closeTimeout = closeTimeout
	}
	if s.asideErrors == 0 {
		s.asideErrors = asideErrors
	}
	if s.deadline = opts.Deadline; s.deadline == 0 {
		s.deadline = defaultDeadline
	}
	s.table = placeTable{path: filepath.Join(dirs[0], placesName), format: f, trace: s.trace}
	if err := s.openDevices(broken); err != nil {
		return nil, errors.Join(fmt.Errorf("open cache: %w", err), s.closeFiles())
	}
	if err := s.recover(); err != nil {
		return nil, errors.Join(fmt.Errorf("open cache: recover: %w", err), s.closeFiles())
	}
	for _, d := range s.devices {
		s.updatePlacing(d)
	}
	s.joined.Go(s.writeJournals)
	s.joined.Go(s.noteAhead)
	s.joined.Go(s.watchDevices)
	if opts.SyncEvery > 0 {
		s.joined.Go(func() { s.syncJournals(opts.SyncEvery) })
	}
	return s, nil
}

// readFormats reads the FORMAT of each directory. The first one must exist. broken has the errors of the others. If the directories do not
// belong to one cache, readFormats returns err.
func readFormats(dirs []string) (first Format, broken []error, err error) {
	if len(dirs) == 0 {
		return first, nil, errors.New("no directories given")
	}
	broken = make([]error, len(dirs))
	for i, name := range dirs {
		path := filepath.Join(name, formatName)
		b, err := readSmall(path)
		if err != nil && i > 0 {
			broken[i] = fmt.Errorf("it is gone or empty: %w", err)
			continue
		}
		if errors.Is(err, fs.ErrNotExist) {
			return first, nil, fmt.Errorf("%w: %w", err, ErrDamaged)
		}
		if err != nil {
			return first, nil, err
		}
		f, dir, of, err := decodeFormat(b)
		switch {
		case err != nil && i > 0 && !errors.Is(err, ErrVersion):
			broken[i] = fmt.Errorf("%s: %w", path, err)
			continue
		case err != nil:
			return first, nil, fmt.Errorf("%s: %w", path, err)
		case i > 0 && !sameCache(f, first):
			return first, nil, fmt.Errorf("%s belongs to another cache than %s: give the directories of one cache", name, dirs[0])
		case dir != i || of != len(dirs):
			return first, nil, fmt.Errorf("%s is directory %d of %d, given as %d of %d: give all of them in the order of their creation",
				name, dir+1, of, i+1, len(dirs))
		}
		if i == 0 {
			first = f
		}
		first.Places = min(first.Places, f.Places) // less after an interrupted Grow
	}
	return first, broken, nil
}

func sameCache(a, b Format) bool {
	a.Places = b.Places
	return a == b
}

// readSmall reads the beginning of a file: the length of a FORMAT, and one byte.
func readSmall(path string) ([]byte, error) {
	f, err := trust.Open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, formatSize+1)
	n := 0
	for n < len(b) {
		m, err := f.Read(b[n:])
		n += m
		if m == 0 || err != nil {
			break
		}
	}
	return b[:n], nil
}

func (s *Store) journalPath(num int) string {
	return journalIn(s.dirs[0], num)
}

func journalIn(dir string, num int) string {
	if num == PackagesNum {
		return filepath.Join(dir, packsName)
	}
	return filepath.Join(dir, journalPrefix+strconv.Itoa(num))
}

// Format returns the Format that the cache was created with.
func (s *Store) Format() Format { return s.format }

// Free returns the number of arena blocks that no block claims.
func (s *Store) Free() int { return s.free.len() }

// HasRoom reports whether n bytes can be appended before an arena block is freed: whether the free ones hold them and all bytes in write buffers.
func (s *Store) HasRoom(n int64) bool {
	block := int64(s.format.Block)
	room := int64(s.free.unclaimed())*block - n
	logs := s.all()
	most := int64(0)
	for _, l := range logs {
		most += int64(cap(l.pool.free)-len(l.pool.free)) * block
	}
	if room >= most {
		return true
	}
	return s.Left() >= n
}

// Left returns how many bytes can be appended before an arena block is freed.
func (s *Store) Left() int64 {
	left := int64(s.free.unclaimed()) * int64(s.format.Block)
	for _, l := range s.all() {
		left -= l.open()
	}
	return left
}

// Used returns the number of arena blocks that hold blocks, or are being written.
func (s *Store) Used() int { return s.format.Places - s.free.len() }

// Logfiles returns Logfile A and B, as recovered or begun. A missing one is nil.
func (s *Store) Logfiles() [2]*Logfile {
	s.mu.Lock()
	defer s.mu.Unlock()
	return [2]*Logfile(s.slots[:2])
}

// all lists the existing logs: Logfiles and packages.
func (s *Store) all() (list []*Logfile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.slots {
		if l != nil {
			list = append(list, l)
		}
	}
	return list
}

// Log returns Logfile A (0) or B (1), or the log of packages, or nil.
func (s *Store) Log(num int) *Logfile {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slots[num]
}

// Close stops cleanly: it waits for writes in flight, writes the tails, and makes arena and journals durable. Full blocks that still wait
// for an arena block are lost. The caller must not use the Store or its Logfiles during Close or later; only a hung Begin or Drop may
// still be in progress. Close returns the first error of making data durable, including failed background syncs. It waits for hung
// devices and files until Options.CloseTimeout. Then the error is a [*HungError], and a further Close frees the memory of devices
// and files that have answered since.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), s.closeTimeout)
	defer cancel()
	if err := s.slotTurn.take(ctx); err != nil { // it is not known whether its Logfile exists: leave everything as it is
		s.stopProbes()
		s.stopLoops()
		return fmt.Errorf("close cache: %w", &HungError{What: "beginning or dropping a Logfile in " + s.dirs[0], Err: err})
	}
	defer s.slotTurn.release()
	if s.shut {
		err := s.closeTable(ctx) // writes that waited for places have them now, or were given up
		s.freePools()
		return err
	}
	s.shut = true
	errs := s.settleWrites(ctx)
	for _, l := range s.all() {
		errs = append(errs, s.syncAll(ctx, l))
	}
	errs = append(errs, s.closeTable(ctx))
	errs = append(errs, s.giveBack()...)
	if err := errors.Join(append(errs, s.closeFiles())...); err != nil {
		return fmt.Errorf("close cache: %w", err)
	}
	return nil
}

// settleWrites ends all writing: appends, tails, background loops and probes.
func (s *Store) settleWrites(ctx context.Context) (errs []error) {
	for _, l := range s.all() {
		l.end.Do(func() { close(l.done) })
		s.launch(s.free.setNoFrees(true)...)
		errs = append(errs, l.Flush(ctx), l.WriteTails(ctx))
		if !s.readOnly {
			l.writeFreed()
		}
	}
	s.stopProbes()
	errs = append(errs, s.transfers.wait(ctx))
	s.stopLoops()
	s.joined.Wait() // they don't wait for a hung file
	s.failWaiting(func(*blockWrite) bool { return true })
	s.launch(s.free.unguard()...)
	return append(errs, s.waitProbes(ctx))
}

// giveBack frees the memory of Logfiles and write buffers. Buffers that a hung device may still use stay mapped.
func (s *Store) giveBack() (errs []error) {
	for _, l := range s.all() {
		errs = append(errs, l.forget())
		s.setLog(l.num, nil)
	}
	for _, p := range s.pools {
		if p != nil {
			s.outgrown = append(s.outgrown, p)
		}
	}
	s.freePools()
	return errs
}

// forget is dispose for a Store that closes: it frees no arena blocks.
func (l *Logfile) forget() error {
	for seg := range l.segs {
		sg := &l.segs[seg]
		sg.mu.Lock()
		for i := range sg.blocks {
			if sg.blocks[i].state == stateOpen {
				l.pool.put(sg.blocks[i].place)
			}
			sg.blocks[i].state = stateFreed
		}
		sg.mu.Unlock()
	}
	return errors.Join(l.journal.close(), unmapIndices(l.arr))
}

func (s *Store) closeFiles() error {
	s.stopProbes()
	var errs []error
	for _, d := range s.devices {
		if f := d.arena.Load(); f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
