package engine

import (
	"fmt"
	"os"
	"slices"
	"time"

	"lcache/deliver"
)

// Status is the status document. Counters only grow.
type Status struct {
	Schema           int     `json:"schema"`
	Version          string  `json:"version"`
	Pid              int     `json:"pid"`
	UptimeSeconds    float64 `json:"uptime_seconds"`
	IOEngine         string  `json:"io_engine"`
	Direct           bool    `json:"direct"`
	PageBytes        int     `json:"page_bytes"`
	MemoryBytes      int64   `json:"memory_bytes"`
	MemoryLimitBytes int64   `json:"memory_limit_bytes"`
	Memory
	Cache  CacheStatus `json:"cache"`
	Jobs   []JobStatus `json:"jobs"` // the owner first, then the others in the order in which they came, then the last ones that are over
	Totals Totals      `json:"totals"`
}

// CacheStatus is the part of Status about the directories.
type CacheStatus struct {
	Dirs        []string       `json:"dirs"`
	BudgetBytes int64          `json:"budget_bytes"`
	UsedBytes   int64          `json:"used_bytes"`
	State       string         `json:"state"`
	SlackBytes  int64          `json:"slack_bytes"`
	ArenaBytes  int64          `json:"arena_bytes"`
	BlockBytes  int64          `json:"block_bytes"`
	Compress    string         `json:"compress"` // "lz4" or "none"
	Devices     []DeviceStatus `json:"devices"`
	Wear
}

// JobStatus is the part of Status about one job. Durations are in seconds. The figures that ServerFigures has, too, are the server's: the first job has them, and
// in the others they are 0.
type JobStatus struct {
	ID                 string       `json:"id"`          // the token; empty: the server's own recipe's job, and requests of no job
	Owner              bool         `json:"owner"`       // the log is laid out in its order
	Ended              bool         `json:"ended"`       // nobody is connected for it any longer; what it counted stays
	OnDemand           bool         `json:"on_demand"`   // nothing is read ahead: too many other jobs
	Connections        int          `json:"connections"` // that named its token
	Pids               []int        `json:"pids"`        // of its ranks
	Name               string       `json:"name"`
	Source             string       `json:"source"`
	Samples            int          `json:"samples"`
	DatasetBytes       int64        `json:"dataset_bytes"`
	KeptBytes          int64        `json:"kept_bytes"`
	Recipe             string       `json:"recipe"`
	Seed               string       `json:"seed"`
	Epochs             int          `json:"epochs"`
	Epoch              int          `json:"epoch"`
	Batches            int          `json:"batches"` // of the epoch, of the rank with the most
	Layout             string       `json:"layout"`
	LayoutReason       string       `json:"layout_reason"`
	ChunksDelivered    int64        `json:"chunks_delivered"`
	SamplesDelivered   int64        `json:"samples_delivered"`
	BytesDelivered     int64        `json:"bytes_delivered"`
	Hits               int64        `json:"hits"`
	Misses             int64        `json:"misses"`
	PrefetchedSamples  int64        `json:"prefetched_samples"` // that lay in memory when they were asked for: the pass or the prefetcher had brought them
	Readiness          *float64     `json:"readiness"`          // share of the batches of which all samples did; nil: none was delivered
	SkippedSamples     int64        `json:"skipped_samples"`    // left out of answers because they can't be had
	SourceBytes        int64        `json:"source_bytes"`
	SourceReads        int64        `json:"source_reads"`
	SourceRetries      int64        `json:"source_retries"`
	SourceHedges       int64        `json:"source_hedges"`
	LogReadBytes       int64        `json:"log_read_bytes"`
	LogReadOps         int64        `json:"log_read_ops"`
	LogWriteBytes      int64        `json:"log_write_bytes"`
	LogWriteOps        int64        `json:"log_write_ops"`
	SortBytes          int64        `json:"sort_bytes"` // of LogWriteBytes: by sorts into the epoch that is read
	RandomReads        int64        `json:"random_reads"`
	ReorderDropped     int64        `json:"reorder_dropped"`
	EvictedSegments    int64        `json:"evicted_segments"`
	Draining           bool         `json:"draining"`
	StallSeconds       float64      `json:"stall_seconds"`
	ConsumerWait       float64      `json:"consumer_wait_seconds"`
	LoopWaitSeconds    *float64     `json:"loop_wait_seconds"`
	LoopSeconds        *float64     `json:"loop_seconds"`
	DecodeSeconds      *float64     `json:"decode_seconds"`
	LoopWorkers        int          `json:"loop_workers"` // that decode, as the training loops tell
	ReadyBatches       int          `json:"ready_batches"`
	CorruptSamples     int64        `json:"corrupt_samples"`
	StaleSamples       int64        `json:"stale_samples"`
	Divergences        int64        `json:"divergences"`
	FirstDivergence    *Divergence  `json:"first_divergence"`
	Ranks              []RankStatus `json:"ranks"`
	BoundBy            string       `json:"bound_by"`
	EpochsDone         []EpochDone  `json:"epochs_done"`
	Segments           int          `json:"segments"`
	SegmentBytes       int64        `json:"segment_bytes"`
	LateBlocks         int64        `json:"late_blocks"`
	WriteErrors        int64        `json:"log_write_errors"`
	ReadErrors         int64        `json:"log_read_errors"`
	SyncErrors         int64        `json:"log_sync_errors"`
	MetaIndexBytesEach float64      `json:"metaindex_bytes_per_sample"`

	Importance *ImportanceStatus `json:"importance"` // nil: the job asked for none

	// Of the epoch that the ranks read now; between two epochs, of the one before.
	HitsEpoch        int64 `json:"hits_epoch"`
	MissesEpoch      int64 `json:"misses_epoch"`
	SourceBytesEpoch int64 `json:"source_bytes_epoch"`
}

