package main

import (
	"strings"
	"testing"

	"lcache/cmd/lcache/internal/overview"
	"lcache/internal/serve/status"
)

func seconds(s float64) *float64 { return &s }

// sketch is the status that the contract draws.
func sketch() overview.View {
	job := status.Job{
		Name: "train", Source: "s3://data/train", Samples: 1281167, Epochs: 90, Epoch: 3, Batches: 5005, Layout: "log",
		ReadyBatches: 24, BoundBy: "consumer", Hits: 1000000, Misses: 1281167, HitsEpoch: 538624, SourceBytes: 138e9,
		LogReadBytes: 60 << 30, LogReadOps: 60 << 10,
		LoopWaitSeconds: seconds(10), LoopSeconds: seconds(1000),
		Ranks: []status.Rank{{Rank: 0, Pid: 4711, Position: 2104, LoopWaitSeconds: seconds(2.032), LeasedBytes: 55e6}},
	}
	was := job
	job.ChunksDelivered = was.ChunksDelivered + 145
	job.BytesDelivered += 3.84e9
	job.SamplesDelivered += 35600
	job.LogReadBytes += 3.84e9
	job.LogReadOps += 3662
	job.LogWriteBytes += 3.824e9
	job.LoopWaitSeconds, job.LoopSeconds = seconds(10.016), seconds(1008)
	now := status.Document{
		Pid: 4700, IOEngine: "io_uring", Direct: true, PageBytes: 2 << 20, MemoryBytes: 1.41e9, MemoryLimitBytes: 1.5e9,
		Cache: status.Cache{Dirs: []string{"/nvme/train"}, State: "normal"}, Jobs: []status.Job{job},
	}
	before := now
	before.Jobs = []status.Job{was}
	return overview.View{Before: before, Now: now, Seconds: 8}
}

