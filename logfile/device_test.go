package logfile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lcache/internal/disk/blockio"

	"golang.org/x/sys/unix"
)

// sick makes the devices of a bed fail, or hang, by their number.
type sick struct {
	err    [3]atomic.Pointer[error]
	hold   [3]atomic.Pointer[chan struct{}]
	writes atomic.Bool // only they are concerned
	asked  [3]atomic.Int64
	seen   chan struct{} // one value for each requested transfer
}

// await waits for n requested transfers.
func (k *sick) await(n int) {
	for range n {
		<-k.seen
	}
}

func (b *bed) sick() *sick {
	k := &sick{seen: make(chan struct{}, 10_000)}
	blockio.Inject(b.opts.IO, func(_ int64, op *blockio.Op) (f blockio.Fault) {
		i := slices.Index(b.dirs, filepath.Dir(op.File.Name()))
		if op.Buf == nil {
			return f
		}
		k.asked[i].Add(1)
		k.seen <- struct{}{}
		if k.writes.Load() && !op.Write {
			return f
		}
		if err := k.err[i].Load(); err != nil {
			f.Err = *err
		}
		if hold := k.hold[i].Load(); hold != nil {
			f.Hold = *hold
		}
		return f
	})
	b.t.Cleanup(func() { blockio.Inject(b.opts.IO, nil) })
	return k
}

func (k *sick) fail(device int, err error) {
	if err == nil {
		k.err[device].Store(nil)
		return
	}
	k.err[device].Store(&err)
}

func (k *sick) hang(device int) (release func()) {
	c := make(chan struct{})
	k.hold[device].Store(&c)
	return sync.OnceFunc(func() { k.hold[device].Store(nil); close(c) })
}

// clock gives the bed's Store a time that passes only on request, and makes it look for hangs and probe only then.
func (b *bed) clock() (pass func(time.Duration)) {
	var now atomic.Int64
	start := time.Now()
	b.s.now = func() time.Time { return start.Add(time.Duration(now.Load())) }
	return func(d time.Duration) {
		now.Add(int64(d))
		b.s.checkDevices()
		b.s.probes.Wait()
	}
}

// deviceBed has n samples of a block each, and room for twice as many over two directories.
func deviceBed(t *testing.T, n int) *bed {
	b := newBed(t, 2, 4096, 4*n, slices.Repeat([]uint32{4096}, n))
	b.opts.Deadline = time.Hour
	b.opts.IO = openIODepth(t, 64)
	return b
}

func (b *bed) states() (list []string) {
	for _, d := range b.s.Devices() {
		list = append(list, d.State)
	}
	return list
}

func (b *bed) wantStates(want ...string) {
	b.t.Helper()
	if got := b.states(); !slices.Equal(got, want) {
		b.t.Errorf("devices are %v, want %v", got, want)
	}
}

func (b *bed) fill(l *Logfile, from, to int) {
	b.t.Helper()
	for i := from; i < to; i++ {
		b.append(l, 0, uint32(i))
	}
}

// blocksOn lists the blocks of segment 0 on each device.
func (b *bed) blocksOn(l *Logfile) (on [2][]uint64) {
	for j := range l.segs[0].blocks {
		d := int(l.segs[0].blocks[j].place) % 2
		on[d] = append(on[d], uint64(j))
	}
	return on
}

