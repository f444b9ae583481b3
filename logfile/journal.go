package logfile

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"lcache/internal/disk/durable"
	"lcache/sample"

	"golang.org/x/sys/unix"
)

// maxUnwritten bounds the records in memory for a journal that can't be written. Further records are dropped: after a restart their
// samples come from the source.
const maxUnwritten = 64 << 20

// journal is the file of one Logfile, and the records that are not written to it yet.
type journal struct {
	seed  uint64
	path  string // for errors
	trace durable.Trace

	mu      sync.Mutex // guards pending; taken after a segment's mu
	pending []byte

	wmu      sync.Mutex // guards the fields that follow, and the file; taken before mu
	f        *os.File   // nil if it can't be written: records are dropped
	off      int64      // where the next record goes
	batch    []byte     // written by the last flush; its memory becomes pending again
	unsynced bool       // written since the last sync

	live atomic.Int64 // bytes of the records of live blocks, approximately; only for packages

	broken  atomic.Pointer[error] // the first failed sync, of arena or journal
	dropped atomic.Bool           // its Logfile is dropped: its records are not needed
	closed  atomic.Bool           // f is nil; for readers without wmu
}

// add queues a record.
func (j *journal) add(r *record, indices []sample.Index) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.pending) < maxUnwritten {
		j.pending = appendRecord(j.pending, r, indices, j.seed)
	}
}

// flush writes the queued records. Records that can't be written are queued again.
func (j *journal) flush() (n int, err error) {
	j.wmu.Lock()
	defer j.wmu.Unlock()
	return j.flushLocked()
}

func (j *journal) flushLocked() (int, error) {
	j.mu.Lock()
	batch := j.pending
	j.pending = j.batch[:0]
	j.mu.Unlock()
	j.batch = batch
	if len(batch) == 0 || j.f == nil || j.dropped.Load() {
		return 0, nil
	}
	err := j.trace.Report(durable.Change{Step: durable.StepWrite, Path: j.path, Off: j.off, Data: batch})
	if err == nil {
		_, err = j.f.WriteAt(batch, j.off)
	}
	if err != nil {
		j.mu.Lock()
		j.pending, j.batch = append(batch, j.pending...), nil
		j.mu.Unlock()
		return 0, fmt.Errorf("write %s: %w", j.path, err)
	}
	j.off += int64(len(batch))
	j.unsynced = true
	if cap(j.batch) > 1<<20 {
		j.batch = nil
	}
	return len(batch), nil
}

// sync writes the queued records and makes the journal durable. A failed sync is not retried: the kernel may have dropped the pages,
// and would report success.
func (j *journal) sync() error {
	j.wmu.Lock()
	defer j.wmu.Unlock()
	_, err := j.flushLocked()
	if !j.unsynced || j.f == nil { // it was closed after the caller looked
		return err
	}
	j.unsynced = false
	syncErr := j.trace.Report(durable.Change{Step: durable.StepSync, Path: j.path})
	if syncErr == nil {
		syncErr = fdatasync(j.f)
	}
	if syncErr == nil {
		syncErr = j.trace.Report(durable.Change{Step: durable.StepSynced, Path: j.path})
	}
	if syncErr != nil && !j.dropped.Load() {
		return errors.Join(err, fmt.Errorf("fdatasync %s: %w", j.path, syncErr))
	}
	return err
}

func fdatasync(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// fail records that a sync failed, so that blocks or records of this journal may not be durable.
func (j *journal) fail(err error) { j.broken.CompareAndSwap(nil, &err) }

func (j *journal) failure() error {
	if err := j.broken.Load(); err != nil {
		return *err
	}
	return nil
}

// close does not wait for a write or sync in progress, which may hang. The file is closed after it.
func (j *journal) close() error {
	if !j.wmu.TryLock() {
		go func() {
			j.wmu.Lock()
			defer j.wmu.Unlock()
			_ = j.closeLocked() // the sync has reported the errors of the data
		}()
		return nil
	}
	defer j.wmu.Unlock()
	return j.closeLocked()
}

func (j *journal) closeLocked() error {
	if j.f == nil {
		return nil
	}
	f := j.f
	j.f = nil
	j.closed.Store(true)
	return f.Close()
}

// beginJournal replaces the journal at path by one with only a header.
func beginJournal(path string, h *Header, gen, seed uint64, expect int64, trace durable.Trace) (*journal, error) {
	v, err := trace.Begin(path)
	if err != nil {
		return nil, fmt.Errorf("begin journal: %w", err)
	}
	head := encodeHeader(h, gen, seed)
	// Reserve the space now, so that records fit even if other programs fill the disk later. It is not needed, so errors are ignored.
	_ = durable.Fallocate(v.File, unix.FALLOC_FL_KEEP_SIZE, int64(len(head))+expect)
	if _, err = v.Write(head); err == nil {
		err = v.Commit()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("begin journal: %w", err), v.Discard())
	}
	return &journal{seed: seed, path: path, trace: trace, f: v.File, off: int64(len(head))}, nil
}
