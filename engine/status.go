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
	Schema           int         `json:"schema"`
	Version          string      `json:"version"`
	Pid              int         `json:"pid"`
	UptimeSeconds    float64     `json:"uptime_seconds"`
	IOEngine         string      `json:"io_engine"`
	Direct           bool        `json:"direct"`
	PageBytes        int         `json:"page_bytes"`
	MemoryBytes      int64       `json:"memory_bytes"`
	MemoryLimitBytes int64       `json:"memory_limit_bytes"`
	Cache            CacheStatus `json:"cache"`
	Jobs             []JobStatus `json:"jobs"`
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
}

// JobStatus is the part of Status about what is served. Durations are in seconds.
type JobStatus struct {
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
	SkippedSamples     int64        `json:"skipped_samples"` // left out of answers because they can't be had
	SourceBytes        int64        `json:"source_bytes"`
	SourceReads        int64        `json:"source_reads"`
	SourceRetries      int64        `json:"source_retries"`
	LogReadBytes       int64        `json:"log_read_bytes"`
	LogReadOps         int64        `json:"log_read_ops"`
	LogWriteBytes      int64        `json:"log_write_bytes"`
	LogWriteOps        int64        `json:"log_write_ops"`
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
}

// RankStatus is how far a rank is; Position counts batches of the epoch.
type RankStatus struct {
	Rank            int      `json:"rank"`
	Pid             int      `json:"pid"`
	Position        int      `json:"position"`
	LoopWaitSeconds *float64 `json:"loop_wait_seconds"`
	LeasedBytes     int64    `json:"leased_bytes"`
	Late            bool     `json:"late"`
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
}

func position(epoch, rank, batch int) deliver.Position {
	return deliver.Position{Epoch: epoch, Rank: rank, Batch: batch}
}

