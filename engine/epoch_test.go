package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
	"unsafe"

	"lcache/internal/disk/offheap"
	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/sample"
	"lcache/shuffle"
	"lcache/source"
)

// dataset is a source on disk, and the expected bytes of every sample.
type dataset struct {
	dir   string
	bytes [][]byte // by index: canonical order
	label []int32
	total int64
	group string          // how its files make samples
	parts [][]sample.Part // by index; nil: each file is a sample
}

// makeDataset writes n files in classes, with random sizes from size and incompressible bytes.
func makeDataset(t testing.TB, n int, size func(r *rand.Rand, i int) int) *dataset {
	t.Helper()
	return makeDatasetOf(t, n, size, noisy)
}

func makeDatasetOf(t testing.TB, n int, size func(r *rand.Rand, i int) int, content func(r *rand.Rand, i int, b []byte)) *dataset {
	t.Helper()
	return makeDatasetIn(t, testenv.SourceDir(t), n, size, content)
}

func makeDatasetIn(t testing.TB, dir string, n int, size func(r *rand.Rand, i int) int, content func(r *rand.Rand, i int, b []byte)) *dataset {
	t.Helper()
	givesBack(t)
	d := &dataset{dir: dir}
	r := rand.New(rand.NewPCG(1, uint64(n)))
	const classes = 3
	for c := range classes {
		if err := os.MkdirAll(filepath.Join(d.dir, fmt.Sprintf("class-%d", c)), 0o755); err != nil {
			t.Fatal(err)
		}
		for i := c * n / classes; i < (c+1)*n/classes; i++ {
			b := make([]byte, size(r, i))
			content(r, i, b)
			if err := os.WriteFile(filepath.Join(d.dir, fmt.Sprintf("class-%d", c), fmt.Sprintf("%06d.bin", i)), b, 0o644); err != nil {
				t.Fatal(err)
			}
			d.bytes = append(d.bytes, b)
			d.label = append(d.label, int32(c))
			d.total += int64(len(b))
		}
	}
	return d
}

// inParts has the same samples, each in 1 to 3 files, some of them empty.
func (d *dataset) inParts(t testing.TB) *dataset {
	t.Helper()
	g := *d
	g.dir, g.group = testenv.SourceDir(t), source.GroupStem
	r := rand.New(rand.NewPCG(2, uint64(len(d.bytes))))
	for i, b := range d.bytes {
		exts := [][]string{{""}, {"jpg"}, {"jpg", "json"}, {"jpg", "json", "seg.png"}}[i%4]
		var parts []sample.Part
		for k, ext := range exts {
			n := len(b)
			if k < len(exts)-1 {
				n = r.IntN(n + 1)
			}
			name := fmt.Sprintf("class-%d/%06d", d.label[i], i)
			if ext != "" {
				name += "." + ext
			}
			g.write(t, name, b[:n])
			parts, b = append(parts, sample.Part{Ext: ext, Size: uint32(n)}), b[n:]
		}
		g.parts = append(g.parts, parts)
	}
	return &g
}

func mixedSizes(r *rand.Rand, i int) int {
	switch i % 50 {
	case 7:
		return 0
	case 13:
		return 1
	case 21:
		return 128<<10 + r.IntN(3) - 1
	case 33:
		return 3 * 128 << 10
	}
	return r.IntN(20_000)
}

// testIO is the mode that the suite runs in.
func testIO() cache.IO {
	return cache.IO{Engine: os.Getenv("LCACHE_IO"), Direct: os.Getenv("LCACHE_DIRECT")}
}

// drawSeed is the seed of a test's random numbers: LCACHE_SEED, to replay a run, else the time.
func drawSeed(t testing.TB) (seed uint64, replay bool) {
	t.Helper()
	said := os.Getenv("LCACHE_SEED")
	if said == "" {
		return uint64(time.Now().UnixNano()), false
	}
	seed, err := strconv.ParseUint(said, 10, 64)
	if err != nil {
		t.Fatalf("LCACHE_SEED: %v", err)
	}
	return seed, true
}

func samplerJob(epochs, batch, world int, dropLast bool) schedule.Job {
	return schedule.Job{Recipe: "torch.distributed_sampler", Seed: "7", Epochs: epochs, BatchSize: batch, World: world, DropLast: dropLast}
}

