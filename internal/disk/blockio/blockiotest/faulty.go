package blockiotest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lcache/internal/disk/blockio"
)

// faultCase is one kind of fault in a transfer of four blocks.
type faultCase struct {
	name  string
	write bool
	fault blockio.Fault
	err   error
	wrong []int64 // blocks that have other bytes afterwards
}

// released is a closed channel, so a Fault with it does not wait. It only runs the code for waiting.
var released = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

const faultBytes = 4 * unit

var faultCases = []faultCase{
	{name: "none"},
	{name: "EIO in a read", fault: blockio.Fault{Err: unix.EIO}, err: unix.EIO},
	{name: "EIO in a late read", fault: blockio.Fault{Err: unix.EIO, Hold: released}, err: unix.EIO},
	{name: "ENOSPC in a write", write: true, fault: blockio.Fault{Err: unix.ENOSPC}, err: unix.ENOSPC, wrong: []int64{0, 1, 2, 3}},
	{name: "late write", write: true, fault: blockio.Fault{Hold: released}},
	{name: "busy read", fault: blockio.Fault{Again: 10}},
	{name: "busy write", write: true, fault: blockio.Fault{Again: 10}},
	{name: "ever busy read", fault: blockio.Fault{Again: 1 << 20}, err: unix.EAGAIN},
	{name: "short read", fault: blockio.Fault{Short: unit}},
	{name: "short read off the grid", fault: blockio.Fault{Short: unit + 1}},
	{name: "short write", write: true, fault: blockio.Fault{Short: 3 * unit}},
	{name: "short, busy write", write: true, fault: blockio.Fault{Short: unit, Again: 3}},
	{name: "torn write", write: true, fault: blockio.Fault{Torn: 2 * unit}, wrong: []int64{2, 3}},
	{name: "misdirected write", write: true, fault: blockio.Fault{Misplace: faultBytes}, wrong: []int64{0, 1, 2, 3}},
	{name: "misdirected read", fault: blockio.Fault{Misplace: faultBytes}, wrong: []int64{0, 1, 2, 3}},
	{name: "flipped bit", fault: blockio.Fault{Flip: 8*unit + 4}, wrong: []int64{1}},
}

// faults checks that each kind of Fault has its effect, and that the engine recovers from the ones that it must handle.
func faults(t *testing.T, eng *blockio.IO) {
	f := newFile(t, eng, 4*faultBytes)
	mem := Mem(t, faultBytes)
	for _, c := range faultCases {
		t.Run(c.name, func(t *testing.T) { c.run(t, eng, f, mem) })
	}
	for _, c := range []struct {
		fault blockio.Fault
		err   error
	}{{blockio.Fault{Err: unix.EIO}, unix.EIO}, {blockio.Fault{Again: 3}, nil}, {blockio.Fault{Torn: 1, Flip: 1, Misplace: 1}, nil}} {
		blockio.Inject(eng, func(_ int64, op *blockio.Op) blockio.Fault {
			if !op.Write || op.Buf != nil {
				t.Errorf("a sync looks like a transfer of %d bytes", len(op.Buf))
			}
			return c.fault
		})
		want(t, "sync", f.Sync(), c.err)
	}
}

// run makes one transfer with the fault and checks the bytes of each block afterwards.
func (c *faultCase) run(t *testing.T, eng *blockio.IO, f *blockio.File, mem []byte) {
	for i, seed := range []byte{1, 2} {
		off := int64(i) * faultBytes
		fill(mem, off, seed)
		mustWrite(t, eng, f, off, mem)
	}
	seed := byte(1)
	if c.write {
		seed = 3
	}
	fill(mem, 0, seed)
	blockio.Inject(eng, func(int64, *blockio.Op) blockio.Fault { return c.fault })
	var err error
	if c.write {
		err = eng.Write(t.Context(), f, 0, mem)
	} else {
		clear(mem)
		err = eng.Read(t.Context(), f, 0, mem)
	}
	blockio.Inject(eng, nil)
	want(t, c.name, err, c.err)
	if c.err != nil && !c.write {
		return // a failed read may leave any bytes in the buffer
	}
	if c.write {
		mustRead(t, eng, f, 0, mem)
	}
	for i := range int64(4) {
		wrong := checkFill(mem[i*unit:][:unit], i*unit, seed)
		if should := slices.Contains(c.wrong, i); should != (wrong != nil) {
			t.Errorf("block %d wrong: %v, want %t", i, wrong, should)
		}
	}
}

// lost makes a ring lose transfers and a sync, once and again: it must submit them again. Other engines have no effect to show.
func lost(t *testing.T, eng *blockio.IO) {
	blockio.InjectTick(eng, time.Millisecond)
	f := newFile(t, eng, faultBytes)
	mem := Mem(t, faultBytes)
	want(t, "register", eng.Register(mem), nil)
	for times := range 3 {
		seed := byte(times)
		fill(mem, 0, seed)
		blockio.Inject(eng, func(int64, *blockio.Op) blockio.Fault { return blockio.Fault{Lost: times, Short: unit} })
		want(t, "write", eng.Write(t.Context(), f, 0, mem), nil)
		want(t, "sync", f.Sync(), nil)
		clear(mem)
		want(t, "read", eng.Read(t.Context(), f, 0, mem), nil)
		want(t, "bytes", checkFill(mem, 0, seed), nil)
	}
	want(t, "unregister", eng.Unregister(mem), nil)
}

// nthFails makes the n-th of some operations fail, for every n, and expects that the others are not affected.
func nthFails(t *testing.T, eng *blockio.IO) {
	const n = 12
	f := newFile(t, eng, n*unit)
	mem := Mem(t, n*unit)
	fill(mem, 0, 4)
	mustWrite(t, eng, f, 0, mem)
	for bad := range int64(n + 1) {
		blockio.Inject(eng, func(i int64, _ *blockio.Op) blockio.Fault {
			if i == bad {
				return blockio.Fault{Err: unix.EIO}
			}
			return blockio.Fault{}
		})
		clear(mem)
		ops, c := make([]*blockio.Op, n), newTally(n)
		for i := range ops {
			off := int64(i) * unit
			ops[i] = &blockio.Op{File: f, Offset: off, Buf: mem[off:][:unit], Done: c.done(i)}
		}
		eng.Submit(ops...)
		for i, err := range c.wait(t) {
			what := fmt.Sprintf("operation %d with %d failing", i, bad)
			if int64(i) == bad {
				want(t, what, err, unix.EIO)
				continue
			}
			want(t, what, errors.Join(err, checkFill(mem[i*unit:][:unit], int64(i)*unit, 4)), nil)
		}
	}
}

// allFail makes several goroutines submit operations that never reach the kernel, each waiting for its own. So no other completion wakes
// the engine for a forgotten one.
func allFail(t *testing.T, eng *blockio.IO) {
	const submitters, each = 4, 5000
	f := newFile(t, eng, unit)
	mem := Mem(t, submitters*unit)
	blockio.Inject(eng, func(int64, *blockio.Op) blockio.Fault { return blockio.Fault{Err: unix.EIO} })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	errs := make(chan error, submitters)
	for i := range submitters {
		go func() {
			for n := range each {
				if err := eng.Read(ctx, f, 0, mem[i*unit:][:unit]); !errors.Is(err, unix.EIO) {
					errs <- fmt.Errorf("operation %d of submitter %d: got %v, want EIO", n, i, err)
					return
				}
			}
			errs <- nil
		}()
	}
	for range submitters {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}
