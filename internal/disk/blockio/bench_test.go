package blockio_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lcache/internal/disk/blockio"
)

// benchFile returns a file with written blocks. Blocks that are only reserved would be read without the device.
func benchFile(b *testing.B, size int64) string {
	b.Helper()
	io := openEngine(b, "pread", "auto")
	defer io.Close()
	name := filepath.Join(b.TempDir(), "file")
	f, err := io.OpenFile(name, true)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	mem, err := blockio.Alloc(1 << 20)
	if err != nil {
		b.Fatal(err)
	}
	defer blockio.Free(mem)
	for i := range mem {
		mem[i] = byte(rand.Uint32())
	}
	err = f.Allocate(size)
	for off := int64(0); off < size; off += int64(len(mem)) {
		err = errors.Join(err, io.Write(b.Context(), f, off, mem))
	}
	if err = errors.Join(err, f.Sync()); err != nil {
		b.Fatal(err)
	}
	return name
}

func cpuSeconds() float64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// BenchmarkRead keeps depth reads of one size in flight, at random positions of a file in TMPDIR. Each Done submits
// its Op again. CPU time is that of the process, in seconds per 10^9 bytes.
func BenchmarkRead(b *testing.B) {
	const fileSize = 256 << 20
	name := benchFile(b, fileSize)
	for _, c := range []struct{ size, depth int }{{1 << 20, 16}, {4096, 32}, {4096, 1}} {
		for _, engine := range choices("LCACHE_IO", "uring registered", "uring", "pread") {
			b.Run(fmt.Sprintf("%dKiB/depth=%d/%s", c.size>>10, c.depth, engine), func(b *testing.B) {
				kind, register := engine, false
				if engine == "uring registered" {
					kind, register = "uring", true
				}
				io := openEngine(b, kind, os.Getenv("LCACHE_DIRECT"))
				defer io.Close()
				f, err := io.OpenFile(name, false)
				if err != nil {
					b.Fatal(err)
				}
				defer f.Close()
				mem, err := blockio.Alloc(max(c.size*c.depth, 2<<20))
				if err != nil {
					b.Fatal(err)
				}
				if register {
					if err := io.Register(mem); err != nil {
						b.Fatal(err)
					}
				}
				clear(mem) // faults the pages in
				b.SetBytes(int64(c.size))
				before := cpuSeconds()
				b.ResetTimer()
				readAll(b, io, f, mem, c.size, c.depth, fileSize)
				b.StopTimer()
				b.ReportMetric((cpuSeconds()-before)/(float64(b.N)*float64(c.size)/1e9), "cpu-s/GB")
				if err := errors.Join(io.Unregister(mem), blockio.Free(mem)); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

func readAll(b *testing.B, io *blockio.IO, f *blockio.File, mem []byte, size, depth int, fileSize int64) {
	places := fileSize / int64(size)
	rng := rand.New(rand.NewPCG(1, 2)) // a ring calls one Done at a time; the pool's Dones need separate generators
	ended := make(chan error, depth)
	for i := range min(depth, b.N) {
		mine := rand.New(rand.NewPCG(rng.Uint64(), uint64(i)))
		left := b.N / depth
		if i < b.N%depth {
			left++
		}
		op := &blockio.Op{File: f, Buf: mem[i*size:][:size], Offset: mine.Int64N(places) * int64(size)}
		op.Done = func(op *blockio.Op, err error) {
			if left--; err != nil || left == 0 {
				ended <- err
				return
			}
			op.Offset = mine.Int64N(places) * int64(size)
			io.Submit(op)
		}
		io.Submit(op)
	}
	for range min(depth, b.N) {
		if err := <-ended; err != nil {
			b.Fatal(err)
		}
	}
}
