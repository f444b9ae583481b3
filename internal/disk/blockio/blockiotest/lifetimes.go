package blockiotest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"lcache/internal/disk/blockio"
)

// holdAll makes every operation hang until the returned function is called.
func holdAll(eng *blockio.IO) (release func()) {
	gate := make(chan struct{})
	blockio.Inject(eng, func(int64, *blockio.Op) blockio.Fault { return blockio.Fault{Hold: gate} })
	return sync.OnceFunc(func() { close(gate) })
}

func submitInDone(t *testing.T, eng *blockio.IO) {
	const chain = 200
	f := newFile(t, eng, chain*unit)
	mem := Mem(t, unit)
	ended := make(chan error, 1)
	n := 0
	// The same Op is reused, first for writing and then for reading each block.
	op := &blockio.Op{File: f, Write: true, Buf: mem}
	op.Done = func(op *blockio.Op, err error) {
		if err == nil && !op.Write {
			err = checkFill(mem, op.Offset, 3)
			if n++; n == chain {
				ended <- err
				return
			}
		}
		if err != nil {
			ended <- err
			return
		}
		op.Write = !op.Write
		op.Offset = int64(n) * unit
		if op.Write {
			fill(mem, op.Offset, 3)
		} else {
			clear(mem)
		}
		eng.Submit(op)
	}
	fill(mem, 0, 3)
	eng.Submit(op)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

func doneOutsideSubmit(t *testing.T, eng *blockio.IO) {
	f := newFile(t, eng, unit)
	mem := Mem(t, unit)
	c := newTally(3)
	var mu sync.Mutex
	underLock := func(i int) func(*blockio.Op, error) {
		return func(op *blockio.Op, err error) {
			mu.Lock()
			defer mu.Unlock()
			c.done(i)(op, err)
		}
	}
	submit := func(i int, off int64) {
		mu.Lock()
		defer mu.Unlock()
		eng.Submit(&blockio.Op{File: f, Offset: off, Buf: mem, Done: underLock(i)})
	}
	submit(0, 0)
	submit(1, -1) // ends without the kernel
	if err := eng.Close(); err != nil {
		t.Fatal(err)
	}
	submit(2, 0) // ends without an engine
	errs := c.wait(t)
	want(t, "read", errs[0], nil)
	want(t, "read after close", errs[2], blockio.ErrClosed)
	if errs[1] == nil {
		t.Error("a negative offset was taken")
	}
}

func closeDrains(t *testing.T, eng *blockio.IO) {
	const n = 100
	f := newFile(t, eng, n*unit)
	mem := Mem(t, n*unit)
	fill(mem, 0, 5)
	release := holdAll(eng)
	defer release()
	c := newTally(n + 1)
	for i := range n {
		if i == 10 {
			blockio.Inject(eng, nil) // the first ten hang, the rest may pass or wait behind them
		}
		off := int64(i) * unit
		eng.Submit(&blockio.Op{File: f, Write: true, Offset: off, Buf: mem[off:][:unit], Done: c.done(i)})
	}
	closed := make(chan struct{})
	begun := make(chan struct{})
	go func() {
		defer close(closed)
		close(begun)
		eng.Close()
	}()
	<-begun
	select {
	case <-closed:
		t.Error("Close came back with operations in flight")
	default:
	}
	release()
	await(t, "Close", closed)
	if got := len(c.results); got != n {
		t.Fatalf("after Close %d operations have ended, want %d", got, n)
	}
	eng.Submit(&blockio.Op{File: f, Buf: mem[:unit], Done: c.done(n)})
	errs := c.wait(t)
	want(t, "late operation", errs[n], blockio.ErrClosed)
	got, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range errs[:n] {
		want(t, "operation before Close", e, nil)
		if err := checkFill(got[i*unit:][:unit], int64(i)*unit, 5); err != nil {
			t.Error(err)
		}
	}
}

func closed(t *testing.T, eng *blockio.IO) {
	f := newFile(t, eng, unit)
	mem := Mem(t, unit)
	ctx := context.Background()
	want(t, "close the file", f.Close(), nil)
	want(t, "close it again", f.Close(), blockio.ErrClosed)
	want(t, "read a closed file", eng.Read(ctx, f, 0, mem), blockio.ErrClosed)
	want(t, "sync a closed file", f.Sync(), blockio.ErrClosed)
	want(t, "allocate in a closed file", f.Allocate(unit), blockio.ErrClosed)
	_, err := f.Size()
	want(t, "size of a closed file", err, blockio.ErrClosed)
	g := newFile(t, eng, unit)
	want(t, "close", eng.Close(), nil)
	want(t, "close again", eng.Close(), nil)
	want(t, "write after close", eng.Write(ctx, g, 0, mem), blockio.ErrClosed)
	want(t, "sync after close", g.Sync(), blockio.ErrClosed)
}

// fileClosedInFlight closes a file during an operation and opens another, which must not get the first one's number.
func fileClosedInFlight(t *testing.T, eng *blockio.IO) {
	f := newFile(t, eng, unit)
	mem := Mem(t, unit)
	fill(mem, 0, 6)
	release := holdAll(eng)
	defer release()
	c := newTally(1)
	eng.Submit(&blockio.Op{File: f, Write: true, Buf: mem, Done: c.done(0)})
	want(t, "close the file", f.Close(), nil)
	other, err := os.Create(filepath.Join(t.TempDir(), "other"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	release()
	c.waitAll(t, nil)
	if fi, err := other.Stat(); err != nil || fi.Size() != 0 {
		t.Errorf("the other file has %d bytes (%v), want none", fi.Size(), err)
	}
	got, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	if err := checkFill(got, 0, 6); err != nil {
		t.Error(err)
	}
}

func contextEnds(t *testing.T, eng *blockio.IO) {
	f := newFile(t, eng, unit)
	mem := Mem(t, unit)
	fill(mem, 0, 8)
	mustWrite(t, eng, f, 0, mem)
	clear(mem)
	gate := make(chan struct{})
	release := sync.OnceFunc(func() { close(gate) })
	defer release()
	ctx, cancel := context.WithCancel(context.Background())
	blockio.Inject(eng, func(int64, *blockio.Op) blockio.Fault {
		cancel() // inside Submit: after Read's first look at the context, before its wait
		return blockio.Fault{Hold: gate}
	})
	err := eng.Read(ctx, f, 0, mem)
	want(t, "read", err, context.Canceled)
	var u *blockio.Unfinished
	if !errors.As(err, &u) {
		t.Fatalf("got error %v, want an Unfinished", err)
	}
	select {
	case <-blockio.Settled(err):
		t.Fatalf("the buffer of a read in flight counts as free (%v)", err)
	default:
	}
	release()
	await(t, "the end of the read", blockio.Settled(err))
	if err := checkFill(mem, 0, 8); err != nil {
		t.Errorf("the late read: %v", err)
	}
	err = eng.Write(ctx, f, 0, mem)
	want(t, "write under an ended context", err, context.Canceled)
	if errors.As(err, &u) {
		t.Error("a write that was never begun counts as unfinished")
	}
	await(t, "the end of a write not begun", blockio.Settled(err))
}
