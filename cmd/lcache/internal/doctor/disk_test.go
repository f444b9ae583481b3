package doctor

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lcache/internal/disk/blockio"
	"lcache/internal/disk/offheap"
	"lcache/internal/testenv"
)

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(m, testenv.Count{What: "bytes outside the heap", Now: offheap.Mapped}, testenv.Count{What: "registered bytes", Now: blockio.Registered}))
}

// direct returns the I/O mode of the tests: the environment's, or else the mode that the temporary folder supports.
func direct(t *testing.T, dir string) string {
	p := lookAtPlace(os.DirFS("/"), dir)
	if os.Getenv("LCACHE_DIRECT") == "0" || !p.Direct {
		return "off"
	}
	return "on"
}

const testFile = 16 << 20

func openTestDisk(t *testing.T, dir string) *Disk {
	t.Helper()
	d, err := OpenDisk(t.Context(), DiskOptions{Dir: dir, Bytes: testFile, Engine: os.Getenv("LCACHE_IO"), Direct: direct(t, dir)})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func mustBeEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestDisk(t *testing.T) {
	dir := t.TempDir()
	d := openTestDisk(t, dir)
	mustBeEmpty(t, dir) // the file has no name while it is used
	if d.Bytes() != testFile {
		t.Errorf("%d bytes, want %d", d.Bytes(), testFile)
	}
	for _, streams := range [][]Stream{
		{{Size: 1 << 20, Depth: 4}},
		{{Size: 4096, Depth: 8, Random: true}},
		{{Size: 100 << 10, Depth: 8, Random: true}},
		{{Size: 1 << 20, Depth: 2}, {Size: 1 << 20, Depth: 2, Write: true}},
		{{Size: 4096, Depth: 1, Random: true}},
	} {
		rates, err := d.Run(t.Context(), 100*time.Millisecond, streams...)
		if err != nil {
			t.Fatalf("%+v: %v", streams, err)
		}
		if len(rates) != len(streams) {
			t.Fatalf("%+v: %d rates", streams, len(rates))
		}
		for i, r := range rates {
			if r.Bytes != r.Ops*int64(streams[i].Size) || r.Seconds < 0.08 || r.Seconds > 0.1 {
				t.Errorf("%+v: %+v", streams[i], r)
			}
			if (r.Median > 0) != (streams[i].Depth == 1 && r.Ops > 0) {
				t.Errorf("%+v: median %v of %d", streams[i], r.Median, r.Ops)
			}
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	mustBeEmpty(t, dir)
}

func TestDiskRefuses(t *testing.T) {
	dir := t.TempDir()
	d := openTestDisk(t, dir)
	defer d.Close()
	for _, s := range []Stream{{Size: 32 << 20, Depth: 1}, {Size: 1 << 20, Depth: 33}} {
		if _, err := d.Run(t.Context(), time.Millisecond, s); err == nil {
			t.Errorf("%+v was run", s)
		}
	}
	if _, err := OpenDisk(t.Context(), DiskOptions{Dir: dir + "/none"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
	if _, err := OpenDisk(t.Context(), DiskOptions{Dir: dir, Bytes: 1 << 50, Direct: direct(t, dir)}); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("more than is free: %v", err)
	}
	mustBeEmpty(t, dir)
}

func TestDiskEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	d := openTestDisk(t, dir)
	cancel()
	if _, err := d.Run(ctx, time.Hour, Stream{Size: 4096, Depth: 4, Random: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := OpenDisk(ctx, DiskOptions{Dir: dir, Bytes: testFile, Direct: direct(t, dir)}); !errors.Is(err, context.Canceled) {
		t.Errorf("fill: got %v", err)
	}
	mustBeEmpty(t, dir)
}

// TestDiskFails fails the n-th transfer, for each n that a run of bounded length has.
func TestDiskFails(t *testing.T) {
	d := openTestDisk(t, t.TempDir())
	defer d.Close()
	for n := range int64(12) {
		blockio.Inject(d.io, func(k int64, _ *blockio.Op) (f blockio.Fault) {
			if k == n {
				f.Err = unix.EIO
			}
			return f
		})
		if _, err := d.Run(t.Context(), time.Hour, Stream{Size: 4096, Depth: 4, Random: true}, Stream{Size: 4096, Depth: 2, Write: true}); !errors.Is(err, unix.EIO) {
			t.Errorf("transfer %d failed: got %v", n, err)
		}
	}
	blockio.Inject(d.io, nil)
	if _, err := d.Run(t.Context(), time.Millisecond, Stream{Size: 4096, Depth: 4, Random: true}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestDiskHangs(t *testing.T) {
	d := openTestDisk(t, t.TempDir()) // with all of the patience: a busy disk answers
	defer func(was time.Duration) { patience = was }(patience)
	patience = 50 * time.Millisecond
	held := make(chan struct{})
	blockio.Inject(d.io, func(k int64, _ *blockio.Op) (f blockio.Fault) {
		if k == 3 {
			f.Hold = held
		}
		return f
	})
	if _, err := d.Run(t.Context(), time.Millisecond, Stream{Size: 4096, Depth: 8, Random: true}); !errors.Is(err, errHung) {
		t.Errorf("got %v", err)
	}
	if err := d.Close(); err != nil { // must not wait for the device
		t.Error(err)
	}
	close(held)
}

func TestDevice(t *testing.T) {
	d := openTestDisk(t, t.TempDir())
	defer d.Close()
	var stages []string
	var dev *Device
	for _, seconds := range []float64{0.1, 1} { // on a busy machine no operation may end within a tenth of a second
		var err error
		if dev, err = d.device(t.Context(), seconds, func(stage string) { stages = append(stages, stage) }); err != nil {
			t.Fatal(err)
		}
		if dev.Latency > 0 {
			break
		}
	}
	for name, v := range map[string]float64{"read": dev.Read, "write": dev.Write, "both, read": dev.BothRead, "both, write": dev.BothWrite,
		"IOPS": dev.IOPS, "random": dev.Random, "latency": dev.Latency, "seconds": dev.Seconds} {
		if v <= 0 {
			t.Errorf("%s is %g", name, v)
		}
	}
	if dev.Seconds > 20 || dev.FileBytes != testFile || dev.OpBytes < pageSize || dev.Mix < 0 || dev.Mix > 1 || len(stages) < 6 {
		t.Errorf("%+v, stages %q", dev, stages)
	}
}
