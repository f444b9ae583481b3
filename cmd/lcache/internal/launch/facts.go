package launch

import (
	"strings"

	"lcache/cmd/lcache/internal/overview"
	"lcache/internal/host"
	"lcache/internal/plan"
	"lcache/internal/serve/status"
	"lcache/internal/store/cache"
	"lcache/internal/verdict"
)

// factsOf takes the facts for a verdict on one of the jobs from the last status of a server. It leaves out the first of several epochs if that epoch filled the
// log.
func factsOf(job int, s status.Document, ready, diskLimit float64, disk cache.Disk) verdict.Facts {
	f := verdict.Facts{DiskLimit: diskLimit, CPUs: host.Cores, Cache: strings.Join(s.Cache.Dirs, ",")}
	if len(s.Jobs) == 0 {
		return f
	}
	j := s.Jobs[job]
	f.Delivered, f.Ready, f.Recipe, f.Loader = j.SamplesDelivered, ready, j.Recipe, loaderOf(j)
	f.Kept, f.Dataset, f.Stale = j.KeptBytes, j.DatasetBytes, s.Jobs[0].StaleSamples                                       // a figure of the server's, which stands in the first entry
	f.Needed = j.DatasetBytes + 128*int64(j.Samples) + max(j.DatasetBytes/32, 40*max(s.Cache.BlockBytes, 256<<10)) + 1<<20 // padding, metadata and slack, rounded up
	if d := j.FirstDivergence; d != nil {
		f.First = &verdict.Position{Epoch: d.Epoch, Rank: d.Rank, Batch: d.Batch, Sample: d.Position}
	}
	f.Divergences, f.Single = j.Divergences, j.Epochs == 1
	judged := j.EpochsDone
	if len(judged) > 1 && judged[0].Misses > 0 {
		judged = judged[1:]
		f.Since = judged[0].Epoch
	}
	f.Filling = len(judged) == 1 && len(j.EpochsDone) == 1 && j.KeptBytes >= j.DatasetBytes && (judged[0].LogWriteBytes > 0 || judged[0].LogReadBytes == 0)
	addEpochs(&f, judged)
	if j.SamplesDelivered > 0 { // epochs have no such figure, so the share since the start stands for the judged time
		f.Peer = int64(float64(j.HitsPeer) / float64(j.SamplesDelivered) * float64(f.Samples))
	}
	if f.DiskLimit == 0 && disk.From != "" {
		f.DiskLimit = limitOf(disk, judged)
	}
	return f
}

// addEpochs adds up the epochs that are judged. The loop's own times count only if the loop reported them for each epoch.
func addEpochs(f *verdict.Facts, judged []status.Epoch) {
	reported := len(judged) > 0
	var moved int64
	for _, e := range judged {
		f.Seconds += e.Seconds
		f.Stall += e.StallSeconds
		f.Samples += e.Hits + e.Misses
		f.Misses += e.Misses
		moved += e.LogReadBytes
		if reported = reported && overview.Reported(e); reported {
			f.LoopWait += *e.LoopWaitSeconds
			f.LoopSeconds += overview.LoopTime(e)
		}
	}
	if !reported {
		f.LoopWait, f.LoopSeconds = 0, 0
	}
	if f.Seconds > 0 {
		f.DiskRate = float64(moved) / f.Seconds
	}
}

// limitOf returns the disk's limit for the log's reads in some epochs: the rate with requests of the same size and the same share of writes. It returns 0 if
// nothing was read.
func limitOf(disk cache.Disk, epochs []status.Epoch) float64 {
	var read, requests, written float64
	for _, e := range epochs {
		read, requests, written = read+float64(e.LogReadBytes), requests+float64(e.LogReadOps), written+float64(e.LogWriteBytes)
	}
	if read == 0 || requests == 0 {
		return 0
	}
	seconds := disk.Line.Seconds(plan.Transfer{Bytes: read, Request: read / requests}, plan.Transfer{Bytes: written})
	if seconds <= 0 {
		return 0
	}
	return read / seconds
}

// loaderOf returns the reported times of the processes that decode; nil: none were reported.
func loaderOf(j status.Job) *verdict.Loader {
	if j.DecodeSeconds == nil || j.LoopSeconds == nil {
		return nil
	}
	l := &verdict.Loader{LoopSeconds: *j.LoopSeconds, Decode: *j.DecodeSeconds, Workers: j.LoopWorkers}
	if j.LoopWaitSeconds != nil {
		l.LoopWait = *j.LoopWaitSeconds
	}
	for _, r := range j.Ranks {
		if r.LoopWaitSeconds != nil {
			l.Loops++
		}
	}
	return l
}
