package blockio_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/internal/disk/blockio/blockiotest"
	"lcache/internal/disk/offheap"
	"lcache/internal/testenv"
	"lcache/iouring"
)

func TestMain(m *testing.M) {
	if what := os.Getenv(childEnv); what != "" {
		os.Exit(child(what))
	}
	os.Exit(testenv.Run(m, testenv.Count{What: "bytes outside the heap", Now: offheap.Mapped}, testenv.Count{What: "registered bytes", Now: blockio.Registered}))
}

// openEngine opens an engine, or skips the test if the kernel has no io_uring.
func openEngine(t testing.TB, engine, direct string) *blockio.IO {
	t.Helper()
	io, err := blockio.Open(blockio.Options{Engine: engine, Direct: direct})
	var none *iouring.UnavailableError
	if errors.As(err, &none) {
		t.Skip(none)
	}
	if err != nil {
		t.Fatal(err)
	}
	return io
}

// choices returns all values, or the one in the environment.
func choices(env string, all ...string) []string {
	if v := os.Getenv(env); v != "" {
		return []string{v}
	}
	return all
}

func TestEngines(t *testing.T) {
	for _, engine := range choices("LCACHE_IO", "uring", "pread") {
		for _, direct := range choices("LCACHE_DIRECT", "auto", "off") {
			t.Run(engine+"/direct="+direct, func(t *testing.T) {
				t.Parallel()
				blockiotest.Run(t, func(t *testing.T) *blockio.IO { return openEngine(t, engine, direct) })
			})
		}
	}
}

// TestHungFileDelaysNoOther holds more operations on one file than may be in flight. Operations on another file
// complete.
func TestHungFileDelaysNoOther(t *testing.T) {
	for _, engine := range choices("LCACHE_IO", "uring", "pread") {
		t.Run(engine, func(t *testing.T) {
			io, err := blockio.Open(blockio.Options{Engine: engine, Depth: 8, PerFile: 4})
			var none *iouring.UnavailableError
			if errors.As(err, &none) {
				t.Skip(none)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer io.Close()
			var files [2]*blockio.File
			for i := range files {
				if files[i], err = io.OpenFile(filepath.Join(t.TempDir(), "f"), true); err != nil {
					t.Fatal(err)
				}
				defer files[i].Close()
				if err := files[i].Allocate(1 << 16); err != nil {
					t.Fatal(err)
				}
			}
			hung := make(chan struct{})
			blockio.Inject(io, func(_ int64, op *blockio.Op) blockio.Fault {
				if op.File == files[0] {
					return blockio.Fault{Hold: hung}
				}
				return blockio.Fault{}
			})
			mem := blockiotest.Mem(t, 33*4096)
			var late sync.WaitGroup
			for i := range 32 {
				late.Add(1)
				io.Submit(&blockio.Op{File: files[0], Buf: mem[i*4096:][:4096], Done: func(_ *blockio.Op, err error) {
					if err != nil {
						t.Error(err)
					}
					late.Done()
				}})
			}
			for range 20 {
				if err := io.Read(t.Context(), files[1], 4096, mem[32*4096:]); err != nil {
					t.Fatal(err)
				}
			}
			close(hung)
			late.Wait()
		})
	}
}

// TestWritesPassHungReads holds as many reads of a file as may be in flight. Writes to it complete.
func TestWritesPassHungReads(t *testing.T) {
	for _, engine := range choices("LCACHE_IO", "uring", "pread") {
		t.Run(engine, func(t *testing.T) {
			io, err := blockio.Open(blockio.Options{Engine: engine, Depth: 4})
			var none *iouring.UnavailableError
			if errors.As(err, &none) {
				t.Skip(none)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer io.Close()
			f, err := io.OpenFile(filepath.Join(t.TempDir(), "f"), true)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := f.Allocate(1 << 16); err != nil {
				t.Fatal(err)
			}
			hung := make(chan struct{})
			blockio.Inject(io, func(_ int64, op *blockio.Op) blockio.Fault {
				if !op.Write {
					return blockio.Fault{Hold: hung}
				}
				return blockio.Fault{}
			})
			mem := blockiotest.Mem(t, 9*4096)
			var late sync.WaitGroup
			for i := range 8 {
				late.Add(1)
				io.Submit(&blockio.Op{File: f, Buf: mem[i*4096:][:4096], Done: func(*blockio.Op, error) { late.Done() }})
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			for i := range 20 {
				if err := io.Write(ctx, f, int64(i%8)*4096, mem[8*4096:]); err != nil {
					t.Fatalf("write %d: %v", i, err)
				}
			}
			close(hung)
			late.Wait()
		})
	}
}
