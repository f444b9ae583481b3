package packing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/internal/disk/offheap"
	"lcache/internal/serve/schedule"
	"lcache/internal/serve/staging"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/logfile"
	"lcache/metaindex"
	"lcache/sample"
)

func init() { os.Setenv("LCACHE_TMPFS", "1") } // temporary folders may be in memory

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(m, testenv.Count{What: "bytes outside the heap", Now: offheap.Mapped}, testenv.Count{What: "registered bytes", Now: blockio.Registered}))
}

// bed is a cache of samples of about 13 KB in blocks of 128 KiB, with the inputs of a Packer. Every tenth sample is
// an H-sample.
type bed struct {
	t     *testing.T
	cache *cache.Cache
	bytes [][]byte
	all   []sample.Index

	memory    []byte // the shared memory: all samples, concatenated
	addresses []staging.Address

	// The turn.
	mu      sync.Mutex
	allowed atomic.Bool
	tries   atomic.Int64
	alone   bool // EndAppends was called in this turn

	looks     atomic.Int64 // number of reads of the clock
	later     atomic.Int64 // nanoseconds that the clock is ahead
	registers atomic.Int64
	broken    atomic.Bool // registering buffers fails
	bad       chan sample.Index
}

func newBed(t *testing.T, n int, compress string) *bed { return newBedWith(t, n, compress, 0) }

