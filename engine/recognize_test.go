package engine

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/sample"
)

// brokenOff is a cache without a recipe whose server was stopped in the middle of epoch 2 of the given orders, with the log half sorted
// for epoch 3.
func brokenOff(t *testing.T, compress string, orders [][][]sample.Index, content func(*rand.Rand, int, []byte)) (*dataset, ingest.Options, Options) {
	t.Helper()
	d := makeDatasetOf(t, brokenOffSamples, func(r *rand.Rand, _ int) int { return 1 + r.IntN(30_000) }, content)
	in := ingest.Options{Block: 128 << 10, Memory: 24 << 20, Compress: compress}
	if compress != "" {
		in.Memory = 64 << 20
	}
	o, _ := ingested(t, d, in)
	in.Dirs = o.Dirs
	o.Layout, o.Patience = cache.LayoutLog, 20*time.Second // a slow machine must not cause reads by index here
	e := open(t, o)
	c := attach(t, e)
	d.push(t, e, 0, 0, 4, orders)
	for epoch := range 2 {
		d.readPushed(t, e, c, epoch, 0, orders)
	}
	for batch := range len(orders[2]) / 2 {
		b, err := c.Chunk(context.Background(), 2, 0, batch)
		if err != nil {
			t.Fatal(err)
		}
		c.Release(b.Lease)
	}
	closeEngine(t, e)
	return d, in, o
}

const brokenOffSamples = 2000

// TestResumed: a job without a recipe that continues after a restart pushes its earlier orders, and finds its log laid out for them. The source
// is not read, and almost nothing is read by index. Regression: the next ingest sorted the whole log into the source's own order, and samples that only the
// newer Logfile had were read from the source again.
func TestResumed(t *testing.T) {
	testenv.Long(t)
	orders := shuffled(1, brokenOffSamples, 5, 1, 0)
	d, in, o := brokenOff(t, "", orders, noisy)
	in.NoPrefill = true
	if _, rep := ingested(t, d, in); rep.Resorted || rep.Already != brokenOffSamples || rep.Segments == 0 {
		t.Errorf("ingest has sorted a log whose order is the client's to say, or says so: %+v", rep)
	}
	e := open(t, o)
	defer closeEngine(t, e)
	c := attach(t, e)
	d.push(t, e, 0, 2, 5, orders)
	half := len(orders[2]) / 2
	// The scan was ahead of the job when it was stopped, by as much as the window holds. Those samples are in epoch 3's order now.
	moved := 0
	for _, index := range slices.Concat(orders[2][half:]...) {
		if !e.cache.Locations.In(index, e.cur.Log.Num()) {
			moved++
		}
	}
	got, err := d.readRank(e, c, 2, 0, half)
	if err != nil || !slices.Equal(got, slices.Concat(orders[2][half:]...)) {
		t.Fatalf("the rest of epoch 2 is in another order than the one pushed: %v", err)
	}
	for epoch := 3; epoch < 5; epoch++ {
		d.readPushed(t, e, c, epoch, 0, orders)
	}
	if s := noSource(t, e); s.RandomReads > int64(moved+len(d.bytes)/20) {
		t.Errorf("%d of %d samples read by index, and %d were moved before: the log was laid out for the others", s.RandomReads, len(d.bytes), moved)
	}
}

// TestBegunAgain: a job begins again from epoch 0, in other orders, after another was stopped in the middle of an epoch. It finds all samples of both
// Logfiles, and its order is laid out soon.
func TestBegunAgain(t *testing.T) {
	testenv.Long(t)
	for _, compress := range testenv.Some([]string{"lz4", ""}, 1) {
		t.Run("compress="+compress, func(t *testing.T) {
			d, in, o := brokenOff(t, compress, shuffled(1, brokenOffSamples, 4, 1, 0), mostlyWords)
			in.NoPrefill = true
			ingested(t, d, in)
			e := open(t, o)
			defer closeEngine(t, e)
			c := attach(t, e)
			orders := shuffled(2, brokenOffSamples, 6, 1, 0)
			byIndex := 0
			for epoch := range 4 {
				d.push(t, e, 0, epoch, epoch+2, orders)
				byIndex, _ = d.readPushed(t, e, c, epoch, 0, orders)
			}
			if byIndex > len(d.bytes)/4 {
				t.Errorf("in the fourth epoch %d of %d samples are read by index, want hardly any", byIndex, len(d.bytes))
			}
			// A segment may have no room for samples of other sizes than it was laid out for.
			if s := e.Status().Jobs[0]; s.SourceReads > int64(len(d.bytes)/50) || s.ReorderDropped != 0 || s.CorruptSamples != 0 {
				t.Errorf("%d reads from the source, %d dropped, %d corrupt: want next to none", s.SourceReads, s.ReorderDropped, s.CorruptSamples)
			}
			t.Logf("%d samples were read from the source again", e.Status().Jobs[0].SourceReads)
		})
	}
}

// TestIngestedAfterBrokenOff: an ingest with a known order sorts the samples of both Logfiles into it, and reads almost nothing.
func TestIngestedAfterBrokenOff(t *testing.T) {
	testenv.Long(t)
	d, in, o := brokenOff(t, "", shuffled(1, brokenOffSamples, 4, 1, 0), noisy)
	in.Job = samplerJob(2, 16, 1, false)
	_, rep := ingested(t, d, in)
	if rep.ReadSamples > int64(len(d.bytes)/50) || rep.StoredSamples != len(d.bytes) || !rep.Resorted {
		t.Errorf("%d of %d samples were read from the source, %d are stored; re-sorted: %v", rep.ReadSamples, len(d.bytes), rep.StoredSamples, rep.Resorted)
	}
	e := open(t, o)
	defer closeEngine(t, e)
	d.readEpochs(t, e, in.Job, 0, 2)
	if s := noSource(t, e); s.RandomReads > int64(len(d.bytes)/4) {
		t.Errorf("%d samples read by index", s.RandomReads)
	}
}
