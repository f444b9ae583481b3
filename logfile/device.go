package logfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"lcache/internal/disk/blockio"
)

// ErrQuarantined is the class of errors of reads from a quarantined device: the bytes may be readable again later.
var ErrQuarantined = errors.New("device is quarantined")

// States of a device.
const (
	DeviceNormal   = "normal"
	DeviceReadOnly = "read-only" // it gets no new blocks
	DeviceAside    = "aside"     // quarantined: its blocks are not read either
)

// A Device describes one directory of the cache.
type Device struct {
	Dir       string
	State     string
	Errors    uint64 // failed transfers, hangs and failed probes
	Asides    uint64 // number of quarantines; reading and writing count separately
	LastError string // "": none
	Blocks    uint64 // writes of blocks and tails to it
	Places    int    // its arena blocks
}

// device is one directory of the cache and its part of the arena.
type device struct {
	number int
	dir    string
	arena  atomic.Pointer[blockio.File] // nil: missing since the cache was opened
	read   *health
	write  *health
	blocks atomic.Uint64

	probing atomic.Bool
	syncMu  sync.Mutex
	syncing chan struct{} // guarded by syncMu; closed when the current sync ends; nil: no sync
}

func (d *device) direction(write bool) *health {
	if write {
		return d.write
	}
	return d.read
}

// status returns the device's state for reports.
func (d *device) status(places int) Device {
	readAside, readErrors, readAsides, readErr := d.read.report()
	writeAside, writeErrors, writeAsides, writeErr := d.write.report()
	s := Device{Dir: d.dir, State: DeviceNormal, Errors: readErrors + writeErrors, Asides: readAsides + writeAsides, Blocks: d.blocks.Load(), Places: places}
	err := writeErr
	switch {
	case readAside:
		s.State, err = DeviceAside, readErr
	case writeAside:
		s.State = DeviceReadOnly
	case err == nil:
		err = readErr
	}
	if err != nil {
		s.LastError = err.Error()
	}
	return s
}

// sync makes the arena durable, in a goroutine of its own, so that a hung device does not delay a Close. If the device is quarantined
// meanwhile, sync returns nil, because the Store no longer relies on its blocks.
func (d *device) sync(ctx context.Context) error {
	for {
		file := d.arena.Load()
		if file == nil || d.read.isQuarantined() || d.write.isQuarantined() {
			return nil
		}
		result := make(chan error, 1)
		d.syncMu.Lock()
		busy := d.syncing
		if busy == nil {
			over := make(chan struct{})
			busy, d.syncing = over, over
			go func() {
				result <- file.Sync()
				d.syncMu.Lock()
				d.syncing = nil
				d.syncMu.Unlock()
				close(over)
			}()
		}
		d.syncMu.Unlock()
		select {
		case err := <-result:
			return err
		case <-busy: // it began before this call, so it does not cover everything; or it is this call's, and its result is there as well
			select {
			case err := <-result:
				return err
			default:
			}
		case <-d.read.left():
			return nil
		case <-d.write.left():
			return nil
		case <-ctx.Done():
			return &HungError{What: "fdatasync of " + file.Name(), Err: context.Cause(ctx)}
		}
	}
}

// Devices returns the state of each directory, in their order.
func (s *Store) Devices() []Device {
	list := make([]Device, len(s.devices))
	for i, d := range s.devices {
		list[i] = d.status(s.format.placesIn(i, len(s.devices)))
	}
	return list
}

// Writable reports whether any device takes new blocks.
func (s *Store) Writable() bool { return s.free.writable() }

// where returns the device of an arena block, and its offset there.
func (s *Store) where(place uint32) (*device, int64) {
	n := uint32(len(s.devices))
	return s.devices[place%n], int64(place/n) * int64(s.format.Block)
}

// openDevices opens the arena of each directory. The first directory holds the journals, so the cache needs it. Any other directory that
// is missing, empty or damaged is quarantined, and its samples are lost until they are stored again.
func (s *Store) openDevices(broken []error) error {
	var errs []error
	for i, dir := range s.dirs {
		d := &device{number: i, dir: dir, read: newHealth(s.asideErrors, hungTicks, s.probeAfter),
			write: newHealth(s.asideErrors, patientWrites*hungTicks, s.probeAfter)}
		s.devices = append(s.devices, d)
		err := broken[i]
		if err == nil {
			err = s.openArena(d)
		}
		var unfit *unfitError
		switch {
		case err == nil:
			continue
		case errors.As(err, &unfit) || len(s.dirs) == 1:
			return err
		}
		errs = append(errs, err)
		d.read.put(s.now(), err)
		d.write.put(s.now(), err)
		s.log.Error("a directory of the cache can't be used: its samples are read from the source again", "dir", dir, "err", err)
	}
	if len(errs) == len(s.dirs) {
		return errors.Join(errs...)
	}
	return nil
}

