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
	IO          *blockio.IO        // carries out all transfers; it must stay open longer than the Store
	Logger      *slog.Logger       // nil is silent
	Sizes       []uint32           // bytes of each sample by index, as the manifest has them; kept, not copied
	Fingerprint sample.Fingerprint // of that manifest; a Logfile of another one is opened only by Older
	// Older returns the other manifest that a Logfile may be of. After an error or nil that Logfile is not opened.
	// A nil Older is allowed. Only Open calls it.
	Older func(sample.Fingerprint) (*Older, error)
	Spare int // write buffers of a Logfile beyond one a segment; 0 means 16 for each directory, 2 is the least
	// Lost is called with the samples of a segment, and their offsets, that are gone because a block could not be written or read back. It is
	// called without locks, on any goroutine, and must not block for long. Append may return the offset of such a sample later. A nil Lost is allowed.
	Lost        func(l *Logfile, seg int, indices []sample.Index, offsets []uint64)
	Deadline    time.Duration // a device that answers no read for this long, or no write for twice as long, is put aside; 0: 5 s
	AsideErrors int           // errors within a minute that put a device aside; 0: 3
	ProbeAfter  time.Duration // the wait before the first probe of a device that is aside; 0: 2 s
	// CloseTimeout is how long Close waits for a device that hangs; 0: 30 s.
	CloseTimeout time.Duration
	// SyncEvery is the interval of background syncs; 0: only Seal and Close sync.
	SyncEvery time.Duration
	// SyncSizes makes Sizes durable where they are learnt as samples are appended: a record is useless if the lengths of its samples are not
	// known. It is called before records are made durable. nil: Sizes are fixed.
	SyncSizes func() error
	// ReadOnly keeps every file as it is: recovery leaves a torn journal alone, Begin, Drop and Append are refused with ErrReadOnly, a
	// probe only reads, and Close writes nothing.
	ReadOnly bool
	Trace    durable.Trace // is told each step outside the arenas, for crash tests; nil: nobody is
}

// Store is an open cache: arena, free places, up to two Logfiles, and packages if there are any.
type Store struct {
	format Format
	dirs   []string
	io     *blockio.IO
	log    *slog.Logger
	sizes  []uint32
	print  sample.Fingerprint
	older  func(sample.Fingerprint) (*Older, error)
	gone   []uint32 // sizes of samples that only an older manifest has; their numbers follow those of sizes
	spare  int
	before func() error // Options.SyncSizes
	lost   func(l *Logfile, seg int, indices []sample.Index, offsets []uint64)
	trace  durable.Trace

	readOnly bool

	free      *freeList
	gen       atomic.Uint64 // the last one given
	stats     counters
	transfers gauge // in flight, journals not among them

	table    placeTable
	noting   turn          // held while table is written; guards it and the field that follows
	unnoted  bool          // the last write of it failed
	more     chan struct{} // the free list asks for places to be noted
	noteFrom atomic.Int64  // when the noting began that is under way; 0: none is
	deadline time.Duration // of a device

	dirty  atomic.Bool   // a record was queued since the last sync
	kick   chan struct{} // a record was queued
	stop   chan struct{}
	joined sync.WaitGroup

	stopLoops func() // closes stop

	devices      []*device
	asides       signal // a device was put aside
	probeAfter   time.Duration
	asideErrors  int
	closeTimeout time.Duration
	now          func() time.Time // for the windows of errors and probes
	probes       sync.WaitGroup
	stopped      context.Context // ends with Close: the Store's own life, not a call's
	stopProbes   context.CancelFunc

	syncTurn turn // held while syncing
	slotTurn turn // held by Begin, Drop and Close; taken before mu; guards the fields that follow

	outgrown []*pool // write buffers to be freed when they are idle
	shut     bool    // a Close has come to its end

	mu       sync.Mutex // guards the fields that follow
	slots    [logs]*Logfile
	pools    [logs]*pool
	packages *Packages // over the last of slots
	closed   bool
}

// PackageHalf stands where the number of a half does, 0 or 1, for packages.
const PackageHalf = 2

