package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"lcache/internal/plan"
	"lcache/internal/serve/schedule"
	"lcache/internal/serve/status"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/usage"
)

// still fails if the static layout was not used, or anything was written.
func still(t *testing.T, e *Engine) status.Job {
	t.Helper()
	s := noSource(t, e)
	if s.Layout != cache.LayoutStatic || s.LayoutReason == "" || s.LogWriteBytes != 0 {
		t.Errorf("layout %q (%s), %d bytes written: want static, and nothing", s.Layout, s.LayoutReason, s.LogWriteBytes)
	}
	return s
}

// TestLayoutsTakeTurns: any cache can be served in either layout, whichever one it was last served in, and the source is not read again.
func TestLayoutsTakeTurns(t *testing.T) {
	j := samplerJob(9, 16, 2, false)
	d, o := small(t, j)
	half := func(e *Engine, epoch int) {
		c := attach(t, e)
		defer c.Disconnected()
		for b := range 20 { // of 38: the log is left between two orders
			for rank := range 2 {
				batch, err := c.Chunk(context.Background(), epoch, rank, b)
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
	at := 0
	for turn, layout := range []string{cache.LayoutStatic, cache.LayoutLog, cache.LayoutStatic, cache.LayoutLog, cache.LayoutStatic} {
		o.Layout = layout
		e := open(t, o)
		d.readEpochs(t, e, j, at, at+1)
		half(e, at+1)
		if layout == cache.LayoutStatic {
			still(t, e)
		} else if s := noSource(t, e); s.Layout != cache.LayoutLog || s.LogWriteBytes == 0 {
			t.Errorf("turn %d: layout %s, %d bytes written", turn, s.Layout, s.LogWriteBytes)
		}
		at++
		closeEngine(t, e)
	}
}

// TestStaticIngest: in a log that is packed in the source's order each sample is one read, even if it crosses blocks. The cache is served in this layout by default.
func TestStaticIngest(t *testing.T) {
	j := samplerJob(4, 16, 1, true)
	d := makeDataset(t, 600, func(r *rand.Rand, _ int) int { return 40_000 + r.IntN(30_000) })
	in := ingest.Options{Job: j, Block: 128 << 10, Memory: 32 << 20, Layout: cache.LayoutStatic, Jobs: 1}
	o, rep := ingested(t, d, in)
	if rep.Layout != cache.LayoutStatic || rep.ReadBytes != d.total {
		t.Errorf("layout %s, %d bytes read", rep.Layout, rep.ReadBytes)
	}
	e := open(t, o)
	d.readEpochs(t, e, j, 0, 2)
	s := still(t, e)
	// The last block of a segment is written after all others, so a sample that crosses into it takes two reads. The third epoch is read ahead, too.
	if most := int64(2*(592+rep.Segments) + int(e.cache.Sizing.Ring())/40_000); s.LogReadOps > most {
		t.Errorf("%d reads for two epochs of 592 samples in %d segments, want at most %d", s.LogReadOps, rep.Segments, most)
	}
	if len(s.EpochsDone) != 2 || s.EpochsDone[1].OrderDigest == nil || s.EpochsDone[1].LogReadBytes == 0 {
		t.Errorf("%+v", s.EpochsDone)
	}
	closeEngine(t, e)

	in.Dirs = o.Dirs
	if _, rep = ingested(t, d, in); rep.Resorted || rep.ReadBytes != 0 || rep.Already != 600 {
		t.Errorf("run again: %+v", rep)
	}
	in.Job.Seed, in.Layout = "8", "" // another order is nothing to a cache that has none
	if _, rep = ingested(t, d, in); rep.Resorted || rep.ReadBytes != 0 || rep.Layout != cache.LayoutStatic {
		t.Errorf("with another seed: %+v", rep)
	}
	in.Layout = cache.LayoutLog
	if o, rep = ingested(t, d, in); !rep.Resorted || rep.ReadBytes != 0 || rep.Layout != cache.LayoutLog {
		t.Errorf("to be reordered: %+v", rep)
	}
	e = open(t, o)
	d.readEpochs(t, e, in.Job, 0, 2)
	if s := noSource(t, e); s.Layout != cache.LayoutLog || s.LogWriteBytes == 0 {
		t.Errorf("layout %s, %d bytes written", s.Layout, s.LogWriteBytes)
	}
	closeEngine(t, e)
	in.Layout = cache.LayoutStatic
	if o, rep = ingested(t, d, in); rep.Resorted || rep.ReadBytes != 0 || rep.StoredSamples != 600 {
		t.Errorf("a log that was reordered, to stay as it is: %+v", rep)
	}
	e = open(t, o)
	defer closeEngine(t, e)
	d.readEpochs(t, e, in.Job, 2, 4)
	still(t, e)
}

// TestStaticFillsTheLogOnce: without prefill the first epoch reads the source and writes. After a restart in the middle it continues.
func TestStaticFillsTheLogOnce(t *testing.T) {
	j := samplerJob(4, 16, 2, false)
	d := makeDataset(t, 1200, func(r *rand.Rand, _ int) int { return 1 + r.IntN(30_000) })
	o, _ := ingested(t, d, ingest.Options{Job: j, Block: 128 << 10, Memory: 24 << 20, NoPrefill: true, Layout: cache.LayoutStatic})
	e := open(t, o)
	c := attach(t, e)
	for b := range 20 {
		for rank := range 2 {
			batch, err := c.Chunk(context.Background(), 0, rank, b)
			if err != nil {
				t.Fatal(err)
			}
			c.Release(batch.Lease)
		}
	}
	first := e.Status().Jobs[0]
	closeEngine(t, e)
	e = open(t, o)
	d.readEpochs(t, e, j, 0, 2)
	s := e.Status().Jobs[0]
	if first.SourceBytes == 0 || first.SourceBytes+s.SourceBytes > d.total*11/10 { // samples that were in flight when the first server ended
		t.Errorf("%d and %d bytes read from the source by two servers, the dataset has %d", first.SourceBytes, s.SourceBytes, d.total)
	}
	if s.EpochsDone[1].Misses != 0 || s.EpochsDone[1].SourceBytes != 0 {
		t.Errorf("second epoch: %+v", s.EpochsDone[1])
	}
	closeEngine(t, e)
	e = open(t, o)
	defer closeEngine(t, e)
	d.readEpochs(t, e, j, 2, 4)
	still(t, e)
}

func TestLayoutIsChosen(t *testing.T) {
	d := makeDataset(t, 100, func(*rand.Rand, int) int { return 1000 })
	plain := samplerJob(2, 5, 2, true)
	part := plain
	part.Ranks = []int{1}
	replaced := plain
	replaced.Recipe, replaced.World, replaced.DropLast = "torch.random_sampler", 1, false
	replaced.Params = map[string]string{"replacement": "true"}
	for _, c := range []struct {
		name          string
		job           schedule.Job
		ingest, serve string
		want, why     string
	}{
		{"all ranks", plain, "", "", cache.LayoutLog, "reordered every epoch"},
		{"no recipe", schedule.Job{}, "", "auto", cache.LayoutLog, "reordered every epoch"},
		{"no recipe, all ranks", schedule.Job{World: 4}, "", "auto", cache.LayoutLog, "reordered every epoch"},
		{"no recipe, all ranks by number", schedule.Job{World: 2, Ranks: []int{1, 0}}, "", "auto", cache.LayoutLog, "reordered every epoch"},
		{"no recipe, some ranks", schedule.Job{World: 4, Ranks: []int{2, 3}}, "", "auto", cache.LayoutStatic, "2 of 4 ranks"},
		{"no recipe, some ranks, asked for", schedule.Job{World: 4, Ranks: []int{2, 3}}, "", "log", cache.LayoutLog, "given by --layout"},
		{"no recipe, some ranks, ingest was asked", schedule.Job{World: 4, Ranks: []int{2, 3}}, "log", "auto", cache.LayoutLog, "ingest"},
		{"some ranks", part, "", "", cache.LayoutStatic, "1 of 2 ranks"},
		{"some ranks, asked for", part, "", "log", cache.LayoutLog, "given by --layout"},
		{"with replacement", replaced, "", "auto", cache.LayoutStatic, "an epoch leaves out"},
		{"ingest was asked", plain, "static", "auto", cache.LayoutStatic, "ingest"},
		{"serve is asked", plain, "static", "log", cache.LayoutLog, "given by --layout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, _ := ingested(t, d, ingest.Options{Job: c.job, Layout: c.ingest})
			o.Layout = c.serve
			e := open(t, o)
			defer closeEngine(t, e)
			if s := e.Status().Jobs[0]; s.Layout != c.want || !strings.Contains(s.LayoutReason, c.why) {
				t.Errorf("%s: %s; want %s because of %q", s.Layout, s.LayoutReason, c.want, c.why)
			}
		})
	}
	var usage *usage.Error
	if _, err := Open(context.Background(), Options{Dirs: []string{t.TempDir()}, Layout: "heap"}); !errors.As(err, &usage) {
		t.Errorf("a layout that there is not: %v", err)
	}
	if _, err := ingest.Run(context.Background(), ingest.Options{Source: d.dir, Dirs: []string{t.TempDir()}, Layout: "heap"}); !errors.As(err, &usage) {
		t.Errorf("ingest, a layout that there is not: %v", err)
	}
}

func TestBenchStatic(t *testing.T) {
	d := makeDataset(t, 300, func(r *rand.Rand, i int) int { return 1 + r.IntN(30_000) })
	o, _ := ingested(t, d, ingest.Options{Job: samplerJob(2, 16, 2, false), Layout: cache.LayoutStatic})
	for range 2 {
		b, end := openTestBench(t, o, false)
		if !b.Static || b.Settling || b.Epoch != 0 {
			t.Errorf("%+v", b)
		}
		readBench(t, d, b, end, false)
	}
	if _, err := OpenBench(Options{Dirs: o.Dirs, IO: o.IO}, true); err == nil || !strings.Contains(err.Error(), "static") {
		t.Errorf("to be reordered: %v", err)
	}
	empty, _ := ingested(t, d, ingest.Options{Job: samplerJob(2, 16, 2, false), Layout: cache.LayoutStatic, NoPrefill: true})
	if _, err := OpenBench(Options{Dirs: empty.Dirs, IO: empty.IO}, false); err == nil || !strings.Contains(err.Error(), "holds no samples yet") {
		t.Errorf("an empty log: %v", err)
	}
}

// TestLayoutByDisk: if the job leaves the layout open, the disk's speed decides. This disk reads in place as fast as it writes, so the decision depends on whether samples
// that cross two blocks take two reads. They do in a log that was laid out for an epoch, and do not in one that was packed in the source's order.
func TestLayoutByDisk(t *testing.T) {
	const size, reads = 60 << 10, 1000.0
	d := makeDataset(t, 60, func(*rand.Rand, int) int { return size })
	disk := cache.Disk{Line: plan.DiskLine{ReadIOPS: reads, WriteBPS: reads * size, OpBytes: 1 << 20}, From: "assumed"}
	j := samplerJob(2, 5, 2, true)
	for _, c := range []struct {
		known     ingest.Disk // to ingest
		want, why string
	}{
		{nil, cache.LayoutLog, "by a disk that was assumed: reordering saves"},
		{func(context.Context, bool, []string) cache.Disk { return disk }, cache.LayoutStatic, "reordering would save nothing"},
	} {
		o, _ := ingested(t, d, ingest.Options{Job: j, Disk: c.known})
		o.Disk = disk
		e := open(t, o)
		d.readEpochs(t, e, j, 0, 2)
		if s := e.Status().Jobs[0]; s.Layout != c.want || !strings.Contains(s.LayoutReason, c.why) {
			t.Errorf("%s: %s; want %s because of %q", s.Layout, s.LayoutReason, c.want, c.why)
		}
		closeEngine(t, e)
	}
}
