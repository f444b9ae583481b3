package main

import (
	"bytes"
	"strings"
	"testing"

	"lcache/engine"
	"lcache/ingest"
)

func exampleDemo() *demoResult {
	ingest := func(budget, slack int64) *ingest.Report {
		return &ingest.Report{Samples: 10000, Classes: 50, Bytes: 100e6, ReadBytes: 100e6, ReadSeconds: 0.5, BudgetBytes: budget,
			SlackBytes: slack, MemoryBytes: 80e6, Segments: 20, SegmentBytes: 5e6, BlockBytes: 256 << 10}
	}
	epoch := func(n int, source int64) demoEpoch {
		return demoEpoch{Epoch: n, Samples: 10000, Bytes: 100e6, Seconds: 0.5, Hits: 10000 - source/10000, Misses: source / 10000,
			LogReads: 400, LogRead: 100 << 20, LogWritten: 100e6, Source: source, Stalled: 0.04}
	}
	return &demoResult{Epochs: 2, World: 2,
		Full: demoPass{Ingest: ingest(110e6, 8e6), Epochs: []demoEpoch{epoch(0, 0), epoch(1, 0)}},
		Half: &demoPass{Ingest: ingest(50e6, 6e6), Epochs: []demoEpoch{epoch(0, 56e6), epoch(1, 56e6)}},
	}
}

func TestDemoText(t *testing.T) {
	r := exampleDemo()
	var b bytes.Buffer
	writeDemoHead(&b, demoOptions{source: "/usr/local/go/src", world: 2, batch: 64}, r.Full.Ingest)
	writePass(&b, "all of it on the SSD", &r.Full)
	writePass(&b, "with half of the space", r.Half)
	writeFindings(&b, r)
	same(t, b.String(), demoGolden)
	if failed := r.failed(); len(failed) != 0 {
		t.Errorf("failed: %v", failed)
	}
}

// TestDemoSmall: a source that is too small to be halved is judged by the first pass alone.
func TestDemoSmall(t *testing.T) {
	r := exampleDemo()
	r.Half = nil
	if failed := r.failed(); len(failed) != 0 || len(r.checks()) != 3 {
		t.Errorf("failed: %v of %d checks", failed, len(r.checks()))
	}
	r.Full.Wrongs = 1
	if failed := r.failed(); len(failed) != 1 {
		t.Errorf("failed: %v", failed)
	}
}

// TestDemoFails spoils one fact at a time: each must be found.
func TestDemoFails(t *testing.T) {
	for name, spoil := range map[string]func(*demoResult){
		"exact: 3 differences": func(r *demoResult) { r.Full.Wrongs, r.Full.Wrong = 3, []string{"other bytes"} },
		"exact: 1 difference,": func(r *demoResult) { r.Half.Wrong = []string{"the server did not stop cleanly"} },
		"exact: 30,000 sample": func(r *demoResult) { r.Half.Epochs = r.Half.Epochs[:1] },
		"source: read once, a": func(r *demoResult) { r.Full.Epochs[1].Misses = 1 },
		"source: read once, ":  func(r *demoResult) { r.Full.Ingest.ReadBytes *= 2 },
		"log: a full shuffle, ": func(r *demoResult) {
			r.Full.Epochs[0].LogReads, r.Full.Epochs[1].LogReads = 0, 0
		},
		"log: a full shuffle, r":  func(r *demoResult) { r.Full.Epochs[1].LogRead = 0 }, // an epoch came from elsewhere
		"log: a full shuffle, re": func(r *demoResult) { r.Full.Epochs[0].LogWritten, r.Full.Epochs[1].LogWritten = 0, 0 },
		"half: hit ratio 42.0 %":  func(r *demoResult) { r.Half.Epochs[0].Hits, r.Half.Epochs[0].Misses = 4000, 6000 },
	} {
		r := exampleDemo()
		spoil(r)
		if failed := r.failed(); len(failed) != 1 || !strings.HasPrefix(failed[0], name) {
			t.Errorf("%s: got %q", name, failed)
		}
	}
}

func TestDemoSums(t *testing.T) {
	var p demoPass
	before := engine.Status{Jobs: []engine.JobStatus{{Hits: 5, Misses: 1, LogReadOps: 2, LogReadBytes: 20, LogWriteBytes: 7, SourceBytes: 3, StallSeconds: 1}}}
	after := engine.Status{Jobs: []engine.JobStatus{{Hits: 15, Misses: 3, LogReadOps: 6, LogReadBytes: 60, LogWriteBytes: 17, SourceBytes: 13, StallSeconds: 1.5}}}
	p.add(3, 2, []seen{{Samples: 6, Bytes: 60, Wrong: []string{"a"}, Wrongs: 2}, {Samples: 6, Bytes: 40}}, before, after)
	want := demoEpoch{Epoch: 3, Samples: 12, Bytes: 100, Seconds: 2, Hits: 10, Misses: 2, LogReads: 4, LogRead: 40, LogWritten: 10, Source: 10, Stalled: 0.5}
	if p.Epochs[0] != want || p.Wrongs != 2 || len(p.Wrong) != 1 {
		t.Errorf("got %+v, want %+v", p, want)
	}
}

func TestChildEnvironment(t *testing.T) {
	got := strings.Join(childEnvironment([]string{"PATH=/bin", "LCACHE_CACHE=/mine", "LCACHE_IO=pread", "LCACHE_DIRECT=0", "LCACHE_IOX=1"}), " ")
	if want := "PATH=/bin LCACHE_IO=pread LCACHE_DIRECT=0"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

const demoGolden = `lcache demo · /usr/local/go/src · 100 MB in 10,000 files
ingest      read 100 MB in 0.5 s · 200 MB/s · once, in the source's own order
order       torch.distributed_sampler · seed 0 · 2 ranks, a process each · batches of 64

all of it on the SSD · budget 110 MB · memory 80 MB · 20 segments · blocks of 256 KiB
  epoch  samples/s  MB/s    hits  misses  log reads  mean read  log writes  source  stalled
  0         20,000   200  10,000       0        400    256 KiB      100 MB     0 B    40 ms
  1         20,000   200  10,000       0        400    256 KiB      100 MB     0 B    40 ms
  all       20,000   200  20,000       0        800    256 KiB      200 MB     0 B    80 ms

with half of the space · budget 50 MB · memory 80 MB · 20 segments · blocks of 256 KiB
  epoch  samples/s  MB/s   hits  misses  log reads  mean read  log writes  source  stalled
  0         20,000   200  4,400   5,600        400    256 KiB      100 MB   56 MB    40 ms
  1         20,000   200  4,400   5,600        400    256 KiB      100 MB   56 MB    40 ms
  all       20,000   200  8,800  11,200        800    256 KiB      200 MB  112 MB    80 ms

✓ exact   40,000 samples in DistributedSampler's order, every byte equal to its file's
✓ source  read once, at ingest: 100 MB; then 0 misses and 0 B from it in 2 epochs
✓ log     a full shuffle, read in pieces of 256 KiB on average; samples are 9.8 KiB
✓ half    hit ratio 44.0 %, beside (budget − slack)/S = 44.0 %; no policy can reach more than c = budget/S = 50.0 %

shown: full shuffles at 0.5 s an epoch, from a log that put itself in order for the next epoch while it was read
       (times include opening every file again and comparing it)
`