// RankStatus is how far a rank is; Position counts batches of the job's epoch. Pid is the process whose loop consumes the batches, as it reports
// itself. Without a report it is the process that asked last, which may be one of several workers.
type RankStatus struct {
	Rank            int      `json:"rank"`
	Pid             int      `json:"pid"`
	Epoch           int      `json:"epoch"`    // of its last request
	Finished        bool     `json:"finished"` // it has all batches of Epoch, and has not asked for another epoch
	Position        int      `json:"position"`
	LoopWaitSeconds *float64 `json:"loop_wait_seconds"`
	LeasedBytes     int64    `json:"leased_bytes"`
	Late            bool     `json:"late"`
	Readiness       *float64 `json:"readiness"` // as that of the job
}

// EpochDone is an epoch that is over.
type EpochDone struct {
	Epoch           int      `json:"epoch"`
	Seconds         float64  `json:"seconds"`
	Hits            int64    `json:"hits"`
	Misses          int64    `json:"misses"`
	LogReadBytes    int64    `json:"log_read_bytes"`
	LogReadOps      int64    `json:"log_read_ops"`
	LogWriteBytes   int64    `json:"log_write_bytes"`
	SourceBytes     int64    `json:"source_bytes"`
	StallSeconds    float64  `json:"stall_seconds"`
	LoopWaitSeconds *float64 `json:"loop_wait_seconds"`
	LoopSeconds     *float64 `json:"loop_seconds"` // of the training loop, which goes on after the last batch is delivered; nil: not reported
	OrderDigest     *string  `json:"order_digest"`
	RequestedDigest *string  `json:"requested_digest"` // of the indices that were asked for: the same, since no sample is served in place of another one
}

func position(epoch, rank, batch int) deliver.Position {
	return deliver.Position{Epoch: epoch, Rank: rank, Batch: batch}
}