func TestStatusText(t *testing.T) {
	plain := sketch()
	trouble := sketch()
	trouble.Now.Cache.State = "degraded"
	trouble.Now.Direct, trouble.Now.PageBytes, trouble.Now.MemoryLimitBytes = false, 4096, 0
	trouble.Now.Jobs[0].CorruptSamples = 3
	trouble.Now.Jobs[0].SourceRetries = 12
	trouble.Now.Jobs[0].SkippedSamples = 1
	trouble.Now.Jobs[0].Divergences = 1
	trouble.Now.Jobs[0].FirstDivergence = &status.Divergence{Epoch: 1, Rank: 0, Batch: 17}
	trouble.Now.Jobs[0].WriteErrors = 2
	devices := sketch()
	devices.Now.Cache.State = "degraded: /b is aside, /c is read-only"
	devices.Now.Cache.Devices = []status.Device{{Dir: "/a", State: "normal", LastError: "long ago"},
		{Dir: "/b", State: "aside", Errors: 3, LastError: "read /b/arena: input/output error"},
		{Dir: "/c", State: "read-only", Errors: 3, LastError: "write /c/arena: read-only file system"}}
	idle := sketch()
	idle.Now.Jobs[0].Ranks, idle.Now.Jobs[0].LoopSeconds, idle.Seconds = nil, nil, 0
	idle.Now.Jobs[0].StallSeconds = 0.2
	byIndex := sketch() // served on demand, or read without an order
	byIndex.Now.Jobs[0].Ranks = nil

	twin := sketch()
	twin.Twin, twin.Now.RSS, twin.Now.Cache.Dirs = true, 2.5e9, []string{"/nvme/train-8c1f02aa"}
	over := sketch()
	over.Now.Jobs[0].Epoch, over.Now.Jobs[0].Ranks[0].Epoch, over.Now.Jobs[0].Ranks[0].Finished = 3, 2, true
	over.Now.Jobs[0].Ranks = append(over.Now.Jobs[0].Ranks, status.Rank{Rank: 1, Pid: 4712, Epoch: 2, Finished: true}, status.Rank{Rank: 2})
	last := sketch()
	last.Now.Jobs[0].Epochs, last.Now.Jobs[0].Ranks[0].Epoch, last.Now.Jobs[0].Ranks[0].Finished = 4, 3, true
	still := sketch()
	still.Now.Jobs[0].Ranks = append(still.Now.Jobs[0].Ranks, status.Rank{Rank: 1, Pid: 4712, Epoch: 3, Finished: true, Position: 5005})

	one := sketch() // alone, with a name
	one.Now.Jobs[0].ID, one.Now.Jobs[0].Owner, one.Now.Jobs[0].Pids = "run-7", true, []int{4711}
	one.Before.Jobs[0].ID = "run-7"
	one.Now.Jobs = append(one.Now.Jobs, status.Job{Name: "train", ID: "check", Ended: true, SamplesDelivered: 1200}, status.Job{Name: "train", ID: "search", Ended: true, SamplesDelivered: 1})
	several := sketch()
	second := several.Now.Jobs[0]
	second.ID, second.Pids, second.OnDemand, second.Epoch, second.Batches, second.BoundBy = "validation", []int{4713}, true, 0, 40, "disk"
	second.HitsEpoch, second.SourceBytesEpoch, second.ReadyBatches = 0, 0, 0
	second.LoopSeconds, second.LoopWaitSeconds, second.StallSeconds, second.LogReadBytes = nil, nil, 1.5, 0
	second.Ranks = []status.Rank{{Rank: 0, Pid: 4713, Position: 10}}
	second.FirstDivergence, second.Divergences = &status.Divergence{Epoch: 0, Rank: 0, Batch: 3}, 1
	several.Now.Jobs[0].ID, several.Now.Jobs[0].Owner, several.Now.Jobs[0].Pids = "run-7\n", true, []int{4711, 4712}
	third := status.Job{Name: "train", BoundBy: "unknown"}
	wasSecond := second
	wasSecond.StallSeconds = 0
	several.Before.Jobs = append(several.Before.Jobs, wasSecond)
	several.Before.Jobs[0].ID = "run-7\n" // it owned nothing then: the figures of the log are found all the same
	several.Now.Jobs = append(several.Now.Jobs, second, third, status.Job{Name: "train", ID: "check", Ended: true, SamplesDelivered: 1200})

	for _, c := range []struct {
		name string
		view overview.View
		want string
	}{
		{"one with a name, and some that are over", one, `train · epoch 3 · batch 2,104 / 5,005 · 42 % · 2 min 40 s left
  loop waited 0.2 % · bottleneck: training loop · 24 batches ready
  480 MB/s · 4,450 samples/s · hits 100 %
  disk   read 480 + write 478 MB/s · 1 MiB reads · source 0 B
  memory 1.41 / 1.50 GB · huge pages · io_uring · O_DIRECT
  rank  pid   batch  waited  memory
  0     4711  2,104  0.2 %   55 MB
  ended  2 jobs · 1,201 samples
`},
		{"several", several, `train · 3 jobs
  job             epoch          batch  done        left  MB/s  samples/s  waited     bottleneck   hits  source             layout         pid
  run-7\n             3  2,104 / 5,005  42 %  2 min 40 s   480      4,450   0.2 %  training loop  100 %     0 B  log, in its order  4711, 4712
  validation          0        10 / 40  25 %           –   0.0          0    19 %           disk      –     0 B          on demand        4713
  without a name      0              –  idle           –   0.0          0     0 %              –      –     0 B                  –           –
  disk   read 480 + write 478 MB/s · 1 MiB reads
  memory 1.41 / 1.50 GB · huge pages · io_uring · O_DIRECT
  job         rank  pid   batch  waited  memory
  run-7\n     0     4711  2,104  0.2 %   55 MB
  validation  0     4713  10     –       0 B
  ended  1 job · 1,200 samples
! validation: requests differ from the planned order, first at epoch 0 rank 0 batch 3: samples are right but slower; ingest again with the recipe and seed of the training
`},
		{"another of the name", twin, `train (train-8c1f02aa, pid 4700) · epoch 3 · batch 2,104 / 5,005 · 42 % · 2 min 40 s left
  loop waited 0.2 % · bottleneck: training loop · 24 batches ready
  480 MB/s · 4,450 samples/s · hits 100 %
  disk   read 480 + write 478 MB/s · 1 MiB reads · source 0 B
  memory 1.41 / 1.50 GB · 2.5 GB resident · huge pages · io_uring · O_DIRECT
  rank  pid   batch  waited  memory
  0     4711  2,104  0.2 %   55 MB
`},
		{"between epochs", over, `train · epoch 2 done
  loop waited 0.2 % · bottleneck: training loop · 24 batches ready
  480 MB/s · 4,450 samples/s · hits 100 %
  disk   read 480 + write 478 MB/s · 1 MiB reads · source 0 B
  memory 1.41 / 1.50 GB · huge pages · io_uring · O_DIRECT
  rank  pid   batch  waited  memory
  0     4711  done   0.2 %   55 MB
  1     4712  done   –       0 B
  2     –     0      –       0 B
`},
		{"after the last epoch", last, `train · done · 4 epochs
  loop waited 0.2 % · bottleneck: training loop · 24 batches ready
  480 MB/s · 4,450 samples/s · hits 100 %
  disk   read 480 + write 478 MB/s · 1 MiB reads · source 0 B
  memory 1.41 / 1.50 GB · huge pages · io_uring · O_DIRECT
  rank  pid   batch  waited  memory
  0     4711  done   0.2 %   55 MB
`},
		{"one rank of two is done", still, `train · epoch 3 · batch 3,554 / 5,005 · 71 % · 2 min 40 s left
  loop waited 0.2 % · bottleneck: training loop · 24 batches ready
  480 MB/s · 4,450 samples/s · hits 100 %
  disk   read 480 + write 478 MB/s · 1 MiB reads · source 0 B
  memory 1.41 / 1.50 GB · huge pages · io_uring · O_DIRECT
  rank  pid   batch  waited  memory
  0     4711  2,104  0.2 %   55 MB
  1     4712  done   –       0 B
`},
		{"as sketched", plain, `train · epoch 3 · batch 2,104 / 5,005 · 42 % · 2 min 40 s left
  loop waited 0.2 % · bottleneck: training loop · 24 batches ready
  480 MB/s · 4,450 samples/s · hits 100 %
  disk   read 480 + write 478 MB/s · 1 MiB reads · source 0 B
  memory 1.41 / 1.50 GB · huge pages · io_uring · O_DIRECT
  rank  pid   batch  waited  memory
  0     4711  2,104  0.2 %   55 MB
`},
		{"trouble", trouble, `train · epoch 3 · batch 2,104 / 5,005 · 42 % · 2 min 40 s left
  loop waited 0.2 % · bottleneck: training loop · 24 batches ready
  480 MB/s · 4,450 samples/s · hits 100 % · 1 request in another order
  disk   read 480 + write 478 MB/s · 1 MiB reads · source 0 B
  memory 1.4 GB · 4 KiB pages · io_uring · buffered
  rank  pid   batch  waited  memory
  0     4711  2,104  0.2 %   55 MB
! the cache is degraded: samples come from the source; check the disk of /nvme/train
! 3 samples were corrupt on disk, and read from the source instead: stop the server and run lcache verify --cache /nvme/train
! 1 sample was left out of batches, because the source could not supply them: the server's log names them; check s3://data/train
! 12 source retries in the last seconds: check s3://data/train
! 2 errors of the cache's disk: lost samples are read from the source; check the disk of /nvme/train
! requests differ from the planned order, first at epoch 1 rank 0 batch 17: samples are right but slower; ingest again with the recipe and seed of the training
`},
		{"devices", devices, `train · epoch 3 · batch 2,104 / 5,005 · 42 % · 2 min 40 s left
  loop waited 0.2 % · bottleneck: training loop · 24 batches ready
  480 MB/s · 4,450 samples/s · hits 100 %
  disk   read 480 + write 478 MB/s · 1 MiB reads · source 0 B
  memory 1.41 / 1.50 GB · huge pages · io_uring · O_DIRECT
  rank  pid   batch  waited  memory
  0     4711  2,104  0.2 %   55 MB
! /b is quarantined (read /b/arena: input/output error): its samples come from the source, and lcache retries it from time to time; check that disk
! /c is read-only (write /c/arena: read-only file system): lcache retries writing to it from time to time; check that disk
`},
		{"idle", idle, `train · epoch 3 · no rank reads
  requests waited – · 24 batches ready
  – · – samples/s · hits 100 %
  disk   read – + write – · 1 MiB reads · source 0 B
  memory 1.41 / 1.50 GB · huge pages · io_uring · O_DIRECT
`},
		{"by index", byIndex, `train · epoch 3 · samples by index
  loop waited 0.2 % · bottleneck: training loop · 24 batches ready
  480 MB/s · 4,450 samples/s · hits 100 %
  disk   read 480 + write 478 MB/s · 1 MiB reads · source 0 B
  memory 1.41 / 1.50 GB · huge pages · io_uring · O_DIRECT
`},
		{"no job", overview.View{Now: status.Document{Pid: 4700}}, "pid 4700 · no job yet\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			same(t, page(c.view), c.want)
		})
	}
}

// page is the status of some servers, without a limit.
func page(views ...overview.View) string {
	return strings.Join(statusPage(views, screen{}), "\n") + "\n"
}

func TestStatusTextOfImportance(t *testing.T) {
	v := sketch()
	v.Now.Jobs[0].Importance = &status.Importance{Method: "impact", State: "active", EpochLength: 640583, Requested: 1000, HHits: 342, ObservedShare: 0.5}
	if got, want := page(v), "  importance impact active · 640,583 samples an epoch · in memory 34 % · observed 50 %\n"; !strings.Contains(got, want) {
		t.Errorf("got %s, want the line %s", got, want)
	}
	i := v.Now.Jobs[0].Importance
	i.Substitute, i.Substituted, i.SubstitutedMax = "low", 250, 1
	if got, want := page(v), " · in memory 34 % · substitutes 25 %, one sample at most 1 × · observed 50 %\n"; !strings.Contains(got, want) {
		t.Errorf("got %s, want the line %s", got, want)
	}
}
