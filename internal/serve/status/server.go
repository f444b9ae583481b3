package status

import "time"

// Totals are the figures of the whole server. They never fall, even when jobs end.
type Totals struct {
	// Sums over all jobs, ended ones included. A second in which ranks of several jobs wait for their next batch counts once.
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
	BatchWait         *Waits  `json:"batch_wait"` // of all requests; nil: an older server
	ServerFigures
}

// ServerFigures are figures that jobs share: of the log, its devices and the source. The fields are the same as in Job.
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

// CopyTo copies the figures to a job's entry.
func (f *ServerFigures) CopyTo(j *Job) {
	j.SourceHedges = f.SourceHedges
	j.SourceRetries, j.LogReadBytes, j.LogReadOps, j.LogWriteBytes, j.LogWriteOps = f.SourceRetries, f.LogReadBytes, f.LogReadOps, f.LogWriteBytes, f.LogWriteOps
	j.SortBytes, j.RandomReads, j.ReorderDropped, j.EvictedSegments, j.Draining = f.SortBytes, f.RandomReads, f.ReorderDropped, f.EvictedSegments, f.Draining
	j.ConsumerWait, j.CorruptSamples, j.StaleSamples, j.LateBlocks = f.ConsumerWait, f.CorruptSamples, f.StaleSamples, f.LateBlocks
	j.WriteErrors, j.ReadErrors, j.SyncErrors = f.WriteErrors, f.ReadErrors, f.SyncErrors
	j.Segments, j.SegmentBytes, j.MetaIndexBytesEach = f.Segments, f.SegmentBytes, f.MetaIndexBytesEach
}

// Memory is a server's memory. The first part is planned; its sum is MemoryBytes of Document. The second part is resident, as the kernel
// counts it; its sum is RSS. They differ for two reasons: planned memory becomes resident when it is first touched, and the program,
// its heap, orders and mapped files are resident too.
type Memory struct {
	Shared  int64 `json:"memory_shared_bytes"`  // slots, miss ring, side memory and spare part
	Buffers int64 `json:"memory_buffer_bytes"`  // write buffers of both Logfiles and of packages
	Scratch int64 `json:"memory_scratch_bytes"` // input of decompression
	Index   int64 `json:"memory_index_bytes"`   // tables with an entry for each sample

	RSS        int64 `json:"rss_bytes"`
	RSSShared  int64 `json:"rss_shared_bytes"`  // shared memory
	RSSFiles   int64 `json:"rss_file_bytes"`    // manifest, checksums and program: pages that the kernel may drop
	RSSPrivate int64 `json:"rss_private_bytes"` // buffers, scratch, index, orders and heap
}

// Planned returns the sum of the first part.
func (m Memory) Planned() int64 { return m.Shared + m.Buffers + m.Scratch + m.Index }

// Wear is the write volume of the drives. An unknown figure is 0.
type Wear struct {
	WrittenPerDay     int64   `json:"written_per_day_bytes"`   // at the rate of the current epoch and the one before it
	DriveWritesPerDay float64 `json:"drive_writes_per_day"`    // written_per_day_bytes / drive_bytes
	EndurancePerDay   int64   `json:"endurance_per_day_bytes"` // rated for the drives
	DriveBytes        float64 `json:"drive_bytes"`             // size of the file systems under the cache
}

// PerDay extrapolates the bytes written in some seconds to a day. It does nothing for less than a minute, which is too short for that.
func (w *Wear) PerDay(written int64, seconds float64) {
	if seconds < 60 || written < 0 {
		return
	}
	rate := float64(written) / seconds * (24 * time.Hour).Seconds()
	w.WrittenPerDay = int64(rate)
	if w.DriveBytes > 0 {
		w.DriveWritesPerDay = rate / w.DriveBytes
	}
}
