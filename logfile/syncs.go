package logfile

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// batchTime is how long records are collected before they are written: long enough to write hundreds at once, short enough that a killed
// process loses few blocks.
const batchTime = 20 * time.Millisecond

// wake notifies the journals' goroutine that a record is queued.
func (s *Store) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// writeJournals runs until Close. Only it writes records, except for syncs.
func (s *Store) writeJournals() {
	for {
		select {
		case <-s.stop:
			return
		case <-s.kick:
		}
		select {
		case <-s.stop:
			return
		case <-time.After(batchTime):
		}
		s.flushJournals()
	}
}

// flushJournals writes the queued records of all logs. When the Store stops, it does not wait for a hung write.
func (s *Store) flushJournals() {
	for _, l := range s.all() {
		_ = Within(s.stopped, "write of "+l.journal.path, func() error {
			n, err := l.journal.flush()
			s.journalWritten(n, err)
			if p := s.Packages(); p != nil && p.log == l {
				p.rewriteJournal()
			}
			return nil
		})
	}
}

func (s *Store) journalWritten(n int, err error) {
	s.stats.journalBytes.Add(uint64(n))
	if err != nil {
		s.stats.journalErrors.Add(1)
		s.log.Warn("records wait", "err", err)
	}
}

// syncJournals runs until Close. It is not the goroutine that writes records, because a sync may take seconds.
func (s *Store) syncJournals(every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
			if s.dirty.Load() {
				_ = s.syncAll(s.stopped, nil) // logged and counted; Seal and Close return it
			}
		}
	}
}

// syncAll makes all earlier writes durable: first the blocks, then the records that point to them. It returns the error of a failed sync
// that concerned l, now or earlier. A failed sync is never retried: the kernel may have dropped the pages, and would report success. If
// ctx ends first, the sync continues, and a later sync covers the writes that it may have missed.
//
// Blocks on a quarantined device are not synced. As always, their checksums decide whether they are used.
func (s *Store) syncAll(ctx context.Context, l *Logfile) error {
	if err := s.syncTurn.take(ctx); err != nil {
		return &HungError{What: "another sync", Err: err}
	}
	defer s.syncTurn.release()
	if s.dirty.Swap(false) {
		if err := s.syncOnce(ctx); err != nil {
			s.dirty.Store(true)
			return err
		}
	}
	if l == nil {
		return nil
	}
	if err := l.journal.failure(); err != nil {
		return fmt.Errorf("not all of the log of %s is durable: %w", l.journal.path, err)
	}
	return nil
}

// syncOnce syncs once. It returns an error only if ctx ended first. A failed sync is recorded with the Logfiles that it concerns.
func (s *Store) syncOnce(ctx context.Context) error {
	all := s.all()
	if s.before != nil {
		err := Within(ctx, "sync of stored lengths", func() error {
			s.syncFailed(s.before(), all...)
			return nil
		})
		if err != nil {
			return err
		}
	}
	failed, unfinished := s.syncDevices(ctx)
	s.syncFailed(failed, all...)
	if unfinished != nil { // not failed: a later sync covers it
		return unfinished
	}
	for _, l := range all {
		err := Within(ctx, "fdatasync of "+l.journal.path, func() error {
			s.syncFailed(l.journal.sync(), l)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// syncDevices syncs all arenas. failed has the errors of syncs; unfinished means that ctx ended first.
func (s *Store) syncDevices(ctx context.Context) (failed, unfinished error) {
	for _, d := range s.devices {
		err := d.sync(ctx)
		if err != nil && ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
			unfinished = errors.Join(unfinished, err)
			continue
		}
		if err != nil { // it counts as any other error of the device
			d.write.began()
			s.ended(d, true, err)
		}
		failed = errors.Join(failed, err)
	}
	return failed, unfinished
}

func (s *Store) syncFailed(err error, concerned ...*Logfile) {
	if err == nil {
		return
	}
	s.stats.syncErrors.Add(1)
	s.log.Error("sync failed: data written since the last sync may not survive a power cut", "err", err)
	for _, l := range concerned {
		l.journal.fail(err)
	}
}
