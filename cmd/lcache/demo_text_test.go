package main

import (
	"bytes"
	"testing"

	"lcache/cmd/lcache/internal/demo"
	"lcache/internal/store/ingest"
)

func exampleDemo() *demo.Result {
	ingest := func(budget, slack int64) *ingest.Report {
		return &ingest.Report{Samples: 10000, Classes: 50, Bytes: 100e6, ReadBytes: 100e6, ReadSeconds: 0.5, BudgetBytes: budget,
			SlackBytes: slack, MemoryBytes: 80e6, Segments: 20, SegmentBytes: 5e6, BlockBytes: 256 << 10}
	}
	epoch := func(n int, source int64) demo.Epoch {
		return demo.Epoch{Epoch: n, Samples: 10000, Bytes: 100e6, Seconds: 0.5, Hits: 10000 - source/10000, Misses: source / 10000,
			LogReads: 400, LogRead: 100 << 20, LogWritten: 100e6, Source: source, Stalled: 0.04}
	}
	reading := func(how string, epochs, threads int, samples, disk int64) demo.Reading {
		return demo.Reading{How: how, Epochs: epochs, Threads: threads, Samples: samples, Bytes: samples * 10000, Seconds: 0.5, Disk: disk}
	}
	plain := &demo.PlainFiles{Fits: true, Readings: []demo.Reading{reading("cold files", 1, 1, 1000, 10e6), reading("cold files", 1, 16, 2000, 21e6),
		reading("files", 1, 1, 10000, 0), reading("lcache", 2, 1, 8000, 76e6)}}
	return &demo.Result{Epochs: 2, World: 2, Plain: plain,
		Full: demo.Pass{Ingest: ingest(110e6, 8e6), Epochs: []demo.Epoch{epoch(0, 0), epoch(1, 0)}},
		Half: &demo.Pass{Name: "half", Ingest: ingest(50e6, 6e6), Epochs: []demo.Epoch{epoch(0, 56e6), epoch(1, 56e6)}},
	}
}

func TestDemoText(t *testing.T) {
	r := exampleDemo()
	var b bytes.Buffer
	writeDemoHead(&b, demo.Options{Source: "/usr/local/go/src", World: 2, BatchSize: 64}, r.Full.Ingest)
	writePass(&b, &r.Full)
	writePlain(&b, r.Plain)
	writePass(&b, r.Half)
	writeFindings(&b, r)
	same(t, b.String(), demoGolden)
}

const demoGolden = `lcache demo · /usr/local/go/src · 100 MB in 10,000 files
ingest      read 100 MB in 0.5 s · 200 MB/s · once, in the source's own order
order       torch.distributed_sampler · seed 0 · 2 ranks, a process each · batches of 64

all of it on the SSD · budget 110 MB · memory 80 MB · 20 segments · blocks of 256 KiB
  epoch  samples/s  MB/s    hits  misses  log reads  mean read  log writes  source  stalled
  0         20,000   200  10,000       0        400    256 KiB      100 MB     0 B    40 ms
  1         20,000   200  10,000       0        400    256 KiB      100 MB     0 B    40 ms
  all       20,000   200  20,000       0        800    256 KiB      200 MB     0 B    80 ms

the same samples in the same order as plain files · open, read, close · timed without comparing files, at most 5 s each
                                    samples/s  MB/s  from the disk
  cold files, 1 thread a rank           2,000    20          100 %
  cold files, 16 threads a rank         4,000    40          100 %
  files in memory, 1 thread a rank     20,000   200            0 %
  lcache, 2 epochs                     16,000   160           95 %

with half of the space · budget 50 MB · memory 80 MB · 20 segments · blocks of 256 KiB
  epoch  samples/s  MB/s   hits  misses  log reads  mean read  log writes  source  stalled
  0         20,000   200  4,400   5,600        400    256 KiB      100 MB   56 MB    40 ms
  1         20,000   200  4,400   5,600        400    256 KiB      100 MB   56 MB    40 ms
  all       20,000   200  8,800  11,200        800    256 KiB      200 MB  112 MB    80 ms

✓ exact   40,000 samples in DistributedSampler's order, every byte equal to its file's
✓ source  read once, at ingest: 100 MB; then 0 misses and 0 B from it in 2 epochs
✓ log     a full shuffle, read in pieces of 256 KiB on average; samples are 9.8 KiB
✓ half    hit ratio 44.0 % of the bytes; (budget − slack)/S = 44.0 %; no policy can reach more than c = budget/S = 50.0 %
✓ plain   the same bytes, and lcache is 4.0 times as fast as cold files, 16 threads a rank; this set fits into memory, where files are 1.2 times as fast as lcache: for a set of this size lcache is not worth its trouble

shown: full shuffles at 0.5 s an epoch, from a log that put itself in order for the next epoch while it was read
       (times include opening every file again and comparing it)
`
