package engine

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"lcache/chunker"
	"lcache/internal/serve/deliver"
	"lcache/internal/serve/status"
	"lcache/logfile"
	"lcache/sample"
)

func position(epoch, rank, batch int) deliver.Position {
	return deliver.Position{Epoch: epoch, Rank: rank, Batch: batch}
}

// digestPatience is how long the status document waits for the digests of epochs that have just ended.
const digestPatience = time.Second

// Status returns the state and the counters now.
func (e *Engine) Status() status.Document {
	e.digests.Wait(digestPatience)
	held := heldBytes{}
	held.ranks, held.unplaced = e.deliver.HeldByRank()
	totals := status.Totals{BatchWait: e.waits(), ServerFigures: status.ServerFigures{MetaIndexBytesEach: e.bytesEach()}}
	e.mu.Lock()
	var jobs []status.Job
	for _, of := range e.listed() {
		jobs = append(jobs, e.statusOf(of, held))
	}
	e.fillTotals(&totals) // after the jobs, so that the totals are at least their sum
	if jobs = append(jobs, e.ended...); len(jobs) == 1 {
		jobs[0].SkippedSamples = totals.SkippedSamples // at once, not only when a batch without them is delivered
	}
	totals.CopyTo(&jobs[0])
	wear := e.writeVolume(totals.LogWriteBytes)
	e.mu.Unlock()
	devices := e.devices()
	e.mu.Lock()
	trouble := e.cache.Sums.Broken()
	if trouble == nil && e.cache.Lengths != nil {
		trouble = e.cache.Lengths.Broken()
	}
	if e.broken != nil {
		trouble = fmt.Errorf("cannot begin the next epoch's log: %w", e.broken)
	}
	state := cacheState(devices, trouble)
	e.mu.Unlock()
	memory := e.memory()
	cluster := status.Cluster{State: status.ClusterOff}
	if e.opts.Cluster != nil {
		cluster = e.opts.Cluster()
		cluster.CorruptSamples = e.fetcher.Stats.PeerCorrupt.Load()
		others := &e.fetcher.Stats.ForPeers[sample.FromSource]
		cluster.SourceBytes, cluster.SourceReads = others.Bytes.Load(), others.Reads.Load()
		if a := e.arrivals.Load(); a != nil {
			cluster.SkippedSamples = a.skipped.Load()
		}
	}
	return status.Document{Schema: 1, Version: e.opts.Version, Pid: os.Getpid(), UptimeSeconds: e.now().Sub(e.started).Seconds(), IOEngine: e.cache.IO.Name(), Direct: e.cache.IO.Direct(),
		PageBytes: e.staging.PageBytes(), MemoryBytes: memory.Planned(), MemoryLimitBytes: max(int64(e.cache.Sizing.Memory), memory.Planned()), Memory: memory,
		Cache: status.Cache{Dirs: e.cache.Dirs, BudgetBytes: int64(e.cache.Sizing.Budget), UsedBytes: int64(e.cache.Store.Used()) * int64(e.cache.Format.Block), State: state,
			SlackBytes: int64(e.cache.Sizing.Slack), ArenaBytes: int64(e.cache.Sizing.Arena), BlockBytes: int64(e.cache.Format.Block), Compress: e.cache.Record.CompressName(), Devices: devices, Wear: wear},
		Cluster: cluster, Jobs: jobs, Totals: totals, Events: e.events.All()}
}

// ready returns how many batches are loaded for the slowest rank. e.mu is held.
func (e *Engine) ready() int {
	if !e.anyInWindow() {
		return e.readyByPrefetcher(e.owner)
	}
	if e.cur == nil || e.cur.Layout == nil || e.cache.Record.Job.BatchSize == 0 {
		return 0
	}
	samples := uint64(0)
	for k := e.slowestSegment() + 1; k < len(e.segs); k++ {
		if e.segs[k] == segDone {
			samples += e.cur.Layout.Starts[k+1] - e.cur.Layout.Starts[k]
		}
	}
	return int(samples) / e.cache.Record.Job.BatchSize
}

