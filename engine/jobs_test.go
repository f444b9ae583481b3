package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/sample"
)

func TestPushedOrders(t *testing.T) {
	testenv.Long(t)
	inLayouts(t, testPushedOrders)
}

func testPushedOrders(t *testing.T, layout string) {
	d := makeDataset(t, 900, func(r *rand.Rand, _ int) int { return r.IntN(30_000) })
	o, _ := ingested(t, d, ingest.Options{Block: 128 << 10, Memory: 24 << 20})
	o.Layout, o.Patience = layout, 5*time.Second // samples that a slow disk delivers late count as read by index
	e := open(t, o)
	defer closeEngine(t, e)
	c := attach(t, e)
	r := rand.New(rand.NewPCG(5, 5))
	const epochs = 4
	orders := make([][][]sample.Index, epochs)
	for epoch := range orders {
		perm := r.Perm(len(d.bytes))
		for at := 0; at < len(perm); {
			n := min(1+r.IntN(40), len(perm)-at)
			batch := make([]sample.Index, n)
			for i := range batch {
				batch[i] = uint32(perm[at+i])
			}
			orders[epoch] = append(orders[epoch], batch)
			at += n
		}
	}
	if _, err := c.Chunk(context.Background(), 0, 0, 0); err == nil {
		t.Error("a chunk of an unknown order was answered")
	}
	for epoch := range 2 {
		if err := e.Push(schedule.Pusher{Pid: os.Getpid()}, epoch, 0, orders[epoch]); err != nil {
			t.Fatal(err)
		}
	}
	for epoch := range epochs {
		if next := epoch + 2; next < epochs {
			if err := e.Push(schedule.Pusher{Pid: os.Getpid()}, next, 0, orders[next]); err != nil {
				t.Fatal(err)
			}
		}
		got, err := d.readRank(e, c, epoch, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if want := slices.Concat(orders[epoch]...); !slices.Equal(got, want) {
			t.Fatalf("epoch %d: order differs from the one pushed", epoch)
		}
	}
	s := noSource(t, e)
	if s.RandomReads > int64(2*len(d.bytes)) {
		t.Errorf("%d samples read by index in %d epochs: orders pushed ahead are laid out", s.RandomReads, epochs)
	}
	if err := e.Push(schedule.Pusher{Pid: os.Getpid()}, 0, 0, [][]sample.Index{{uint32(len(d.bytes))}}); err == nil {
		t.Error("an order with an index beyond the dataset was taken")
	}
}

func TestAnotherJobResorts(t *testing.T) {
	j := samplerJob(3, 16, 2, false)
	d, o := small(t, j)
	e := open(t, o)
	d.readEpochs(t, e, j, 0, 1)
	closeEngine(t, e)
	other := samplerJob(3, 24, 1, true)
	other.Seed = "99"
	o2, rep := ingested(t, d, ingest.Options{Job: other, Dirs: o.Dirs, Memory: 24 << 20})
	if !rep.Resorted || rep.ReadBytes != 0 {
		t.Errorf("another seed over the same cache: resorted %v, %d bytes read from the source; want a re-sort alone", rep.Resorted, rep.ReadBytes)
	}
	e = open(t, o2)
	defer closeEngine(t, e)
	d.readEpochs(t, e, other, 0, 3)
	noSource(t, e)
}

func TestIngestResumes(t *testing.T) {
	j := samplerJob(2, 16, 1, false)
	d := makeDataset(t, 800, func(r *rand.Rand, _ int) int { return r.IntN(30_000) })
	dirs := []string{t.TempDir()}
	ctx, cancel := context.WithCancel(context.Background())
	in := ingest.Options{Source: d.dir, Dirs: dirs, Job: j, Block: 128 << 10, Memory: 24 << 20, IO: testIO(), Logger: testLogger(t)}
	in.Progress = func(p cache.Progress) {
		if p.Stage == "reading" && p.Done > d.total/2 {
			cancel()
		}
	}
	if _, err := ingest.Run(ctx, in); !errors.Is(err, context.Canceled) {
		t.Fatalf("a cancelled ingest gave %v", err)
	}
	in.Progress = nil
	rep, err := ingest.Run(context.Background(), in)
	if err != nil {
		t.Fatal(err)
	}
	if rep.ReadBytes >= d.total*3/4 || rep.ReadBytes == 0 || rep.Already == 0 {
		t.Errorf("run again, ingest read %d of %d bytes, %d samples were there", rep.ReadBytes, d.total, rep.Already)
	}
	rep, err = ingest.Run(context.Background(), in)
	if err != nil {
		t.Fatal(err)
	}
	if rep.ReadBytes != 0 {
		t.Errorf("run over a complete cache, ingest read %d bytes", rep.ReadBytes)
	}
	e := open(t, Options{Dirs: dirs, IO: testIO(), Memory: 24 << 20, Logger: testLogger(t)})
	defer closeEngine(t, e)
	d.readEpochs(t, e, j, 0, 2)
	noSource(t, e)
}

func TestTwoServers(t *testing.T) {
	_, o := small(t, samplerJob(1, 16, 1, false))
	e := open(t, o)
	if e2, err := Open(context.Background(), o); err == nil {
		closeEngine(t, e2)
		t.Error("two servers on one cache")
	} else if want := "in use by process"; !strings.Contains(err.Error(), want) {
		t.Errorf("the second server's error is %q, want one that says %q and the pid", err, want)
	}
	closeEngine(t, e)
	closeEngine(t, open(t, o))
}

// TestEpochsOfAnotherOrder: a client that sends its positions, but requests other samples than planned, ends as many epochs as it reads.
// Regression: each of its requests once counted as an epoch.
func TestEpochsOfAnotherOrder(t *testing.T) {
	j := samplerJob(4, 16, 2, true)
	d, o := small(t, j)
	e := open(t, o)
	defer closeEngine(t, e)
	for epoch := range 3 {
		for rank := range 2 {
			c := attach(t, e)
			for b := range e.cache.Schedule.Batches(epoch, rank) {
				indices := make([]sample.Index, j.BatchSize)
				for i := range indices {
					indices[i] = sample.Index((epoch + rank + b*j.BatchSize + i) % len(d.bytes))
				}
				batch, err := c.Get(context.Background(), indices, &deliver.Position{Epoch: epoch, Rank: rank, Batch: b})
				if err != nil {
					t.Fatal(err)
				}
				if err := d.check(e, batch); err != nil {
					t.Fatal(err)
				}
				c.Release(batch.Lease)
			}
		}
	}
	s := e.Status().Jobs[0]
	if s.Divergences == 0 || len(s.EpochsDone) > 3 {
		t.Errorf("%d divergences, %d epochs done, want some and at most 3", s.Divergences, len(s.EpochsDone))
	}
	for k, done := range s.EpochsDone {
		if done.Epoch != k || done.OrderDigest != nil {
			t.Errorf("epoch %d: %+v, want no digest", k, done)
		}
	}
}
