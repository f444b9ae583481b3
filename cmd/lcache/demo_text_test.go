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
	writeDemoResult(&b, r)
	same(t, b.String(), demoGolden)
}

const demoGolden = `lcache demo · /usr/local/go/src · 100 MB in 10,000 files
ingest      read 100 MB in 0.5 s · 200 MB/s · once, in the source's own order
order       torch.distributed_sampler · seed 0 · 2 ranks, a process each · batches of 64

✓ exact   40,000 samples in the order of torch's DistributedSampler, every byte equal to its file's
✓ source  read once, by ingest: 100 MB; then 0 misses and 0 B from the source in 2 epochs
✓ log     a full shuffle, read in pieces of 256 KiB on average; the mean sample is 9.8 KiB
✓ half    hit ratio 44.0 % of the bytes; 44.0 % fit, because the log needs working space; the budget is 50.0 % of the dataset, the most that any policy can reach
✓ plain   the same bytes, and lcache is 4.0 times as fast as cold files, 16 threads a rank; the files fit into memory, where plain files are 1.2 times as fast as lcache: lcache is not worth it for a dataset of this size

lcache, room for all files · budget 110 MB · memory 80 MB
  times include opening each file again and comparing its bytes
  epoch  samples/s  MB/s    hits  misses  disk reads  mean read  written  source  waited
  0         20,000   200  10,000       0         400    256 KiB   100 MB     0 B   40 ms
  1         20,000   200  10,000       0         400    256 KiB   100 MB     0 B   40 ms
  all       20,000   200  20,000       0         800    256 KiB   200 MB     0 B   80 ms

plain files, the same samples in the same order
  times of open, read and close only, without comparing; at most 5 s each
                                    samples/s  MB/s  from the disk
  cold files, 1 thread a rank           2,000    20          100 %
  cold files, 16 threads a rank         4,000    40          100 %
  files in memory, 1 thread a rank     20,000   200            0 %
  lcache, 2 epochs                     16,000   160           95 %

lcache, room for half of the files · budget 50 MB · memory 80 MB
  times include opening each file again and comparing its bytes
  epoch  samples/s  MB/s   hits  misses  disk reads  mean read  written  source  waited
  0         20,000   200  4,400   5,600         400    256 KiB   100 MB   56 MB   40 ms
  1         20,000   200  4,400   5,600         400    256 KiB   100 MB   56 MB   40 ms
  all       20,000   200  8,800  11,200         800    256 KiB   200 MB  112 MB   80 ms
`