// heldBytes are the bytes that clients hold: by rank, or by process if they were requested without a position.
type heldBytes struct {
	ranks    map[chunker.JobRank]int64
	unplaced map[int]int64
}

// listed returns the current jobs for the document. If there is another job, it leaves out the job of the server's own recipe while no client has used
// it. e.mu is held.
func (e *Engine) listed() (jobs []*job) {
	for _, j := range e.sorted() {
		switch {
		case j.token == "" && len(e.jobs) > 1 && !e.isUsed(j):
		case j == e.owner:
			jobs = slices.Insert(jobs, 0, j)
		default:
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// isUsed reports whether a client has requested samples of a job. e.mu is held.
func (e *Engine) isUsed(j *job) bool {
	s := e.deliver.StatsOf(j.number)
	return s.Chunks.Load() > 0 || s.Stall.Total() > 0 || j.counts.IsUsed()
}

// lastStatusOf returns the entry of a job that is over. e.mu is held.
func (e *Engine) lastStatusOf(of *job) status.Job {
	j := e.statusOf(of, heldBytes{})
	j.Ended, j.OnDemand, j.ReadyBatches, j.Pids = true, false, 0, []int{}
	return j
}

// share returns part / whole; nil if whole is 0.
func share(part, whole int64) *float64 {
	if whole == 0 {
		return nil
	}
	s := float64(part) / float64(whole)
	return &s
}

// statusOf returns the entry of a job. e.mu is held.
func (e *Engine) statusOf(of *job, held heldBytes) status.Job {
	c := e.deliver.StatsOf(of.number)
	source := &c.Reads[sample.FromSource]
	j := status.Job{ID: of.token, Owner: of == e.owner, OnDemand: of.onDemand.Load(), Connections: of.users, Pids: []int{},
		Name: e.cache.Name(), Source: e.cache.Record.Source, Samples: e.cache.Manifest.Len(), DatasetBytes: int64(e.cache.Manifest.Bytes()),
		KeptBytes: int64(e.cache.Record.KeptBytes), Recipe: e.cache.Record.Job.Recipe, Seed: e.cache.Record.Job.Seed, Epochs: e.cache.Record.Job.Epochs,
		ChunksDelivered: c.Chunks.Load(), SamplesDelivered: c.Samples.Load(), BytesDelivered: c.Bytes.Load(), Hits: c.Hits(), Misses: c.Misses(),
		HitsPeer: c.From[sample.FromPeer].Load(), HitsLocal: c.Hits() - c.From[sample.FromPeer].Load(), PeerInBytes: c.Reads[sample.FromPeer].Bytes.Load(),
		PrefetchedSamples: c.Prefetched.Load(), Readiness: share(c.Ready.Load(), c.Chunks.Load()), SourceBytes: source.Bytes.Load(), SourceReads: source.Reads.Load(),
		SkippedSamples: c.Skipped.Load(), StallSeconds: c.Stall.Total().Seconds(), EpochsDone: []status.Epoch{}, Ranks: []status.Rank{}, Importance: of.importanceStatus()}
	j.Layout, j.LayoutReason = e.layoutNow()
	if of == e.owner {
		j.Epoch, j.ReadyBatches = e.readEpoch, e.ready()
	} else {
		j.Epoch, j.ReadyBatches = of.latestEpoch(), e.readyByPrefetcher(of)
	}
	e.fillRanks(of, &j, held)
	of.counts.Fill(&j, e.totals(of.number))
	return j
}

// fillRanks fills in the progress of a job's ranks. e.mu is held.
func (e *Engine) fillRanks(of *job, j *status.Job, held heldBytes) {
	for n, r := range of.ranks {
		pid := e.consumer(of, n, r)
		holds := held.ranks[of.jobRank(n)] + held.unplaced[pid]
		if pid != r.pid {
			holds += held.unplaced[r.pid]
		}
		j.Ranks = append(j.Ranks, status.Rank{Rank: n, Pid: pid, Epoch: r.epoch, Finished: r.finished, Position: r.position(of.schedule, n, j.Epoch),
			LeasedBytes: holds, Late: r.outOfWindow, Readiness: share(r.ready, r.delivered)})
		if pid != 0 && !slices.Contains(j.Pids, pid) {
			j.Pids = append(j.Pids, pid)
		}
		j.Batches = max(j.Batches, of.schedule.Batches(j.Epoch, n))
	}
	slices.Sort(j.Pids)
	slices.SortFunc(j.Ranks, func(a, b status.Rank) int { return a.Rank - b.Rank })
}

// consumer returns the process that consumes a rank's batches: the one that reported for it, or the one that requests now if that process has exited.
// e.mu is held.
func (e *Engine) consumer(j *job, n int, r *rank) int {
	pid := j.counts.LoopPid(n)
	if pid == 0 || pid == r.pid || !e.deliver.Attached(pid) && e.deliver.Attached(r.pid) {
		return r.pid
	}
	return pid
}

// fillTotals fills in all but MetaIndexBytesEach. e.mu is held.
func (e *Engine) fillTotals(t *status.Totals) {
	d, f, store := &e.deliver.Stats, &e.fetcher.Stats, e.cache.Store.Stats()
	source := &f.Reads[sample.FromSource]
	t.ChunksDelivered, t.SamplesDelivered, t.BytesDelivered, t.Hits, t.Misses = d.Chunks.Load(), d.Samples.Load(), d.Bytes.Load(), d.Hits(), d.Misses()
	t.PrefetchedSamples, t.SkippedSamples, t.StallSeconds = d.Prefetched.Load(), d.Skipped.Load(), d.Stall.Total().Seconds()
	t.SourceBytes, t.SourceReads, t.SourceRetries = source.Bytes.Load(), source.Reads.Load(), e.cache.Source.Retries()
	t.SourceHedges = e.cache.Source.Hedges()
	t.LogReadBytes, t.LogReadOps, t.LogWriteBytes, t.LogWriteOps = int64(store.BlockReadBytes), int64(store.BlockReads), int64(store.WriteBytes), int64(store.Writes)
	t.SortBytes = e.sortBytes + e.beginning.unfinished(store.WriteBytes)
	t.RandomReads, t.ReorderDropped, t.LateBlocks = f.Reads[sample.FromLog].Reads.Load(), e.scan.Stats.Dropped.Load(), e.scan.Stats.LateBlocks.Load()
	t.CorruptSamples, t.StaleSamples = f.CorruptSamples.Load(), f.StaleReads.Load()
	t.WriteErrors, t.ReadErrors, t.SyncErrors = int64(store.WriteErrors), int64(store.ReadErrors), int64(store.SyncErrors)
	t.EvictedSegments, t.ConsumerWait, t.Draining = e.evicted, e.idleFor().Seconds(), e.drained && e.tgt != nil
	t.Segments, t.SegmentBytes = len(e.segs), int64(e.cache.Sizing.Segment)
}

// writeVolume returns the write volume per day. e.mu is held.
func (e *Engine) writeVolume(written int64) (w status.Wear) {
	d := e.cache.Disk()
	w.EndurancePerDay, w.DriveBytes = int64(min(d.WearPerDay, 1e18)), d.DriveBytes
	e.owner.counts.FillWear(&w, written)
	return w
}

// devices lists the cache's devices and their errors.
func (e *Engine) devices() (list []status.Device) {
	for _, d := range e.cache.Store.Devices() {
		list = append(list, status.Device{Dir: d.Dir, State: d.State, Errors: int64(d.Errors), Asides: int64(d.Asides), LastError: d.LastError, Blocks: int64(d.Blocks)})
	}
	return list
}

// cacheState summarizes the state of the cache in a few words: its devices, and other problems.
func cacheState(devices []status.Device, other error) string {
	var trouble []string
	aside := 0
	for _, d := range devices {
		if d.State == logfile.DeviceNormal {
			continue
		}
		if d.State == logfile.DeviceAside {
			aside++
		}
		trouble = append(trouble, fmt.Sprintf("%s is %s", d.Dir, d.State))
	}
	switch {
	case aside > 0 && aside == len(devices):
		return "aside"
	case len(trouble) > 0:
		return "degraded: " + strings.Join(trouble, ", ")
	case other != nil:
		return "degraded: " + other.Error()
	}
	return "normal"
}