// ingested makes a cache of d on the working disk and returns its options.
func ingested(t testing.TB, d *dataset, o ingest.Options) (Options, *ingest.Report) {
	t.Helper()
	o.Source, o.Group = d.dir, d.group
	if o.IO.Engine == "" && o.IO.Direct == "" {
		io := testIO()
		o.IO.Engine, o.IO.Direct = io.Engine, io.Direct
	}
	if o.Dirs == nil {
		o.Dirs = []string{filepath.Join(t.TempDir(), "cache")}
	}
	rep, err := ingest.Run(context.Background(), o)
	if err != nil {
		t.Fatalf("ingest: %v", err)
	}
	return Options{Dirs: o.Dirs, IO: o.IO, Memory: o.Memory, knobs: knobs{Patience: 100 * time.Millisecond}, Logger: testLogger(t)}, rep
}

// testLogger shows warnings and errors as part of the test's output.
func testLogger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// givesBack fails a test that does not release all memory outside Go's heap: layouts, tables, buffers. If other tests run at the same time, or
// something is open already, it checks nothing.
func givesBack(t testing.TB) {
	t.Helper()
	if mapped() != 0 {
		return
	}
	t.Cleanup(func() {
		if n := mapped(); n > 0 && !t.Failed() {
			t.Errorf("%d bytes outside the heap are not given back", n)
		}
	})
}

// Tests may use a temporary folder in memory.
func init() { os.Setenv("LCACHE_TMPFS", "1") }

// leftMapped is the memory that tests have left mapped on purpose, because of operations that hang.
var leftMapped int64

// mapped is the number of bytes that are mapped outside Go's heap and should not be, between two tests.
func mapped() int64 { return offheap.Mapped() - leftMapped }

// takeBack unmaps the memory that a Close left mapped because an operation hung, after the operation has ended. In production the end of the process does that.
func takeBack(e *Engine) {
	_ = e.cache.Store.Close()
	e.freeLayouts()
	e.mover.Free()
	e.cache.Locations.Free()
	_ = e.cache.Manifest.Close()
}

// closeLearnt closes the learnt files that such a Close left open.
func closeLearnt(e *Engine) error { return errors.Join(e.cache.Sums.Close(), e.cache.CloseInodes()) }

func open(t testing.TB, o Options) *Engine {
	t.Helper()
	o.Logger = slog.New(newWitness(o.Logger))
	e, err := Open(context.Background(), o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return e
}

func closeEngine(t testing.TB, e *Engine) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := e.Close(ctx); err != nil {
		stacks := make([]byte, 1<<20)
		t.Fatalf("close: %v\n%s", err, stacks[:runtime.Stack(stacks, true)])
	}
	if err := e.deliver.CheckReleased(); err != nil {
		t.Errorf("after close: %v", err)
	}
}

// check compares a batch with the source.
func (d *dataset) check(e *Engine, b *deliver.Batch) error {
	if d.parts != nil {
		parts, err := e.Parts(b.Indices, 1<<20)
		if err != nil {
			return err
		}
		for i, index := range b.Indices {
			if !slices.Equal(parts[i], d.parts[index]) {
				return fmt.Errorf("sample %d: parts %v, want %v", index, parts[i], d.parts[index])
			}
		}
	}
	for i, index := range b.Indices {
		got := e.staging.Slice(b.Offsets[i], int(b.Lengths[i]))
		if !same(got, d.bytes[index]) {
			return fmt.Errorf("sample %d: bytes differ from the source (%d bytes, want %d)", index, len(got), len(d.bytes[index]))
		}
		if b.Labels[i] != d.label[index] {
			return fmt.Errorf("sample %d: label %d, want %d", index, b.Labels[i], d.label[index])
		}
	}
	return nil
}

// same is bytes.Equal without the race detector's checks: staging is outside its view, and the expected bytes never change.
func same(a, b []byte) bool {
	return unsafe.String(unsafe.SliceData(a), len(a)) == unsafe.String(unsafe.SliceData(b), len(b))
}

