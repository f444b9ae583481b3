package engine

import (
	"bytes"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/sample"
)

// TestHugeSample: one sample of 40 MB among 600 of 20 KB, in each layout, and in caches that compress. Epochs are read as usual, with memory for a little more than four times its
// size. A request by index finds no room for it in side memory, so it is lent. A client that does not take temporary leases gets an error that says so.
func TestHugeSample(t *testing.T) {
	plain, packed := uint64(4*hugeSize+96e6), uint64(4*hugeSize+128e6)
	d := hugeDataset(t, noise)
	t.Run("noise", func(t *testing.T) { testHugeSample(t, "lz4", d, packed) })
	if testenv.Short() {
		return
	}
	t.Run("none", func(t *testing.T) { testHugeSample(t, "none", d, plain) })
	t.Run("lz4", func(t *testing.T) { testHugeSample(t, "lz4", hugeDataset(t, words), packed) })
}

const hugeSize, hugeIndex = 40 << 20, 417

func hugeDataset(t *testing.T, content func(r *rand.Rand, b []byte)) *dataset {
	return makeDatasetOf(t, 600, func(r *rand.Rand, i int) int {
		if i == hugeIndex {
			return hugeSize
		}
		return 10_000 + r.IntN(20_000)
	}, func(r *rand.Rand, _ int, b []byte) { content(r, b) })
}

func testHugeSample(t *testing.T, compress string, d *dataset, limit uint64) {
	const size, huge = hugeSize, hugeIndex
	inLayouts(t, func(t *testing.T, layout string) {
		j := samplerJob(3, 16, 1, false)
		o, _ := ingested(t, d, ingest.Options{Job: j, Layout: layout, NoPrefill: layout == "log", Compress: compress})
		o.Patience = 20 * time.Second // a slow machine must not cause reads by index here
		var logged lines
		o.Logger = slog.New(slog.NewTextHandler(&logged, nil))
		e := open(t, o)
		defer closeEngine(t, e)
		lent := 0
		for epoch := range 3 {
			lent += d.readApart(t, e, j, epoch)
		}
		s := e.Status()
		if uint64(s.MemoryBytes) > limit || uint64(s.MemoryLimitBytes) > limit {
			t.Errorf("%d MB of memory of at most %d for a sample of %d MB: %+v", s.MemoryBytes/1e6, s.MemoryLimitBytes/1e6, size/1000000, e.cache.Sizing)
		}
		if e.cache.StoredSize(huge) != size {
			t.Errorf("the huge sample takes %d bytes of the log, want its %d", e.cache.StoredSize(huge), size)
		}
		again := int64(0)
		if logged.count("no room in the next epoch's log") > 0 { // on a busy machine the arena may be full for a moment: small samples are read again
			again = size / 40
		}
		if job := s.Jobs[0]; job.RandomReads > int64(lent) || job.SourceBytes > d.total+again+int64(lent)*size {
			t.Errorf("%d random reads, %d bytes of the source; want none, and the dataset once at most", job.RandomReads, job.SourceBytes)
		}
		c := attachTo(t, e, os.Getpid())
		defer c.Disconnected()
		far := []sample.Index{3, huge, 5}
		var large *deliver.ArgumentError
		if b, err := c.Get(t.Context(), far, nil); err == nil {
			c.Release(b.Lease) // it lay in staging still
		} else if !errors.As(err, &large) {
			t.Errorf("a client that takes no loans got %v", err)
		}
		c.Copies()
		b, err := c.Get(t.Context(), far, nil)
		var room *deliver.RoomError
		switch {
		case err == nil:
			if err := d.check(e, b); err != nil {
				t.Error(err)
			}
			c.Release(b.Lease)
			return
		case !errors.As(err, &room):
			t.Fatalf("got %v, want no room", err)
		}
		d.lend(t, e, c, len(far), func(from int) (*deliver.LentPart, error) { return c.Lend(t.Context(), far, from, nil) })
	})
}

