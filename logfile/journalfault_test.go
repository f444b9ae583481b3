package logfile

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/sample"

	"golang.org/x/sys/unix"
)

// journalLife takes a Store through every operation that writes journals. It stops at the first error of Begin, and returns the samples that a Seal without an
// error covered.
func (b *bed) journalLife(ctx context.Context) (promised []sample.Index, err error) {
	starts := func(room int) []uint64 { return []uint64{0, uint64(room)} }
	head := Header{Fingerprint: b.opts.Fingerprint, Key: [16]byte{7}, Segments: 1, SegmentBlocks: 20}
	first, err := b.s.Begin(0, head, starts(4))
	if err != nil {
		return nil, err
	}
	second, err := b.s.Begin(1, head, starts(6))
	if err != nil {
		return nil, err
	}
	put := func(l *Logfile, i sample.Index) {
		if _, err := l.Append(ctx, 0, i, b.content(i)); err != nil && ctx.Err() == nil {
			b.t.Error(err)
		}
	}
	put(first, 0)
	put(second, 1)
	_ = first.Seal(ctx)
	put(second, 2)
	sealed := second.Seal(ctx)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	_ = b.s.Drop(0)
	if _, err = b.s.Begin(0, head, starts(4)); err != nil {
		return nil, err
	}
	put(second, 3)
	if err := second.WriteTails(ctx); err != nil && ctx.Err() == nil {
		b.t.Error(err)
	}
	if again := second.Seal(ctx); again == nil {
		return []sample.Index{1, 2, 3}, nil
	}
	if sealed == nil {
		return []sample.Index{1, 2}, nil
	}
	return nil, nil
}

func journalBed(t *testing.T) *bed { return newBed(t, 1, 4096, 20, []uint32{4096, 4096, 8000, 4000}) }

// Whichever step of a journal fails, all samples that a Seal covered are found after a kill, and no place is lost. A Store that closes without an
// error has lost nothing.
func TestNthJournalStepFails(t *testing.T) {
	for nth := int64(0); ; nth++ {
		b := journalBed(t)
		b.open()
		what := ""
		blockio.InjectPlain(b.opts.IO, func(n int64, path, step string) blockio.Fault {
			if n != nth {
				return blockio.Fault{}
			}
			what = fmt.Sprintf("step %d, %s of %s", n, step, path)
			return blockio.Fault{Err: unix.EIO}
		})
		promised, err := b.journalLife(t.Context())
		if err != nil && !errors.Is(err, unix.EIO) {
			t.Errorf("%s: %v", what, err)
		}
		crashed := b.crashed()
		closeErr := b.s.Close()
		if closeErr != nil && !errors.Is(closeErr, unix.EIO) {
			t.Errorf("%s: close: %v", what, closeErr)
		}
		blockio.InjectPlain(b.opts.IO, nil)
		blockio.InjectPlain(crashed.opts.IO, nil)
		for name, bed := range map[string]*bed{"killed": crashed, "closed": b} {
			if name == "closed" && closeErr == nil && err == nil {
				promised = []sample.Index{1, 2, 3}
			}
			have := bed.stored()
			for _, i := range promised {
				if !have[i] {
					t.Errorf("%s: %s: sample %d is gone, which was promised", what, name, i)
				}
			}
		}
		if what == "" {
			if nth < 15 {
				t.Errorf("there were only %d steps", nth)
			}
			return
		}
	}
}