// readRank reads a rank's epoch from a batch on, and returns the order. It releases each batch when the next has arrived.
func (d *dataset) readRank(e *Engine, c *deliver.Client, epoch, rank, start int) (order []sample.Index, err error) {
	return d.readPaced(e, c, epoch, rank, start, func(int) {})
}

// readPaced is readRank that waits for its turn before each batch.
func (d *dataset) readPaced(e *Engine, c *deliver.Client, epoch, rank, start int, turn func(batch int)) (order []sample.Index, err error) {
	var last *deliver.Batch
	for b := start; ; b++ {
		turn(b)
		batch, err := c.Chunk(context.Background(), epoch, rank, b)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return order, fmt.Errorf("epoch %d rank %d batch %d: %w", epoch, rank, b, err)
		}
		if err := d.check(e, batch); err != nil {
			return order, fmt.Errorf("epoch %d rank %d batch %d: %w", epoch, rank, b, err)
		}
		order = append(order, batch.Indices...)
		if last != nil {
			// Delivered bytes must not change as long as their lease lasts.
			if err := d.check(e, last); err != nil {
				return order, fmt.Errorf("epoch %d rank %d batch %d, held: %w", epoch, rank, b-1, err)
			}
			c.Release(last.Lease)
		}
		last = batch
	}
	if last != nil {
		c.Release(last.Lease)
	}
	return order, nil
}

func (d *dataset) want(t testing.TB, j schedule.Job, epoch, rank int) []sample.Index {
	t.Helper()
	r, err := shuffle.New(shuffle.Spec{Recipe: j.Recipe, Samples: len(d.bytes), Seed: j.Seed, BatchSize: j.BatchSize, World: j.World, DropLast: j.DropLast, Params: j.Params})
	if err != nil {
		t.Fatal(err)
	}
	order, err := r.Rank(epoch, rank, nil)
	if err != nil {
		t.Fatal(err)
	}
	return order
}

// attach is a client of this process.
func attach(t testing.TB, e *Engine) *deliver.Client {
	t.Helper()
	c, _, err := e.Attach(os.Getpid(), "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// pace keeps ranks in step, as gradient all-reduce does: none is more than lead batches before the slowest. A rank that leaves the
// window is served by index.
type pace struct {
	mu    sync.Mutex // guards the field that follows
	moved *sync.Cond
	at    []int // by rank
}

const lead = 4

func newPace(ranks int) *pace {
	p := &pace{at: make([]int, ranks)}
	p.moved = sync.NewCond(&p.mu)
	return p
}

func (p *pace) turn(rank, batch int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at[rank] = batch
	p.moved.Broadcast()
	for batch > slices.Min(p.at)+lead {
		p.moved.Wait()
	}
}

// leave makes the other ranks no longer wait for this rank.
func (p *pace) leave(rank int) {
	p.mu.Lock()
	p.at[rank] = math.MaxInt - lead
	p.mu.Unlock()
	p.moved.Broadcast()
}

// readEpochs reads epochs [from, to) with all ranks at once, and checks bytes, labels and orders.
func (d *dataset) readEpochs(t testing.TB, e *Engine, j schedule.Job, from, to int) {
	t.Helper()
	d.readEpochsPaced(t, e, j, from, to, func(int) {})
}

// readEpochsPaced is readEpochs; each rank calls turn before each of its batches.
func (d *dataset) readEpochsPaced(t testing.TB, e *Engine, j schedule.Job, from, to int, turn func(batch int)) {
	t.Helper()
	for epoch := from; epoch < to; epoch++ {
		var wg sync.WaitGroup
		p := newPace(max(j.World, 1))
		for rank := range p.at {
			c := attach(t, e)
			wg.Go(func() {
				defer c.Disconnected()
				defer p.leave(rank)
				got, err := d.readPaced(e, c, epoch, rank, 0, func(b int) { p.turn(rank, b); turn(b) })
				if err != nil {
					t.Error(err)
					return
				}
				if want := d.want(t, j, epoch, rank); !slices.Equal(got, want) {
					t.Errorf("epoch %d rank %d: order differs from the recipe's (%d samples, want %d)", epoch, rank, len(got), len(want))
				}
			})
		}
		wg.Wait()
	}
}