// Status is the state and the counters now.
func (e *Engine) Status() Status {
	held := heldBytes{}
	held.ranks, held.unplaced = e.deliver.HeldByRank()
	totals := Totals{ServerFigures: ServerFigures{MetaIndexBytesEach: e.bytesEach()}}
	e.mu.Lock()
	var jobs []JobStatus
	for _, of := range e.listed() {
		jobs = append(jobs, e.statusOf(of, held))
	}
	e.fillTotals(&totals) // after the jobs, so that it is no less than their sum
	if jobs = append(jobs, e.ended...); len(jobs) == 1 {
		jobs[0].SkippedSamples = totals.SkippedSamples // at once, not only with the batch that they are left out of
	}
	totals.copyTo(&jobs[0])
	wear := e.wear(totals.LogWriteBytes)
	e.mu.Unlock()
	devices := e.devices()
	e.mu.Lock()
	trouble := e.cache.Sums.Broken()
	if trouble == nil && e.cache.Lengths != nil {
		trouble = e.cache.Lengths.Broken()
	}
	if e.broken != nil {
		trouble = fmt.Errorf("the next epoch's log can't be begun: %w", e.broken)
	}
	state := cacheState(devices, trouble)
	e.mu.Unlock()
	memory := e.memory()
	return Status{Schema: 1, Version: e.opts.Version, Pid: os.Getpid(), UptimeSeconds: time.Since(e.started).Seconds(), IOEngine: e.cache.IO.Name(), Direct: e.cache.IO.Direct(),
		PageBytes: e.staging.PageBytes(), MemoryBytes: memory.taken(), MemoryLimitBytes: max(int64(e.cache.Sizing.Memory), memory.taken()), Memory: memory,
		Cache: CacheStatus{Dirs: e.cache.Dirs, BudgetBytes: int64(e.cache.Sizing.Budget), UsedBytes: int64(e.cache.Store.Used()) * int64(e.cache.Format.Block), State: state,
			SlackBytes: int64(e.cache.Sizing.Slack), ArenaBytes: int64(e.cache.Sizing.Arena), BlockBytes: int64(e.cache.Format.Block), Compress: e.cache.Record.CompressName(), Devices: devices, Wear: wear},
		Jobs: jobs, Totals: totals}
}

// ready is how many batches lie loaded before the hindmost rank. e.mu is held.
func (e *Engine) ready() int {
	if !e.anyInWindow() {
		return e.readyByPrefetcher(e.owner)
	}
	if e.cur == nil || e.cur.Line == nil || e.cache.Record.Job.BatchSize == 0 {
		return 0
	}
	samples := uint64(0)
	for k := e.hindmost() + 1; k < len(e.segs); k++ {
		if e.segs[k] == segDone {
			samples += e.cur.Line.Starts[k+1] - e.cur.Line.Starts[k]
		}
	}
	return int(samples) / e.cache.Record.Job.BatchSize
}

// heldBytes are those that clients hold: by rank, and by process what it asked for without a position.
type heldBytes struct {
	ranks    map[deliver.Place]int64
	unplaced map[int]int64
}

// listed are the jobs of the document but for those that are over. The job of the server's own recipe is left out while nobody has asked anything of it, if there is
// another one. e.mu is held.
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

// isUsed reports whether somebody has asked for samples of a job. e.mu is held.
func (e *Engine) isUsed(j *job) bool {
	s := e.deliver.StatsOf(&deliver.Position{Job: j.number})
	return s.Chunks.Load() > 0 || s.Stall.Total() > 0 || j.counts.asked > 0 || j.counts.divergences > 0 || len(j.counts.reports.ranks) > 0
}

// lastStatusOf is the part of the document about a job that is over. e.mu is held.
func (e *Engine) lastStatusOf(of *job) JobStatus {
	j := e.statusOf(of, heldBytes{})
	j.Ended, j.OnDemand, j.ReadyBatches, j.Pids = true, false, 0, []int{}
	return j
}

// share is a part of a whole; nil: of nothing.
func share(part, whole int64) *float64 {
	if whole == 0 {
		return nil
	}
	s := float64(part) / float64(whole)
	return &s
}