// Status is the state and the counters now.
func (e *Engine) Status() Status {
	store := e.cache.Store.Stats()
	held := e.deliver.Held()
	j := JobStatus{Name: e.cache.Name(), Source: e.cache.Record.Source, Samples: e.cache.Manifest.Len(), DatasetBytes: int64(e.cache.Manifest.Bytes()), KeptBytes: int64(e.cache.Record.KeptBytes),
		Recipe: e.cache.Record.Job.Recipe, Seed: e.cache.Record.Job.Seed, Epochs: e.cache.Record.Job.Epochs, Layout: e.cache.Layout, LayoutReason: e.cache.LayoutReason,
		ChunksDelivered: e.deliver.Stats.Chunks.Load(), SamplesDelivered: e.deliver.Stats.Samples.Load(), BytesDelivered: e.deliver.Stats.Bytes.Load(),
		Hits: e.deliver.Stats.Hits.Load(), Misses: e.deliver.Stats.Misses.Load(), SkippedSamples: e.deliver.Stats.Skipped.Load(),
		SourceBytes: e.fetcher.Stats.SourceBytes.Load(), SourceReads: e.fetcher.Stats.SourceReads.Load(), SourceRetries: e.cache.Source.Retries(),
		LogReadBytes: int64(store.BlockReadBytes), LogReadOps: int64(store.BlockReads), LogWriteBytes: int64(store.WriteBytes), LogWriteOps: int64(store.Writes),
		RandomReads: e.fetcher.Stats.RandomReads.Load(), ReorderDropped: e.pass.Stats.Dropped.Load(), LateBlocks: e.pass.Stats.LateBlocks.Load(),
		StallSeconds: e.deliver.Stats.Stall.Total().Seconds(), CorruptSamples: e.fetcher.Stats.CorruptSamples.Load(), StaleSamples: e.fetcher.Stats.StaleReads.Load(),
		WriteErrors: int64(store.WriteErrors), ReadErrors: int64(store.ReadErrors), SyncErrors: int64(store.SyncErrors),
		SegmentBytes: int64(e.cache.Sizing.Segment), EpochsDone: []EpochDone{}, Ranks: []RankStatus{}}
	now := e.totals()
	e.mu.Lock()
	j.Epoch = e.readEpoch
	j.EvictedSegments, j.Divergences, j.FirstDivergence = e.counts.evicted, e.counts.divergences, e.counts.firstDivergence
	j.ConsumerWait = e.idleFor().Seconds()
	j.Draining = e.drained && e.tgt != nil
	j.EpochsDone = append(j.EpochsDone, e.counts.done...)
	j.Segments = len(e.segs)
	j.ReadyBatches = e.ready()
	for n, r := range e.ranks {
		j.Ranks = append(j.Ranks, RankStatus{Rank: n, Pid: r.pid, Position: r.position(e.cache.Schedule, n, j.Epoch), LeasedBytes: held[r.pid], Late: r.outOfWindow})
	}
	e.counts.reports.fill(&j)
	// The epoch that is read and the one before it: what bound the first epoch is no news in the tenth.
	then := e.counts.before
	if then.at.IsZero() {
		then.at = e.started
	}
	e.timed(&now)
	j.BoundBy = boundBy(now.since(then))
	e.mu.Unlock()
	slices.SortFunc(j.Ranks, func(a, b RankStatus) int { return a.Rank - b.Rank })
	for _, r := range j.Ranks {
		j.Batches = max(j.Batches, e.cache.Schedule.Batches(j.Epoch, r.Rank))
	}
	j.MetaIndexBytesEach = e.bytesEach()
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
	return Status{Schema: 1, Version: e.opts.Version, Pid: os.Getpid(), UptimeSeconds: time.Since(e.started).Seconds(), IOEngine: e.cache.IO.Name(), Direct: e.cache.IO.Direct(),
		PageBytes: e.staging.PageBytes(), MemoryBytes: e.memoryBytes(), MemoryLimitBytes: int64(e.cache.Sizing.Memory),
		Cache: CacheStatus{Dirs: e.cache.Dirs, BudgetBytes: int64(e.cache.Sizing.Budget), UsedBytes: int64(e.cache.Store.Used()) * int64(e.cache.Format.Block), State: state,
			SlackBytes: int64(e.cache.Sizing.Slack), ArenaBytes: int64(e.cache.Sizing.Arena), BlockBytes: int64(e.cache.Format.Block), Compress: e.cache.Record.CompressName(), Devices: devices},
		Jobs: []JobStatus{j}}
}

// ready is how many batches lie loaded before the hindmost rank. e.mu is held.
func (e *Engine) ready() int {
	if e.prefetcher != nil {
		return e.readyStatic()
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

// memoryBytes is the memory that the formula counts, as it is really taken: reserved regions, and tables outside Go's heap.
func (e *Engine) memoryBytes() int64 {
	n := e.staging.Bytes() + e.mover.ScratchBytes() + int64(e.bytesEach()*float64(e.cache.Manifest.Len()))
	for _, l := range e.cache.Store.Logfiles() {
		if l != nil {
			n += int64(len(l.Buffers()))
		}
	}
	return n
}

// bytesEach is what the MetaIndex takes a sample: place and address, and for each line its order, segments and arrival list, and the
// orders that chunks are cut from.
func (e *Engine) bytesEach() float64 {
	if e.cache.Manifest.Len() == 0 {
		return 0
	}
	n := e.cache.Locations.Bytes() + 4*int64(e.cache.Manifest.Len())
	e.mu.Lock()
	for _, l := range e.logs {
		if l.Line != nil {
			n += 4 * int64(len(l.Line.Order)+len(l.Line.Segment)+len(l.Line.Order))
		}
	}
	for _, l := range e.layouts {
		n += 4 * int64(len(l.line.Order)+len(l.line.Segment))
	}
	e.mu.Unlock()
	return float64(n+e.cache.Schedule.Bytes()) / float64(e.cache.Manifest.Len())
}
