package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"lcache/deliver"
	"lcache/sample"
	"lcache/shuffle"
)

// dataset is a source on disk, and what every sample must be.
type dataset struct {
	dir   string
	bytes [][]byte // by index: canonical order
	label []int32
	total int64
}

// makeDataset writes n files in classes, of sizes that size draws, with bytes that don't compress.
func makeDataset(t testing.TB, n int, size func(r *rand.Rand, i int) int) *dataset {
	t.Helper()
	return makeDatasetOf(t, n, size, func(r *rand.Rand, _ int, b []byte) { noise(r, b) })
}

func makeDatasetOf(t testing.TB, n int, size func(r *rand.Rand, i int) int, content func(r *rand.Rand, i int, b []byte)) *dataset {
	t.Helper()
	d := &dataset{dir: filepath.Join(t.TempDir(), "source")}
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
func testIO() IO { return IO{Engine: os.Getenv("LCACHE_IO"), Direct: os.Getenv("LCACHE_DIRECT")} }

func samplerJob(epochs, batch, world int, dropLast bool) Job {
	return Job{Recipe: "torch.distributed_sampler", Seed: "7", Epochs: epochs, BatchSize: batch, World: world, DropLast: dropLast}
}

// ingested makes a cache of d on the working disk and returns its options.
func ingested(t testing.TB, d *dataset, o IngestOptions) (Options, *IngestReport) {
	t.Helper()
	o.Source = d.dir
	if o.IO.Engine == "" && o.IO.Direct == "" {
		io := testIO()
		o.IO.Engine, o.IO.Direct = io.Engine, io.Direct
	}
	if o.Dirs == nil {
		o.Dirs = []string{filepath.Join(t.TempDir(), "cache")}
	}
	rep, err := Ingest(context.Background(), o)
	if err != nil {
		t.Fatalf("ingest: %v", err)
	}
	return Options{Dirs: o.Dirs, IO: o.IO, Memory: o.Memory, Patience: 100 * time.Millisecond, Logger: testLogger(t)}, rep
}

// testLogger shows warnings and errors as part of the test's output.
func testLogger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

func open(t testing.TB, o Options) *Engine {
	t.Helper()
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
}

// check compares a batch with the source.
func (d *dataset) check(e *Engine, b *deliver.Batch) error {
	for i, index := range b.Indices {
		got := e.staging.Slice(b.Offsets[i], int(b.Lengths[i]))
		if !bytes.Equal(got, d.bytes[index]) {
			return fmt.Errorf("sample %d: bytes differ from the source (%d bytes, want %d)", index, len(got), len(d.bytes[index]))
		}
		if b.Labels[i] != d.label[index] {
			return fmt.Errorf("sample %d: label %d, want %d", index, b.Labels[i], d.label[index])
		}
	}
	return nil
}

// readRank reads a rank's epoch from a batch on, releasing each batch when the next is there, and returns the order.
func (d *dataset) readRank(e *Engine, c *deliver.Client, epoch, rank, start int) (order []sample.Index, err error) {
	var last *deliver.Batch
	for b := start; ; b++ {
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
			// What was handed out must still be there as long as its lease is.
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

func (d *dataset) want(t testing.TB, j Job, epoch, rank int) []sample.Index {
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

// readEpochs reads epochs [from, to) with all ranks at once, and checks bytes, labels and orders.
func (d *dataset) readEpochs(t testing.TB, e *Engine, j Job, from, to int) {
	t.Helper()
	for epoch := from; epoch < to; epoch++ {
		var wg sync.WaitGroup
		for rank := range max(j.World, 1) {
			wg.Add(1)
			c := attach(t, e)
			go func() {
				defer wg.Done()
				defer c.Disconnected()
				got, err := d.readRank(e, c, epoch, rank, 0)
				if err != nil {
					t.Error(err)
					return
				}
				if want := d.want(t, j, epoch, rank); !slices.Equal(got, want) {
					t.Errorf("epoch %d rank %d: order differs from the recipe's (%d samples, want %d)", epoch, rank, len(got), len(want))
				}
			}()
		}
		wg.Wait()
	}
}