// statusOf is the part of the document about a job. e.mu is held.
func (e *Engine) statusOf(of *job, held heldBytes) JobStatus {
	c := e.deliver.StatsOf(&deliver.Position{Job: of.number})
	j := JobStatus{ID: of.token, Owner: of == e.owner, OnDemand: of.onDemand, Connections: of.users, Pids: []int{},
		Name: e.cache.Name(), Source: e.cache.Record.Source, Samples: e.cache.Manifest.Len(), DatasetBytes: int64(e.cache.Manifest.Bytes()),
		KeptBytes: int64(e.cache.Record.KeptBytes), Recipe: e.cache.Record.Job.Recipe, Seed: e.cache.Record.Job.Seed, Epochs: e.cache.Record.Job.Epochs,
		ChunksDelivered: c.Chunks.Load(), SamplesDelivered: c.Samples.Load(), BytesDelivered: c.Bytes.Load(), Hits: c.Hits.Load(), Misses: c.Misses.Load(),
		PrefetchedSamples: c.Prefetched.Load(), Readiness: share(c.Ready.Load(), c.Chunks.Load()), SourceBytes: c.Source.Bytes.Load(), SourceReads: c.Source.Reads.Load(),
		SkippedSamples: c.Skipped.Load(), StallSeconds: c.Stall.Total().Seconds(), EpochsDone: []EpochDone{}, Ranks: []RankStatus{}, Importance: of.importanceStatus()}
	j.Layout, j.LayoutReason = e.layoutNow()
	if of == e.owner {
		j.Epoch, j.ReadyBatches = e.readEpoch, e.ready()
	} else {
		j.Epoch, j.ReadyBatches = of.latestEpoch(), e.readyByPrefetcher(of)
	}
	e.fillCounts(of, &j, e.totals(of))
	e.fillRanks(of, &j, held)
	return j
}

// fillCounts fills in what is counted of a job. e.mu is held.
func (e *Engine) fillCounts(of *job, j *JobStatus, now totals) {
	c := &of.counts
	j.Divergences, j.FirstDivergence = c.divergences, c.firstDivergence
	j.EpochsDone = append(j.EpochsDone, c.done...)
	c.fillEpoch(j, now)
	// The epoch that is read and the one before it: what bound the first epoch is no news in the tenth.
	then := c.before
	if then.at.IsZero() {
		then.at = e.started
	}
	e.timed(of, &now)
	j.BoundBy = boundBy(now.since(then))
}

// fillRanks fills in how far a job's ranks are. e.mu is held.
func (e *Engine) fillRanks(of *job, j *JobStatus, held heldBytes) {
	for n, r := range of.ranks {
		pid := e.consumer(of, n, r)
		holds := held.ranks[deliver.Place{Job: of.number, Rank: n}] + held.unplaced[pid]
		if pid != r.pid {
			holds += held.unplaced[r.pid]
		}
		j.Ranks = append(j.Ranks, RankStatus{Rank: n, Pid: pid, Epoch: r.epoch, Finished: r.finished, Position: r.position(of.schedule, n, j.Epoch),
			LeasedBytes: holds, Late: r.outOfWindow, Readiness: share(r.ready, r.delivered)})
		if pid != 0 && !slices.Contains(j.Pids, pid) {
			j.Pids = append(j.Pids, pid)
		}
		j.Batches = max(j.Batches, of.schedule.Batches(j.Epoch, n))
	}
	slices.Sort(j.Pids)
	slices.SortFunc(j.Ranks, func(a, b RankStatus) int { return a.Rank - b.Rank })
	of.counts.reports.fill(j)
}

// fillEpoch fills in the figures of the epoch that is read now: of the open epoch that was asked for last. Without an open one they are those of
// the epoch that was over last. Engine.mu is held.
func (c *counts) fillEpoch(j *JobStatus, now totals) {
	var open *epochCount
	for _, ep := range c.open {
		if open == nil || ep.asked > open.asked {
			open = ep
		}
	}
	if open != nil {
		j.HitsEpoch, j.MissesEpoch, j.SourceBytesEpoch = open.hits, open.misses, now.source-c.last.source
		return
	}
	if n := len(c.done); n > 0 {
		last := c.done[n-1]
		j.HitsEpoch, j.MissesEpoch, j.SourceBytesEpoch = last.Hits, last.Misses, last.SourceBytes
	}
}

// consumer is the process that consumes a rank's batches: the one that reported for it, unless that process has gone and another one asks now.
// e.mu is held.
func (e *Engine) consumer(j *job, n int, r *rank) int {
	told := j.counts.reports.ranks[n]
	if told == nil || told.pid == 0 || told.pid == r.pid {
		return r.pid
	}
	if !e.deliver.Attached(told.pid) && e.deliver.Attached(r.pid) {
		return r.pid
	}
	return told.pid
}
