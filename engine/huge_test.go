package engine

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"testing"

	"lcache/deliver"
	"lcache/ingest"
	"lcache/sample"
)

// TestHugeSample: one sample of 40 MB among 600 of 20 KB, in each layout. Epochs are read as ever, with four times its size of memory and a little more. Asked for by
// index it has no room in side memory, and is lent; to a client that takes no loans the error says so.
func TestHugeSample(t *testing.T) {
	const size, huge = 40 << 20, 417
	inLayouts(t, func(t *testing.T, layout string) {
		d := makeDataset(t, 600, func(r *rand.Rand, i int) int {
			if i == huge {
				return size
			}
			return 10_000 + r.IntN(20_000)
		})
		j := samplerJob(3, 16, 1, false)
		o, _ := ingested(t, d, ingest.Options{Job: j, Layout: layout, NoPrefill: layout == "log"})
		e := open(t, o)
		defer closeEngine(t, e)
		d.readEpochs(t, e, j, 0, 3)
		s := e.Status()
		if s.MemoryBytes > 4*size+96e6 {
			t.Errorf("%d MB of memory for a sample of %d MB: %+v", s.MemoryBytes/1e6, size/1000000, e.cache.Sizing)
		}
		if job := s.Jobs[0]; job.RandomReads > 0 || job.SourceBytes > d.total {
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
		lent := 0
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
		for lent < len(far) {
			loan, err := c.Lend(t.Context(), far, lent, nil)
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
	})
}