// newBedWith is newBed, but the last sample is larger by more bytes.
func newBedWith(t *testing.T, n int, compress string, more int) *bed {
	t.Helper()
	b := &bed{t: t, bad: make(chan sample.Index, n)}
	r, dir := rand.New(rand.NewPCG(1, uint64(n))), testenv.SourceDir(t)
	for i := range n {
		data := make([]byte, 12_000+r.IntN(3000))
		if i == n-1 {
			data = append(data, make([]byte, more)...)
		}
		for k := range data {
			data[k] = byte(r.Uint32())
			if compress != "" {
				data[k] &= 3
			}
		}
		folder := filepath.Join(dir, fmt.Sprint("class-", i*3/n))
		if err := errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, fmt.Sprintf("%06d.bin", i)), data, 0o644)); err != nil {
			t.Fatal(err)
		}
		b.bytes, b.all = append(b.bytes, data), append(b.all, sample.Index(i))
		b.addresses = append(b.addresses, staging.Address{Offset: uint64(len(b.memory))})
		b.memory = append(b.memory, data...)
	}
	in := ingest.Options{Source: dir, Dirs: []string{filepath.Join(t.TempDir(), "cache")}, Compress: compress, Block: 128 << 10, Memory: 64 << 20, Job: schedule.Job{World: 1}}
	if _, err := ingest.Run(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	var err error
	if b.cache, err = cache.Open(cache.Options{Dirs: in.Dirs, Memory: in.Memory, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	b.allowed.Store(true)
	t.Cleanup(func() {
		if err := b.cache.Close(); err != nil {
			t.Error(err)
		}
		if rep, err := cache.Verify(context.Background(), cache.VerifyOptions{Dirs: in.Dirs}); err != nil || rep.Corrupt > 0 {
			t.Errorf("verify: %v, %+v", err, rep)
		}
	})
	return b
}

func (b *bed) Try() bool {
	b.mu.Lock()
	b.tries.Add(1)
	if !b.allowed.Load() {
		b.mu.Unlock()
		return false
	}
	return true
}

func (b *bed) EndAppends() { b.alone = true }

func (b *bed) Release() {
	b.alone = false
	b.mu.Unlock()
}

// spread moves every fourth sample to a second Logfile, in the order of the first one, until only free arena blocks
// are left. If that is not enough, it moves every second sample, and so on.
func (b *bed) spread(free int) {
	b.t.Helper()
	var order []sample.Index
	from := b.cache.Logfile(0)
	for seg := range int(from.Header().Segments) {
		from.Arrivals(seg, func(_ int, index sample.Index, _ uint64) bool { order = append(order, index); return true })
	}
	n := uint64(len(order))
	to, err := b.cache.Store.Begin(1, logfile.Header{Fingerprint: b.cache.Manifest.Fingerprint(), Key: [16]byte{9}, Epoch: 1, Segments: 3, SegmentBlocks: 64}, []uint64{0, n, 2 * n, 3 * n})
	if err != nil {
		b.t.Fatal(err)
	}
	var turns []sample.Index
	for _, first := range []int{0, 2, 1} {
		for k := first; k < len(order); k += 4 {
			turns = append(turns, order[k])
		}
	}
	seg := 0
	for k := 0; b.cache.Store.Free() > free; k++ {
		i := turns[k]
		off, err := to.Append(b.t.Context(), seg, i, b.bytes[i])
		if errors.Is(err, logfile.ErrFull) {
			seg++
			off, err = to.Append(b.t.Context(), seg, i, b.bytes[i])
		}
		if err == nil {
			err = to.Flush(b.t.Context()) // then full blocks have their locations
		}
		if err != nil {
			b.t.Fatal(err)
		}
		b.cache.Locations.Move(i, b.cache.Locations.Get(i), b.cache.Locations.At(1, seg, off))
	}
}

// packer starts a Packer on the bed.
func (b *bed) packer() *Packer {
	b.t.Helper()
	p, err := New(Options{Cache: b.cache, Logger: b.cache.Logger, Turn: b, Seed: 5, Memory: 32 << 20, AppendTimeout: time.Minute, ReadTimeout: time.Minute,
		Slice: func(offset uint64, n int) []byte { return b.memory[offset:][:n] },
		Register: func(*logfile.Logfile) error {
			b.registers.Add(1)
			if b.broken.Load() {
				return errors.New("no memory is left")
			}
			return nil
		},
		Bad: func(index sample.Index, at metaindex.Loc, _ int) {
			if !b.alone {
				b.t.Error("a sample is moved while others may append")
			}
			if b.cache.Locations.Clear(index, at) {
				b.bad <- index
			}
		},
		Now: func() time.Time {
			b.looks.Add(1)
			return time.Now().Add(time.Duration(b.later.Load()))
		}})
	if err != nil || p == nil {
		b.t.Fatalf("%v, %v", p, err)
	}
	b.t.Cleanup(p.Close)
	return p
}

func isHigh(i sample.Index) bool { return i%10 == 0 }

// high returns the set of H-samples.
func (b *bed) high() *sample.Set { return b.set(isHigh) }

func (b *bed) set(has func(sample.Index) bool) *sample.Set {
	b.t.Helper()
	set, err := sample.NewSet(len(b.all))
	if err != nil {
		b.t.Fatal(err)
	}
	for _, i := range b.all {
		if has(i) {
			set.Add(i)
		}
	}
	return set
}

// changing trains epochs until holds returns true. In each of them, a random half of the samples are H-samples. So
// packages of L-samples become packages of H-samples, L-samples are packed again, and arena blocks become few.
func (b *bed) changing(p *Packer, what string, holds func() bool) {
	b.t.Helper()
	r := rand.New(rand.NewPCG(2, 3))
	b.until(p, what, func() bool {
		p.Begin(b.set(func(sample.Index) bool { return r.IntN(2) == 0 }))
		return holds()
	})
}

// deliver delivers all samples in order.
func (b *bed) deliver(p *Packer) {
	for i := range b.all {
		p.Delivered(b.all[i:i+1], b.addresses[i:i+1])
	}
}

// packed counts the samples in packages, and the samples that the log lacks.
func (b *bed) packed() (low, high, absent int) {
	for _, i := range b.all {
		num, _, _, ok := b.cache.Locations.Split(b.cache.Locations.Get(i))
		switch {
		case !ok:
			absent++
		case num == logfile.PackagesNum && isHigh(i):
			high++
		case num == logfile.PackagesNum:
			low++
		}
	}
	return low, high, absent
}

// until delivers all samples again and again until holds returns true.
func (b *bed) until(p *Packer, what string, holds func() bool) {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); {
		b.deliver(p)
		b.idles()
		if time.Now().After(end) {
			low, high, absent := b.packed()
			b.t.Fatalf("not within a minute: %s; %d L-samples and %d H-samples are in packages, %d samples are missing, %d blocks are free", what, low, high, absent, b.cache.Store.Free())
		}
	}
}

// idles waits until the worker has begun two more steps. Then it has seen everything that happened before the call.
func (b *bed) idles() {
	b.t.Helper()
	for from, end := b.looks.Load(), time.Now().Add(time.Minute); b.looks.Load() < from+2; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatal("the worker does nothing")
		}
	}
}