// Whichever step of a journal hangs, Close returns and reports it, and does not free memory in use. When the disk answers after all, the
// step ends normally.
func TestCloseLeavesAHungJournal(t *testing.T) {
	for nth := int64(0); ; nth++ {
		b := journalBed(t)
		b.opts.CloseTimeout = 5 * time.Millisecond
		b.open()
		hold, hung, over := make(chan struct{}), make(chan string, 1), make(chan struct{})
		blockio.InjectPlain(b.opts.IO, func(n int64, path, step string) blockio.Fault {
			if n != nth {
				return blockio.Fault{}
			}
			hung <- step + " of " + path
			return blockio.Fault{Hold: hold}
		})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(over)
			_, _ = b.journalLife(ctx)
		}()
		what := ""
		select {
		case what = <-hung:
		case <-over:
		}
		cancel()
		if !strings.Contains(what, ".new") && !strings.Contains(what, "remove") && !strings.HasSuffix(what, b.dirs[0]) {
			<-over // else Begin or Drop hangs, for which no context ends
		}
		closed := make(chan error, 1)
		go func() { closed <- b.s.Close() }()
		select {
		case err := <-closed:
			if late := new(HungError); what != "" && !errors.As(err, &late) {
				t.Errorf("step %d, %s, hangs; close: %v", nth, what, err)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("step %d, %s, hangs, and so does close", nth, what)
		}
		close(hold)
		<-over
		for range 2 { // the first may begin writes of its own; then memory that was left to a transfer is given back
			_ = b.s.transfers.wait(t.Context())
			_ = b.s.Close()
		}
		if t.Failed() || what == "" {
			return
		}
	}
}

// A Logfile that is dropped while a sync is under way has nothing to be made durable: no sync failed.
func TestDropDuringASync(t *testing.T) {
	b := newBed(t, 1, 4096, 20, []uint32{4096, 4096})
	b.open()
	first, second := b.begin(0, 0, 1, 20, 3), b.begin(1, 1, 1, 20, 3)
	b.append(first, 0, 0)
	b.append(second, 0, 1)
	b.flush(first)
	b.flush(second)
	b.s.flushJournals() // written, and not synced
	hold, syncing := make(chan struct{}), make(chan struct{}, 1)
	blockio.Inject(b.opts.IO, func(_ int64, op *blockio.Op) blockio.Fault {
		if op.Buf != nil {
			return blockio.Fault{}
		}
		select {
		case syncing <- struct{}{}:
		default:
		}
		return blockio.Fault{Hold: hold}
	})
	sealed := make(chan error)
	go func() { sealed <- second.Seal(t.Context()) }()
	<-syncing
	if err := b.s.Drop(0); err != nil {
		t.Error(err)
	}
	close(hold)
	if err := <-sealed; err != nil {
		t.Errorf("seal of the other one: %v", err)
	}
	if n := b.s.Stats().SyncErrors; n != 0 {
		t.Errorf("%d syncs failed, of a disk without errors", n)
	}
	blockio.Inject(b.opts.IO, nil)
	b.close()
}

// Drop, and Begin in the place of an empty Logfile, do not wait for a sync of the journal that they end.
func TestDropLeavesAHungJournal(t *testing.T) {
	b := newBed(t, 1, 4096, 20, []uint32{4096, 4096})
	b.open()
	l := b.begin(0, 0, 1, 20, 3)
	b.append(l, 0, 0)
	b.flush(l)
	hold, syncing := make(chan struct{}), make(chan struct{}, 1)
	blockio.InjectPlain(b.opts.IO, func(_ int64, path, step string) blockio.Fault {
		if path != b.s.journalPath(0) || step != "sync" {
			return blockio.Fault{}
		}
		syncing <- struct{}{}
		return blockio.Fault{Hold: hold, Err: unix.EIO}
	})
	ctx, cancel := context.WithCancel(t.Context())
	sealed := make(chan error)
	go func() { sealed <- l.Seal(ctx) }()
	<-syncing
	cancel()
	if err, late := <-sealed, new(HungError); !errors.As(err, &late) {
		t.Errorf("seal: %v", err)
	}
	dropped := make(chan error, 1)
	go func() { dropped <- b.s.Drop(0) }()
	select {
	case err := <-dropped:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("drop waits for a sync that hangs")
	}
	close(hold)
	blockio.InjectPlain(b.opts.IO, nil)
	b.close() // nothing of a removed Logfile must be durable
}