// unfitError means that a device exists but can't be used as configured.
type unfitError struct{ reason string }

func (e *unfitError) Error() string { return e.reason }

func (s *Store) openArena(d *device) error {
	f, err := s.io.OpenFile(filepath.Join(d.dir, arenaName), false)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", err, ErrDamaged)
	}
	if err != nil {
		return err
	}
	size, err := f.Size()
	if want := s.format.arenaSize(d.number, len(s.dirs)); err == nil && size < want {
		err = fmt.Errorf("arena in %s has %d bytes, want %d: it was cut short, %w", d.dir, size, want, ErrDamaged)
	}
	if err == nil && f.Direct() && (unit%f.OffAlign() != 0 || unit%f.MemAlign() != 0) {
		err = &unfitError{fmt.Sprintf("arena in %s: the device needs direct I/O in units of %d bytes, the format has %d: set LCACHE_DIRECT=off",
			d.dir, max(f.OffAlign(), f.MemAlign()), unit)}
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if old := d.arena.Swap(f); old != nil {
		_ = old.Close() // waits for transfers in flight on it
	}
	return nil
}

// missing reports whether the device of an arena block is absent. Then no record of that block can be right.
func (s *Store) missing(place uint32) bool {
	d, _ := s.where(place)
	return d.arena.Load() == nil
}

// submit passes transfers to the engine, and counts them and their errors for the Store and for their device.
func (s *Store) submit(ops ...*blockio.Op) {
	for _, op := range ops {
		s.stats.count(op)
		s.transfers.add()
		d := s.deviceOf(op.File)
		if d != nil {
			d.direction(op.Write).began()
		}
		done := op.Done
		op.Done = func(op *blockio.Op, err error) {
			s.stats.countError(op, err)
			if d != nil {
				s.ended(d, op.Write, err)
			}
			done(op, err)
			s.transfers.done()
		}
	}
	s.io.Submit(ops...)
}

// deviceOf returns the device of an arena, or nil for a file that only a probe uses.
func (s *Store) deviceOf(f *blockio.File) *device {
	for _, d := range s.devices {
		if d.arena.Load() == f {
			return d
		}
	}
	return nil
}

// ended records the end of a transfer. It runs on a goroutine of the engine.
func (s *Store) ended(d *device, write bool, err error) {
	if errors.Is(err, blockio.ErrClosed) {
		err = nil
	}
	if d.direction(write).done(s.now(), err) {
		s.endWaitsOnQuarantined(d, write, fmt.Sprintf("%d errors within a minute", s.asideErrors))
	}
}

// endWaitsOnQuarantined ends all waits for a quarantined device. No lock may be held.
func (s *Store) endWaitsOnQuarantined(d *device, write bool, why string) {
	_, _, _, err := d.direction(write).report()
	if write {
		s.log.Error("device quarantined: no new blocks are written to it", "dir", d.dir, "why", why, "err", err)
	} else {
		s.log.Error("device quarantined: its samples are read from the source", "dir", d.dir, "why", why, "err", err)
	}
	s.updatePlacing(d)
	s.asides.broadcast()
}

// signal wakes all waiters for a change.
type signal struct {
	mu sync.Mutex
	c  chan struct{} // guarded by mu
}

// changed returns a channel that the next broadcast closes.
func (s *signal) changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c == nil {
		s.c = make(chan struct{})
	}
	return s.c
}

func (s *signal) broadcast() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c != nil {
		close(s.c)
		s.c = nil
	}
}

// watchDevices detects hangs and probes quarantined devices, until Close.
func (s *Store) watchDevices() {
	ticker := time.NewTicker(s.deadline / hungTicks)
	defer ticker.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
			s.checkDevices()
		}
	}
}

// checkDevices is one tick of watchDevices.
func (s *Store) checkDevices() {
	now := s.now()
	if from := s.noteFrom.Load(); from != 0 && now.UnixNano()-from > int64(s.deadline) {
		s.launch(s.free.goOn()...)
	}
	for _, d := range s.devices {
		for _, write := range []bool{false, true} {
			if d.direction(write).tick(now, errHung) {
				s.endWaitsOnQuarantined(d, write, "it hangs")
			}
		}
		if (d.read.due(now) || d.write.due(now)) && !d.probing.Swap(true) {
			s.probes.Go(func() {
				defer d.probing.Store(false)
				s.probe(d)
			})
		}
	}
}

var errHung = errors.New("the device did not answer by its deadline")