// readApart reads an epoch as a client does that takes temporary leases, and returns how many samples came that way: on a busy machine the huge one may find no room for a lease. It releases each batch before it
// requests the next: when an epoch begins, a batch may be in two slots of the previous epoch, and only three can hold the huge sample.
func (d *dataset) readApart(t *testing.T, e *Engine, j schedule.Job, epoch int) (lent int) {
	t.Helper()
	c := attach(t, e)
	defer c.Disconnected()
	c.Copies()
	want := d.want(t, j, epoch, 0)
	for b, asked := range slices.Collect(slices.Chunk(want, j.BatchSize)) {
		batch, err := c.Chunk(t.Context(), epoch, 0, b)
		if room := new(deliver.RoomError); errors.As(err, &room) {
			d.lend(t, e, c, len(asked), func(from int) (*deliver.LentPart, error) { return c.LendChunk(t.Context(), epoch, 0, b, from) })
			lent += len(asked)
			continue
		}
		if err == nil {
			err = d.check(e, batch)
		}
		if err != nil {
			t.Fatalf("epoch %d batch %d: %v", epoch, b, err)
		}
		if !slices.Equal(batch.Indices, asked) {
			t.Errorf("epoch %d batch %d: %v, want %v", epoch, b, batch.Indices, asked)
		}
		c.Release(batch.Lease)
	}
	return lent
}

// lend gets n samples by temporary leases, piece by piece.
func (d *dataset) lend(t *testing.T, e *Engine, c *deliver.Client, n int, next func(from int) (*deliver.LentPart, error)) {
	t.Helper()
	for lent := 0; lent < n; {
		loan, err := next(lent)
		if err != nil {
			t.Fatal(err)
		}
		for k, index := range loan.Indices {
			if !bytes.Equal(e.staging.Slice(loan.Offsets[k], int(loan.Lengths[k])), d.bytes[index]) {
				t.Errorf("sample %d is lent with other bytes", index)
			}
		}
		if !c.Copied(loan.Lease) {
			t.Error("the loan had ended")
		}
		lent = loan.Next
	}
}

// A huge sample that an earlier job stored in the log, compressed or not, is read: the memory plan covers every sample in the log.
func TestHugeSampleStoredOtherwise(t *testing.T) {
	d := hugeDataset(t, words)
	usual, large := samplerJob(2, 16, 1, false), samplerJob(2, 300, 1, false) // to batches of 300 the sample is not huge
	for _, c := range testenv.Some([]struct {
		name          string
		before, after schedule.Job
		packed        bool
	}{{"compressed", large, usual, true}, {"as it is", usual, large, false}}, 1) {
		t.Run(c.name, func(t *testing.T) {
			in := ingest.Options{Job: c.before, Layout: "log", Compress: "lz4", Dirs: []string{filepath.Join(t.TempDir(), "cache")}}
			ingested(t, d, in)
			in.Job = c.after
			o, report := ingested(t, d, in)
			o.Patience = 20 * time.Second // a slow machine must not cause reads by index here: this client takes no temporary leases
			if report.ReadBytes > 0 {
				t.Errorf("the second ingest read %d bytes: the log was to be kept", report.ReadBytes)
			}
			e := open(t, o)
			defer closeEngine(t, e)
			if packed := e.cache.Form.Packed(hugeIndex); packed != c.packed || packed != (e.cache.Facts().LargestPacked >= hugeSize && c.after.BatchSize == 16) {
				t.Fatalf("compressed: %v, want %v; sizes count with %d bytes", packed, c.packed, e.cache.Facts().LargestPacked)
			}
			d.readEpochs(t, e, c.after, 0, 2)
			noSource(t, e)
			if e.cache.Form.Packed(hugeIndex) != c.packed {
				t.Error("the sample is stored in another way now")
			}
		})
	}
}