func (b *bed) flush(l *Logfile) {
	b.t.Helper()
	if err := l.Flush(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

// A device that fails is quarantined after three errors. Blocks that it failed to write are written elsewhere, and only probes use it. When
// they succeed, it gets blocks again.
func TestDeviceFailsAndComesBack(t *testing.T) {
	const n = 60
	b := deviceBed(t, n)
	b.open()
	pass := b.clock()
	k := b.sick()
	l := b.begin(0, 0, 1, 4*n, n)
	for i := range 10 {
		b.fill(l, i, i+1)
		b.flush(l) // so that each block is dealt to the next device
	}
	b.wantStates(DeviceNormal, DeviceNormal)
	k.fail(1, unix.EIO)
	b.fill(l, 10, 40)
	b.flush(l)
	b.wantStates(DeviceNormal, DeviceReadOnly)
	d := b.s.Devices()[1]
	if most := uint64(5 + 4); d.Blocks > most || d.Errors < asideErrors || !strings.Contains(d.LastError, "input/output error") {
		t.Errorf("%+v: want at most %d blocks dealt to it", d, most)
	}
	for range 3 { // reading fails, too
		if err := readBlock(l, 0, 1, aligned(t, 4096)); err == nil {
			t.Error("a sick device gave a block")
		}
	}
	b.wantStates(DeviceNormal, DeviceAside)
	asked := k.asked[1].Load()
	if err := readBlock(l, 0, 1, aligned(t, 4096)); !isErr(err, ErrQuarantined) || k.asked[1].Load() != asked {
		t.Errorf("got %v, the device was asked %d times", err, k.asked[1].Load()-asked)
	}
	if _, err := l.Read(t.Context(), 0, 4096, 4096, aligned(t, 4096)); !isErr(err, ErrQuarantined) || k.asked[1].Load() != asked {
		t.Errorf("got %v, the device was asked %d times", err, k.asked[1].Load()-asked)
	}
	pass(time.Minute)
	if k.asked[1].Load() == asked {
		t.Error("it is not probed")
	}
	b.wantStates(DeviceNormal, DeviceAside)
	k.fail(1, nil)
	pass(time.Second)
	b.wantStates(DeviceNormal, DeviceAside) // too early after the last one
	pass(time.Hour)
	b.wantStates(DeviceNormal, DeviceNormal)
	before := b.s.Devices()
	b.fill(l, 40, n)
	b.flush(l)
	after := b.s.Devices()
	if a, b := after[0].Blocks-before[0].Blocks, after[1].Blocks-before[1].Blocks; a+b != n-40 || a == 0 || b == 0 {
		t.Errorf("%d blocks and %d, want %d over both", a, b, n-40)
	}
	if got := b.check(l)[0]; len(got) != n || len(b.losses()) != 0 {
		t.Errorf("%d of %d samples, lost %v", len(got), n, b.losses())
	}
	b.books()
	b.close()
}

// A quarantined device that can't be read is not asked to make its writes durable either.
func TestQuarantinedDeviceIsNotSynced(t *testing.T) {
	const n = 8
	b := deviceBed(t, n)
	b.open()
	pass := b.clock()
	k := b.sick()
	l := b.begin(0, 0, 1, 4*n, n)
	b.fill(l, 0, n)
	b.flush(l)
	k.fail(1, unix.EIO)
	for range asideErrors {
		if err := readBlock(l, 0, int(b.blocksOn(l)[1][0]), aligned(t, 4096)); err == nil {
			t.Error("a sick device gave a block")
		}
	}
	b.wantStates(DeviceNormal, DeviceAside)
	var asked [2]int
	blockio.Inject(b.opts.IO, func(_ int64, op *blockio.Op) blockio.Fault {
		if op.Write && op.Buf == nil {
			asked[slices.Index(b.dirs, filepath.Dir(op.File.Name()))]++
		}
		return blockio.Fault{}
	})
	syncBoth := func(want [2]int) {
		t.Helper()
		asked = [2]int{}
		if failed, unfinished := b.s.syncDevices(t.Context()); failed != nil || unfinished != nil || asked != want {
			t.Errorf("%v, %v: %v syncs by device, want %v", failed, unfinished, asked, want)
		}
	}
	syncBoth([2]int{1, 0})
	pass(time.Hour)
	b.wantStates(DeviceNormal, DeviceNormal)
	syncBoth([2]int{1, 1})
	b.close()
}

// A file system that turned read-only gets no more blocks, and its existing blocks are still read.
func TestReadOnlyDeviceIsRead(t *testing.T) {
	const n = 40
	b := deviceBed(t, n)
	b.open()
	b.clock()
	k := b.sick()
	k.writes.Store(true)
	l := b.begin(0, 0, 1, 4*n, n)
	b.fill(l, 0, 20)
	b.flush(l)
	k.fail(1, unix.EROFS)
	b.fill(l, 20, n)
	b.flush(l)
	b.wantStates(DeviceNormal, DeviceReadOnly)
	if got := b.check(l)[0]; len(got) != n {
		t.Errorf("%d of %d samples", len(got), n)
	}
	b.books()
	b.close()
}

// A slow device gets as many blocks as it may have in flight, and the other one gets all the others.
func TestSlowDeviceDelaysNoOther(t *testing.T) {
	const n = 40
	b := deviceBed(t, n)
	b.open()
	k := b.sick()
	release, other := k.hang(1), k.hang(0)
	defer release()
	defer other()
	l := b.begin(0, 0, 1, 4*n, n)
	b.fill(l, 0, 4) // all write buffers, to each device in turn
	other()
	b.fill(l, 4, n) // returns although no write to the slow device has ended
	k.await(n)
	if d := b.s.Devices(); d[1].Blocks != 2 || d[0].Blocks != n-2 {
		t.Errorf("%d blocks to the slow device, %d to the other: want 2, half of the write buffers, and %d", d[1].Blocks, d[0].Blocks, n-2)
	}
	b.wantStates(DeviceNormal, DeviceNormal)
	release()
	b.flush(l)
	if got := b.check(l)[0]; len(got) != n {
		t.Errorf("%d of %d samples", len(got), n)
	}
	b.books()
	b.close()
}

// Reads that hang end when their device is quarantined, and later ones at once. The buffer is the device's until it answers.
func TestHungReadsEndTogether(t *testing.T) {
	const n = 20
	b := deviceBed(t, n)
	b.open()
	pass := b.clock()
	l := b.begin(0, 0, 1, 4*n, n)
	b.fill(l, 0, n)
	b.flush(l)
	k := b.sick()
	release := k.hang(1)
	defer release()
	errs := make(chan error, 4)
	on := b.blocksOn(l) // which device has a block depends on when the writes before it ended
	for i := range cap(errs) {
		buf := aligned(t, 4096)
		go func() {
			_, err := l.Read(context.Background(), 0, on[1][i]*4096, 4096, buf)
			errs <- err
		}()
	}
	k.await(cap(errs)) // they are on their way
	for range hungTicks {
		select {
		case err := <-errs:
			t.Fatalf("a read ended before the deadline: %v", err)
		default:
		}
		pass(0)
	}
	var late []*PendingError
	for range cap(errs) {
		var p *PendingError
		if err := <-errs; !errors.As(err, &p) || !isErr(err, ErrQuarantined) {
			t.Fatalf("got %v, want that it is aside and the buffer not free yet", err)
		}
		late = append(late, p)
	}
	b.wantStates(DeviceNormal, DeviceAside)
	if data, err := l.Read(t.Context(), 0, on[0][0]*4096, 4096, aligned(t, 4096)); err != nil || len(data) != 4096 {
		t.Errorf("the other device: %v", err)
	}
	release()
	for _, p := range late {
		<-p.Done
	}
	pass(time.Minute)
	b.wantStates(DeviceNormal, DeviceNormal)
	if got := b.check(l)[0]; len(got) != n {
		t.Errorf("%d of %d samples", len(got), n)
	}
	b.close()
}

// A device whose writes hang does not make appends hang. It keeps its buffers, and other blocks go to other devices, or become holes.
func TestHungWriter(t *testing.T) {
	const n = 40
	b := newBed(t, 1, 4096, 4*n, slices.Repeat([]uint32{4096}, n))
	b.opts.Deadline = time.Hour
	b.open()
	pass := b.clock()
	k := b.sick()
	release := k.hang(0)
	defer release()
	l := b.begin(0, 0, 1, 4*n, n)
	appended := make(chan error)
	go func() {
		for i := range uint32(n) {
			if _, err := l.Append(context.Background(), 0, i, b.content(i)); err != nil {
				appended <- err
				return
			}
		}
		appended <- nil
	}()
	k.await(4) // all write buffers but the segment's own
	for range patientWrites * hungTicks {
		pass(0)
	}
	if err := <-appended; err != nil {
		t.Fatal(err)
	}
	if b.s.Writable() {
		t.Error("a device that hangs takes blocks")
	}
	b.wantStates(DeviceReadOnly)
	if lost := len(b.losses()); lost != n-4 || k.asked[0].Load() != 4 {
		t.Errorf("%d samples lost, the device got %d requests; want all lost but 4, and 4 requests", lost, k.asked[0].Load())
	}
	release()
	b.flush(l)
	pass(time.Minute)
	b.wantStates(DeviceNormal)
	if got := b.check(l)[0]; len(got) != 4 {
		t.Errorf("%d samples are readable, want the 4 that were written late", len(got))
	}
	b.books()
	b.close()
}

// A cache opens without one of its directories, unless it is the first. Its samples are lost, and can be stored again. When
// the directory is back it is used again.
func TestOpensWithoutADevice(t *testing.T) {
	const n = 30
	for _, c := range []struct {
		name string
		lose func(dir string) error
	}{
		{"gone", func(dir string) error { return os.Rename(dir, dir+".away") }},
		{"empty", func(dir string) error { return errors.Join(os.Rename(dir, dir+".away"), os.Mkdir(dir, 0o700)) }},
		{"a damaged FORMAT", func(dir string) error {
			return errors.Join(os.CopyFS(dir+".away", os.DirFS(dir)), os.WriteFile(filepath.Join(dir, formatName), []byte("LCACHEF\nxx"), 0o600))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := deviceBed(t, n)
			b.open()
			l := b.begin(0, 0, 1, 4*n, 2*n)
			b.fill(l, 0, n)
			b.flush(l)
			left := b.s.Devices()[0].Blocks
			b.close()
			if err := c.lose(b.dirs[1]); err != nil {
				t.Fatal(err)
			}
			b.open()
			pass := b.clock()
			b.wantStates(DeviceNormal, DeviceAside)
			l = b.s.Logfiles()[0]
			here := b.check(l)[0]
			if len(here) != int(left) || left == 0 || left == n {
				t.Fatalf("%d samples are there, want %d of %d", len(here), left, n)
			}
			for i := range uint32(n) {
				if !slices.Contains(here, i) {
					b.append(l, 0, i)
				}
			}
			b.flush(l)
			if got := b.check(l)[0]; len(got) != n || len(b.losses()) != 0 {
				t.Errorf("%d of %d samples after they were filled in, lost %v", len(got), n, b.losses())
			}
			b.books()
			if err := errors.Join(os.RemoveAll(b.dirs[1]), os.Rename(b.dirs[1]+".away", b.dirs[1])); err != nil {
				t.Fatal(err)
			}
			pass(time.Hour)
			b.wantStates(DeviceNormal, DeviceNormal)
			dealt := b.s.Devices()[1].Blocks
			next := b.begin(1, 1, 1, 4*n, 2*n)
			b.fill(next, 0, 6)
			b.flush(next)
			if b.s.Devices()[1].Blocks == dealt || len(b.check(next)[0]) != 6 {
				t.Errorf("%+v: want new blocks on the one that is back", b.s.Devices()[1])
			}
			b.books()
			b.close()
			if err := os.Remove(filepath.Join(b.dirs[0], formatName)); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(b.dirs, b.opts); !isErr(err, os.ErrNotExist) || !strings.Contains(err.Error(), b.dirs[0]) {
				t.Errorf("without its first directory: %v", err)
			}
		})
	}
}

// A directory in which another cache was made meanwhile is not used again.
func TestAnotherCacheIsNotTakenBack(t *testing.T) {
	b := deviceBed(t, 4)
	b.open()
	b.close()
	if err := os.RemoveAll(b.dirs[1]); err != nil {
		t.Fatal(err)
	}
	b.open()
	defer b.close()
	pass := b.clock()
	other := deviceBed(t, 4)
	f := other.format
	f.UUID[0]++
	if err := errors.Join(os.Rename(other.dirs[1], b.dirs[1]), os.WriteFile(filepath.Join(b.dirs[1], formatName), encodeFormat(f, 1, 2), 0o600)); err != nil {
		t.Fatal(err)
	}
	pass(time.Hour)
	b.wantStates(DeviceNormal, DeviceAside)
	if d := b.s.Devices()[1]; !strings.Contains(d.LastError, "another cache") {
		t.Errorf("%+v", d)
	}
}

// No block waits for a place on a quarantined device.
func TestFullDeviceWithAQuarantinedOne(t *testing.T) {
	const n = 20
	b := newBed(t, 2, 4096, 8, slices.Repeat([]uint32{4096}, n))
	b.opts.Deadline = time.Hour
	b.open()
	b.clock()
	l := b.begin(0, 0, 1, 4*n, n)
	k := b.sick()
	k.fail(1, unix.EIO)
	b.fill(l, 0, n) // the other device has 4 places
	b.flush(l)
	if got := b.check(l)[0]; len(got) != 4 || len(b.losses()) != n-4 {
		t.Errorf("samples %v, %d lost: want what fits on the other device", got, len(b.losses()))
	}
	k.fail(1, nil)
	b.books()
	b.close()
}
