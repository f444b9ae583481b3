package engine

// Totals are the part of Status about the whole server. They only grow, whatever becomes of jobs.
type Totals struct {
	// Of all jobs together, also of those that are over. A second in which ranks of several jobs are short of their next batch is one second.
	ChunksDelivered   int64   `json:"chunks_delivered"`
	SamplesDelivered  int64   `json:"samples_delivered"`
	BytesDelivered    int64   `json:"bytes_delivered"`
	Hits              int64   `json:"hits"`
	Misses            int64   `json:"misses"`
	PrefetchedSamples int64   `json:"prefetched_samples"`
	SkippedSamples    int64   `json:"skipped_samples"`
	SourceBytes       int64   `json:"source_bytes"`
	SourceReads       int64   `json:"source_reads"`
	StallSeconds      float64 `json:"stall_seconds"`
	ServerFigures
}

// ServerFigures are those that no job has by itself, because jobs share the log, its devices and the source. The fields are those of JobStatus.
type ServerFigures struct {
	SourceRetries      int64   `json:"source_retries"`
	SourceHedges       int64   `json:"source_hedges"`
	LogReadBytes       int64   `json:"log_read_bytes"`
	LogReadOps         int64   `json:"log_read_ops"`
	LogWriteBytes      int64   `json:"log_write_bytes"`
	LogWriteOps        int64   `json:"log_write_ops"`
	SortBytes          int64   `json:"sort_bytes"`
	RandomReads        int64   `json:"random_reads"`
	ReorderDropped     int64   `json:"reorder_dropped"`
	EvictedSegments    int64   `json:"evicted_segments"`
	Draining           bool    `json:"draining"`
	ConsumerWait       float64 `json:"consumer_wait_seconds"`
	CorruptSamples     int64   `json:"corrupt_samples"`
	StaleSamples       int64   `json:"stale_samples"`
	LateBlocks         int64   `json:"late_blocks"`
	WriteErrors        int64   `json:"log_write_errors"`
	ReadErrors         int64   `json:"log_read_errors"`
	SyncErrors         int64   `json:"log_sync_errors"`
	Segments           int     `json:"segments"`
	SegmentBytes       int64   `json:"segment_bytes"`
	MetaIndexBytesEach float64 `json:"metaindex_bytes_per_sample"`
}

// fillTotals fills in all but MetaIndexBytesEach. e.mu is held.
func (e *Engine) fillTotals(t *Totals) {
	d, f, store := &e.deliver.Stats, &e.fetcher.Stats, e.cache.Store.Stats()
	t.ChunksDelivered, t.SamplesDelivered, t.BytesDelivered, t.Hits, t.Misses = d.Chunks.Load(), d.Samples.Load(), d.Bytes.Load(), d.Hits.Load(), d.Misses.Load()
	t.PrefetchedSamples, t.SkippedSamples, t.StallSeconds = d.Prefetched.Load(), d.Skipped.Load(), d.Stall.Total().Seconds()
	t.SourceBytes, t.SourceReads, t.SourceRetries = f.SourceBytes.Load(), f.SourceReads.Load(), e.cache.Source.Retries()
	t.SourceHedges = e.cache.Source.Hedges()
	t.LogReadBytes, t.LogReadOps, t.LogWriteBytes, t.LogWriteOps = int64(store.BlockReadBytes), int64(store.BlockReads), int64(store.WriteBytes), int64(store.Writes)
	t.SortBytes = e.sortBytes + e.beginning.unfinished(store.WriteBytes)
	t.RandomReads, t.ReorderDropped, t.LateBlocks = f.RandomReads.Load(), e.pass.Stats.Dropped.Load(), e.pass.Stats.LateBlocks.Load()
	t.CorruptSamples, t.StaleSamples = f.CorruptSamples.Load(), f.StaleReads.Load()
	t.WriteErrors, t.ReadErrors, t.SyncErrors = int64(store.WriteErrors), int64(store.ReadErrors), int64(store.SyncErrors)
	t.EvictedSegments, t.ConsumerWait, t.Draining = e.evicted, e.idleFor().Seconds(), e.drained && e.tgt != nil
	t.Segments, t.SegmentBytes = len(e.segs), int64(e.cache.Sizing.Segment)
}

// copyTo puts the figures into a job's entry.
func (f *ServerFigures) copyTo(j *JobStatus) {
	j.SourceHedges = f.SourceHedges
	j.SourceRetries, j.LogReadBytes, j.LogReadOps, j.LogWriteBytes, j.LogWriteOps = f.SourceRetries, f.LogReadBytes, f.LogReadOps, f.LogWriteBytes, f.LogWriteOps
	j.SortBytes, j.RandomReads, j.ReorderDropped, j.EvictedSegments, j.Draining = f.SortBytes, f.RandomReads, f.ReorderDropped, f.EvictedSegments, f.Draining
	j.ConsumerWait, j.CorruptSamples, j.StaleSamples, j.LateBlocks = f.ConsumerWait, f.CorruptSamples, f.StaleSamples, f.LateBlocks
	j.WriteErrors, j.ReadErrors, j.SyncErrors = f.WriteErrors, f.ReadErrors, f.SyncErrors
	j.Segments, j.SegmentBytes, j.MetaIndexBytesEach = f.Segments, f.SegmentBytes, f.MetaIndexBytesEach
}