// logs is how many logs a Store may have: two Logfiles, and packages.
const logs = 3

// Open opens the cache over dirs, given in the order in which it was created, and recovers Logfiles and packages from their journals. The caller
// holds the directories' locks. The first directory must be there, since it holds the journals. Any other directory that is gone, empty or
// damaged is put aside, with a line in the log, and its samples are lost. A journal that is damaged, or of another manifest, costs its Logfile, with a line in
// the log, but not the cache.
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
	s.joined.Go(s.tendDevices)
	if opts.SyncEvery > 0 {
		s.joined.Go(func() { s.syncJournals(opts.SyncEvery) })
	}
	return s, nil
}

// readFormats reads the FORMAT of each directory. The first one must be there; what is wrong with the others is told in broken, unless it
// shows that they are not the directories of this cache.
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
		first.Places = min(first.Places, f.Places) // a Grow that was cut off
	}
	return first, broken, nil
}

func sameCache(a, b Format) bool {
	a.Places = b.Places
	return a == b
}

// readSmall reads the beginning of a file: as much as a FORMAT has, and a byte more.
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

func (s *Store) journalPath(half int) string {
	return journalIn(s.dirs[0], half)
}

func journalIn(dir string, half int) string {
	if half == PackageHalf {
		return filepath.Join(dir, packsName)
	}
	return filepath.Join(dir, journalPrefix+strconv.Itoa(half))
}

// Format returns the Format that the cache was created with.
func (s *Store) Format() Format { return s.format }

// Free returns how many places no block claims.
func (s *Store) Free() int { return s.free.len() }

// HasRoom reports whether n bytes can be appended before a place of the arena is freed: whether the free places take them and all that lies in write buffers.
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
	for _, l := range logs {
		room -= l.open()
	}
	return room >= 0
}

// Used returns how many places hold blocks, or are being written.
func (s *Store) Used() int { return s.format.Places - s.free.len() }

// Logfiles returns the Logfiles by half, as recovered or begun; nil where there is none.
func (s *Store) Logfiles() [2]*Logfile {
	s.mu.Lock()
	defer s.mu.Unlock()
	return [2]*Logfile(s.slots[:2])
}

// all lists the logs that there are: Logfiles and packages.
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

// Log returns the Logfile of a half, or the packages', or nil.
func (s *Store) Log(half int) *Logfile {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slots[half]
}

// Close stops cleanly: it waits for writes in flight, writes the tails, and makes arena and journals durable. Full blocks that
// still wait for a place are lost. The caller must not use the Store or its Logfiles during Close or later. The error is that of the first thing that could
// not be made durable, failed background syncs included. It waits for a device or file that hangs until Options.CloseTimeout; then the error is a [*HungError], and a
// further Close gives back the memory that was left to a device or file that has answered since.
// Only a Begin or a Drop that hangs may be under way when it is called.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), s.closeTimeout)
	defer cancel()
	if err := s.slotTurn.take(ctx); err != nil { // its Logfile is neither there nor gone: leave all as it is
		s.stopProbes()
		s.stopLoops()
		return fmt.Errorf("close cache: %w", &HungError{What: "beginning or dropping a Logfile in " + s.dirs[0], Err: err})
	}
	defer s.slotTurn.give()
	if s.shut {
		err := s.closeTable(ctx) // what waited for its places has them now, or has been given up
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
	s.joined.Wait() // they don't wait for a file that hangs
	s.giveUp(func(*blockWrite) bool { return true })
	s.launch(s.free.unguard()...)
	return append(errs, s.waitProbes(ctx))
}

// giveBack frees the memory of Logfiles and write buffers. Buffers that a hung device still owns stay mapped.
func (s *Store) giveBack() (errs []error) {
	for _, l := range s.all() {
		errs = append(errs, l.forget())
		s.setHalf(l.half, nil)
	}
	for _, p := range s.pools {
		if p != nil {
			s.outgrown = append(s.outgrown, p)
		}
	}
	s.freePools()
	return errs
}

// forget is dispose for a Store that closes: the blocks stay where they are.
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
