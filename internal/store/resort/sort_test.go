package resort_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/internal/disk/durable"
	"lcache/internal/disk/offheap"
	"lcache/internal/serve/schedule"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/store/resort"
	"lcache/internal/testenv"
	"lcache/logfile"
	"lcache/sample"
)

// Allows temporary folders in memory.
func init() { os.Setenv("LCACHE_TMPFS", "1") }

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(m, testenv.Count{What: "bytes outside the heap", Now: offheap.Mapped}, testenv.Count{What: "registered bytes", Now: blockio.Registered}))
}

func job(seed string) schedule.Job {
	return schedule.Job{Recipe: "torch.distributed_sampler", Seed: seed, Epochs: 3, BatchSize: 16, World: 1}
}

// made returns a cache of 400 samples whose log is in the order of a seed, with the samples.
func made(t *testing.T, seed, compress string) (dir string, want map[string][]byte) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	root := testenv.SourceDir(t)
	want = map[string][]byte{}
	for i := range 400 {
		b := bytes.Repeat([]byte(fmt.Sprintf("sample %d ", i)), 1+r.IntN(2000))
		name := fmt.Sprintf("%04d", i)
		want[name] = b
		if err := os.WriteFile(filepath.Join(root, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir = filepath.Join(t.TempDir(), "cache")
	if _, err := ingest.Run(t.Context(), ingest.Options{Source: root, Flat: true, Dirs: []string{dir}, Job: job(seed), Compress: compress, Block: 128 << 10, Memory: 64 << 20}); err != nil {
		t.Fatal(err)
	}
	return dir, want
}

func open(t *testing.T, dir string) *cache.Cache {
	t.Helper()
	c, err := cache.Open(cache.Options{Dirs: []string{dir}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// check reads every sample of the log with a random read, and compares the log's order with the wanted one.
func check(t *testing.T, c *cache.Cache, key [16]byte, want map[string][]byte) {
	t.Helper()
	logs := c.Store.HoldingByAge()
	if len(logs) != 1 || logs[0].Header().Key != key {
		t.Fatalf("%d Logfiles hold samples, want one in the wanted order", len(logs))
	}
	for i := range c.Manifest.Len() {
		index := sample.Index(i)
		name, err := c.Manifest.Name(index)
		if err != nil {
			t.Fatal(err)
		}
		num, seg, off, ok := c.Locations.Split(c.Locations.Get(index))
		if !ok {
			t.Fatalf("sample %s has no place", name)
		}
		mem, err := blockio.Alloc(logfile.Span(off, c.StoredSize(index)))
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.Logfile(num).Read(t.Context(), seg, off, c.StoredSize(index), mem)
		if err == nil && c.Form != nil {
			plain := make([]byte, c.Manifest.Size(index))
			got, err = plain, c.Form.Unpack(index, got, plain)
		}
		if err != nil || !bytes.Equal(got, want[name]) {
			t.Errorf("sample %s: other bytes, %v", name, err)
		}
		blockio.Free(mem)
	}
}

// TestSort: a log is sorted into another order and back, plain and compressed. It is also sorted into the order that
// it already has, out of a Logfile that must be left. All samples are there each time.
func TestSort(t *testing.T) {
	for _, compress := range []string{"", "lz4"} {
		t.Run("compress="+compress, func(t *testing.T) {
			dir, want := made(t, "1", compress)
			c := open(t, dir)
			var last *schedule.Order
			for _, seed := range []string{"2", "1", "3"} {
				s, err := schedule.New(job(seed), c.Manifest.Len())
				if err != nil {
					t.Fatal(err)
				}
				if last, err = s.Order(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
				c.Schedule.Stop()
				c.Schedule = s
				if err := resort.Sort(t.Context(), c, last, nil); err != nil {
					t.Fatal(err)
				}
				check(t, c, last.Key, want)
			}
			held := c.Store.HoldingByAge()[0]
			if err := resort.Sort(t.Context(), c, last, nil); err != nil || c.Store.HoldingByAge()[0] != held {
				t.Errorf("a log in the wanted order was sorted, or %v", err)
			}
			if err := resort.Sort(t.Context(), c, last, held); err != nil || c.Store.HoldingByAge()[0] == held {
				t.Errorf("the Logfile that is to be left is still there, or %v", err)
			}
			check(t, c, last.Key, want)
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestKilledAtTheEnd: a kill after a sort has removed the journal of the old log leaves all samples, except those in
// half-filled blocks.
func TestKilledAtTheEnd(t *testing.T) {
	dir, _ := made(t, "1", "")
	clone := filepath.Join(t.TempDir(), "clone")
	trace := func(step durable.Change) error {
		if step.Step == durable.StepRemove {
			return errors.Join(os.CopyFS(clone, os.DirFS(dir)), os.Remove(filepath.Join(clone, filepath.Base(step.Path)))) // a second clone would be refused
		}
		return nil
	}
	c, err := cache.Open(cache.Options{Dirs: []string{dir}, IO: cache.IO{Trace: trace}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s, err := schedule.New(job("2"), c.Manifest.Len())
	if err != nil {
		t.Fatal(err)
	}
	order, err := s.Order(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(resort.Sort(t.Context(), c, order, nil), c.Close()); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	c = open(t, clone)
	defer c.Close()
	lacking, halfFilled := int64(0), int64(c.Sizing.Segments)*int64(c.Sizing.Block)
	for i := range c.Manifest.Len() {
		if c.Locations.Get(sample.Index(i)) == 0 {
			lacking += c.Padded(sample.Index(i))
		}
	}
	if lacking > halfFilled {
		t.Errorf("%d bytes of samples are lost, half-filled blocks have at most %d", lacking, halfFilled)
	}
}

// TestSortInterrupted: sorts that are interrupted, each a little later than the one before, lose nothing. The last
// one completes their work.
func TestSortInterrupted(t *testing.T) {
	const rounds = 12
	dir, want := made(t, "1", "")
	for round := range rounds {
		c := open(t, dir)
		s, err := schedule.New(job("9"), c.Manifest.Len())
		if err != nil {
			t.Fatal(err)
		}
		order, err := s.Order(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		c.Schedule.Stop()
		c.Schedule = s
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(round)*300*time.Microsecond)
		if round == rounds-1 {
			ctx = t.Context()
		}
		err = resort.Sort(ctx, c, order, nil)
		cancel()
		switch {
		case round == rounds-1 && err != nil:
			t.Fatal(err)
		case round == rounds-1:
			check(t, c, order.Key, want)
		case err != nil && !errors.Is(err, context.DeadlineExceeded):
			t.Errorf("round %d: %v", round, err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
