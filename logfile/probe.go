package logfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/internal/trust"
)

// probe tests a quarantined device: it writes a page to a free arena block, if there is one, and reads it back. If the device does not
// answer through its open file, it may have been mounted again. probe then tries its path, if the directory there still belongs to
// this cache. Reading and writing have separate results. probe returns early when the Store is closed.
func (s *Store) probe(d *device) {
	var readErr, writeErr error
	if file := d.arena.Load(); file != nil {
		readErr, writeErr = s.tryFile(d, file)
	}
	if d.arena.Load() == nil || readErr != nil || writeErr != nil {
		if err := s.reopen(d); err == nil {
			readErr, writeErr = s.tryFile(d, d.arena.Load())
		} else if d.arena.Load() == nil {
			readErr, writeErr = err, err
		}
	}
	if s.stopped.Err() != nil {
		return
	}
	if readErr != nil {
		writeErr = readErr // a page that can't be read back proves nothing
	}
	now := s.now()
	d.write.probed(now, writeErr)
	d.read.probed(now, readErr)
	if s.updatePlacing(d) {
		s.log.Info("device stays quarantined", "dir", d.dir, "err", writeErr)
		return
	}
	s.log.Warn("device works again: quarantine ended", "dir", d.dir)
}

// tryFile tests reading and writing of a file.
func (s *Store) tryFile(d *device, file *blockio.File) (readErr, writeErr error) {
	place, free := uint32(0), false
	if !s.readOnly {
		place, free = s.free.tryTakeOn(d.number)
	}
	if !free {
		place = uint32(d.number) // the first arena block of the device: only to be read
	}
	_, off := s.where(place)
	giveBack := func() {
		if free {
			s.launch(s.free.release(place)...)
		}
	}
	pattern := bytes.Repeat([]byte(fmt.Sprintf("lcache probe %16x", s.gen.Add(1))), unit/8)[:unit]
	if free {
		var late bool
		if late, writeErr = s.tryPage(file, true, off, pattern, giveBack); late {
			return writeErr, writeErr // the arena block is released when the write ends
		}
		if writeErr != nil {
			pattern = nil
		}
	} else {
		pattern = nil
	}
	late, readErr := s.tryPage(file, false, off, pattern, giveBack)
	if !late {
		giveBack()
	}
	return readErr, writeErr
}

// tryPage writes a page, or reads one and compares it with want (nil: no comparison). late means that the Store was closed first: after
// then runs when the transfer ends.
func (s *Store) tryPage(file *blockio.File, write bool, off int64, want []byte, after func()) (late bool, err error) {
	page, err := blockio.Alloc(unit)
	if err != nil {
		return false, err
	}
	if write {
		copy(page, want)
	}
	err = s.transfer(s.stopped, nil, &blockio.Op{File: file, Write: write, Offset: off, Buf: page}, func() {
		_ = blockio.Free(page)
		after()
	})
	if errors.Is(err, errGivenUp) {
		return true, err
	}
	if err == nil && !write && want != nil && !bytes.Equal(page, want) {
		err = fmt.Errorf("read %s: a page that was just written reads back as something else", file.Name())
	}
	return false, errors.Join(err, blockio.Free(page))
}

// reopen opens a device by its path again, if this cache is there.
func (s *Store) reopen(d *device) error {
	if err := trust.Dir(d.dir); err != nil { // another disk may be mounted there now
		return err
	}
	path := filepath.Join(d.dir, formatName)
	b, err := readSmall(path)
	if err != nil {
		return err
	}
	f, dir, dirs, err := decodeFormat(b)
	if err == nil && (f != s.format || dir != d.number || dirs != len(s.dirs)) {
		err = errors.New("it belongs to another cache")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return s.openArena(d)
}

// waitProbes joins the probes, until ctx ends.
func (s *Store) waitProbes(ctx context.Context) error {
	over := make(chan struct{})
	go func() { s.probes.Wait(); close(over) }()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return &HungError{What: "a probe of a device", Err: context.Cause(ctx)}
	}
}

// updatePlacing turns a device on or off for new blocks, as its state requires. It reports whether the device is off. No lock may be held.
func (s *Store) updatePlacing(d *device) (off bool) {
	for {
		off = d.read.isQuarantined() || d.write.isQuarantined()
		s.launch(s.free.turnOff(d.number, off)...)
		if off == (d.read.isQuarantined() || d.write.isQuarantined()) { // otherwise it was quarantined just now
			return off
		}
	}
}

// defaultDeadline is how long a device may complete nothing.
const defaultDeadline = 5 * time.Second

// defaultProbe is the wait for the first probe.
const defaultProbe = 2 * time.Second
