package blockiotest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"lcache/internal/disk/blockio"
)

func roundTrip(t *testing.T, eng *blockio.IO) {
	const room = 8 << 20
	f := newFile(t, eng, room)
	out, in := Mem(t, 3<<20), Mem(t, 3<<20)
	for i, c := range []struct{ off, n int64 }{
		{0, unit}, {unit, unit}, {12 * unit, 64 << 10}, {1 << 20, 1 << 20}, {room - 3<<20, 3 << 20}, {room - unit, unit},
	} {
		seed := byte(i)
		fill(out[:c.n], c.off, seed)
		mustWrite(t, eng, f, c.off, out[:c.n])
		clear(in)
		mustRead(t, eng, f, c.off, in[:c.n])
		if err := checkFill(in[:c.n], c.off, seed); err != nil {
			t.Errorf("%d bytes at %d: %v", c.n, c.off, err)
		}
	}
	want(t, "sync", f.Sync(), nil)
	if n, err := f.Size(); n != room || err != nil {
		t.Errorf("size %d, %v; want %d", n, err, room)
	}
}

func manyInFlight(t *testing.T, eng *blockio.IO) {
	const n, size = 400, 2 * unit
	f := newFile(t, eng, n*size)
	mem := Mem(t, n*size)
	fill(mem, 0, 7)
	run := func(write bool) {
		ops, c := make([]*blockio.Op, n), newTally(n)
		for i, k := range rand.New(rand.NewPCG(1, 2)).Perm(n) {
			off := int64(k) * size
			ops[i] = &blockio.Op{File: f, Write: write, Offset: off, Buf: mem[off:][:size], Done: c.done(i)}
		}
		eng.Submit(ops...)
		c.waitAll(t, nil)
		for i, op := range ops {
			if op.Transferred() != size {
				t.Errorf("operation %d moved %d bytes, want %d", i, op.Transferred(), size)
			}
		}
	}
	run(true)
	clear(mem)
	run(false)
	if err := checkFill(mem, 0, 7); err != nil {
		t.Error(err)
	}
}

func manySubmitters(t *testing.T, eng *blockio.IO) {
	const workers, each, size = 8, 40, unit
	f := newFile(t, eng, workers*each*size)
	mem := Mem(t, workers*size)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			buf, ctx := mem[w*size:][:size], context.Background()
			for i := range each {
				off := int64(i*workers+w) * size // neighbours belong to others
				fill(buf, off, byte(w))
				err := eng.Write(ctx, f, off, buf)
				clear(buf)
				err = errors.Join(err, eng.Read(ctx, f, off, buf), checkFill(buf, off, byte(w)))
				if err != nil {
					t.Errorf("worker %d, block %d: %v", w, i, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func endOfFile(t *testing.T, eng *blockio.IO) {
	f := newFile(t, eng, 3*unit)
	mem := Mem(t, 4*unit)
	fill(mem[:3*unit], 0, 1)
	mustWrite(t, eng, f, 0, mem[:3*unit])
	for _, c := range []struct{ off, n, moved int }{
		{0, 3 * unit, 3 * unit}, {0, 4 * unit, 3 * unit}, {2 * unit, 2 * unit, unit}, {3 * unit, unit, 0}, {64 * unit, unit, 0},
	} {
		ended := newTally(1)
		op := &blockio.Op{File: f, Offset: int64(c.off), Buf: mem[:c.n], Done: ended.done(0)}
		clear(mem)
		eng.Submit(op)
		err := ended.wait(t)[0]
		what := fmt.Sprintf("%d bytes at %d", c.n, c.off)
		if c.moved == c.n {
			want(t, what, err, nil)
		} else {
			want(t, what, err, io.ErrUnexpectedEOF)
		}
		if op.Transferred() != c.moved {
			t.Errorf("%s: %d bytes came, want %d", what, op.Transferred(), c.moved)
		}
		if err := checkFill(mem[:c.moved], int64(c.off), 1); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	// A file whose end is off the grid, as another program may have cut it.
	const cut = 2*unit + 100
	if err := os.Truncate(f.Name(), cut); err != nil {
		t.Fatal(err)
	}
	ended := newTally(1)
	op := &blockio.Op{File: f, Offset: unit, Buf: mem[:2*unit], Done: ended.done(0)}
	eng.Submit(op)
	want(t, "read of a cut file", ended.wait(t)[0], io.ErrUnexpectedEOF)
	if op.Transferred() != unit+100 {
		t.Errorf("%d bytes came of a cut file, want %d", op.Transferred(), unit+100)
	}
}

func alignment(t *testing.T, eng *blockio.IO) {
	f := newFile(t, eng, 4*unit)
	mem := Mem(t, 4*unit)
	for _, c := range []struct {
		what         string
		addr, off, n int
	}{
		{"address", 1, 0, unit}, {"offset", 0, 1, unit}, {"length", 0, 0, unit + 1}, {"length", 0, 0, unit - 1},
	} {
		for _, write := range []bool{false, true} {
			fill(mem, 0, 9)
			mustWrite(t, eng, f, 0, mem)
			buf := mem[c.addr:][:c.n]
			fill(buf, int64(c.off), 10)
			ended := newTally(1)
			eng.Submit(&blockio.Op{File: f, Write: write, Offset: int64(c.off), Buf: buf, Done: ended.done(0)})
			err := ended.wait(t)[0]
			var bad *blockio.AlignmentError
			switch {
			case f.Direct() && !errors.As(err, &bad):
				t.Errorf("%s, write %t: got %v, want an alignment error", c.what, write, err)
			case f.Direct() && bad.What != c.what:
				t.Errorf("%s, write %t: error blames the %s", c.what, write, bad.What)
			case !f.Direct() && err != nil:
				t.Errorf("%s, write %t, buffered: %v", c.what, write, err)
			}
			if f.Direct() { // it must not have reached the kernel
				if err := checkFill(buf, int64(c.off), 10); err != nil {
					t.Errorf("%s, write %t: buffer: %v", c.what, write, err)
				}
				mustRead(t, eng, f, 0, mem)
				if err := checkFill(mem, 0, 9); err != nil {
					t.Errorf("%s, write %t: file: %v", c.what, write, err)
				}
			}
		}
	}
	err := eng.Read(context.Background(), f, -unit, mem[:unit])
	if err == nil {
		t.Error("a negative offset was taken")
	}
}

func emptyBuffer(t *testing.T, eng *blockio.IO) {
	f := newFile(t, eng, unit)
	want(t, "read", eng.Read(context.Background(), f, 0, nil), nil)
	want(t, "write", eng.Write(context.Background(), f, 0, nil), nil)
}

func registered(t *testing.T, eng *blockio.IO) {
	f := newFile(t, eng, 1<<20)
	big := Mem(t, 1<<20)
	for range 2 { // a second time, after it was taken back
		want(t, "register", eng.Register(big[:512<<10]), nil)
		want(t, "register more", eng.Register(big[512<<10:]), nil)
		// Inside the first, inside the second, and across both.
		for i, c := range []struct{ lo, n int }{{0, unit}, {768 << 10, 128 << 10}, {384 << 10, 256 << 10}} {
			buf := big[c.lo:][:c.n]
			fill(buf, 0, byte(i))
			mustWrite(t, eng, f, 0, buf)
			clear(buf)
			mustRead(t, eng, f, 0, buf)
			if err := checkFill(buf, 0, byte(i)); err != nil {
				t.Errorf("memory from %d: %v", c.lo, err)
			}
		}
		want(t, "unregister", eng.Unregister(big), nil)
	}
	if eng.Register(nil) == nil {
		t.Error("empty memory was registered")
	}
}
