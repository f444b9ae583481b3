// Package status has the documents that a server sends: Document answers STATUS, and Hello answers HELLO. They are plain values with JSON
// tags, so clients, metrics and tables do not link the engine. Other programs rely on their keys (docs/protocol.md): fields are added, and never renamed.
//
// Sizes are in bytes and durations in seconds. Counters only grow.
package status

// Document is the status document.
type Document struct {
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
	Cache   Cache   `json:"cache"`
	Cluster Cluster `json:"cluster"`
	Jobs    []Job   `json:"jobs"` // the owner first, then the others in order of arrival, then the most recently ended ones
	Totals  Totals  `json:"totals"`
	Events  []Event `json:"events"` // the latest ones, the oldest first
}

// Cache is the part about the directories.
type Cache struct {
	Dirs        []string `json:"dirs"`
	BudgetBytes int64    `json:"budget_bytes"`
	UsedBytes   int64    `json:"used_bytes"`
	State       string   `json:"state"`
	SlackBytes  int64    `json:"slack_bytes"`
	ArenaBytes  int64    `json:"arena_bytes"`
	BlockBytes  int64    `json:"block_bytes"`
	Compress    string   `json:"compress"` // "lz4" or "none"
	Devices     []Device `json:"devices"`
	Wear
}

// Device is one directory of the cache. State is "normal", "read-only" (it takes no new blocks; its blocks are read) or "aside"
// (quarantined: its samples come from the source). The server leaves the last two states when the device works again.
type Device struct {
	Dir       string `json:"dir"`
	State     string `json:"state"`
	Errors    int64  `json:"errors"`
	Asides    int64  `json:"asides"` // how often its state became "aside"
	LastError string `json:"last_error"`
	Blocks    int64  `json:"blocks_written"`
}

// Job is the part for one job. The fields of ServerFigures describe the whole server: the first job has them, and in other jobs they are 0.
type Job struct {
	ID                 string      `json:"id"`          // the token; empty: the job with the server's own recipe, and requests without a job
	Owner              bool        `json:"owner"`       // the log is laid out in its order
	Ended              bool        `json:"ended"`       // no client is connected; its counters stay
	OnDemand           bool        `json:"on_demand"`   // nothing is read ahead, because there are too many other jobs
	Connections        int         `json:"connections"` // connections with its token
	Pids               []int       `json:"pids"`        // of its ranks
	Name               string      `json:"name"`
	Source             string      `json:"source"`
	Samples            int         `json:"samples"`
	DatasetBytes       int64       `json:"dataset_bytes"`
	KeptBytes          int64       `json:"kept_bytes"`
	Recipe             string      `json:"recipe"`
	Seed               string      `json:"seed"`
	Epochs             int         `json:"epochs"`
	Epoch              int         `json:"epoch"`
	Batches            int         `json:"batches"` // of the epoch, for the rank with the most
	Layout             string      `json:"layout"`
	LayoutReason       string      `json:"layout_reason"`
	ChunksDelivered    int64       `json:"chunks_delivered"`
	SamplesDelivered   int64       `json:"samples_delivered"`
	BytesDelivered     int64       `json:"bytes_delivered"`
	Hits               int64       `json:"hits"`
	Misses             int64       `json:"misses"`
	HitsLocal          int64       `json:"hits_local"`         // part of hits: from this machine's log or memory
	HitsPeer           int64       `json:"hits_peer"`          // part of hits: from other machines
	PeerInBytes        int64       `json:"peer_in_bytes"`      // of samples from other machines
	PrefetchedSamples  int64       `json:"prefetched_samples"` // samples in memory when they were requested
	Readiness          *float64    `json:"readiness"`          // share of batches whose samples were all in memory when requested; nil: no batch was delivered
	SkippedSamples     int64       `json:"skipped_samples"`    // left out of answers because they could not be read
	SourceBytes        int64       `json:"source_bytes"`
	SourceReads        int64       `json:"source_reads"`
	SourceRetries      int64       `json:"source_retries"`
	SourceHedges       int64       `json:"source_hedges"`
	LogReadBytes       int64       `json:"log_read_bytes"`
	LogReadOps         int64       `json:"log_read_ops"`
	LogWriteBytes      int64       `json:"log_write_bytes"`
	LogWriteOps        int64       `json:"log_write_ops"`
	SortBytes          int64       `json:"sort_bytes"` // part of LogWriteBytes: written by sorts into the epoch that is read
	RandomReads        int64       `json:"random_reads"`
	ReorderDropped     int64       `json:"reorder_dropped"`
	EvictedSegments    int64       `json:"evicted_segments"`
	Draining           bool        `json:"draining"`
	StallSeconds       float64     `json:"stall_seconds"`
	ConsumerWait       float64     `json:"consumer_wait_seconds"`
	LoopWaitSeconds    *float64    `json:"loop_wait_seconds"`
	LoopSeconds        *float64    `json:"loop_seconds"`
	DecodeSeconds      *float64    `json:"decode_seconds"`
	LoopWorkers        int         `json:"loop_workers"` // decoding processes, as reported by the training loops
	ReadyBatches       int         `json:"ready_batches"`
	CorruptSamples     int64       `json:"corrupt_samples"`
	StaleSamples       int64       `json:"stale_samples"`
	Divergences        int64       `json:"divergences"`
	FirstDivergence    *Divergence `json:"first_divergence"`
	Ranks              []Rank      `json:"ranks"`
	BoundBy            string      `json:"bound_by"`
	EpochsDone         []Epoch     `json:"epochs_done"`
	Segments           int         `json:"segments"`
	SegmentBytes       int64       `json:"segment_bytes"`
	LateBlocks         int64       `json:"late_blocks"`
	WriteErrors        int64       `json:"log_write_errors"`
	ReadErrors         int64       `json:"log_read_errors"`
	SyncErrors         int64       `json:"log_sync_errors"`
	MetaIndexBytesEach float64     `json:"metaindex_bytes_per_sample"`

	Importance *Importance `json:"importance"` // nil: the job does not use importance

	// The epoch that the ranks read now; between two epochs, the one before.
	HitsEpoch        int64 `json:"hits_epoch"`
	MissesEpoch      int64 `json:"misses_epoch"`
	SourceBytesEpoch int64 `json:"source_bytes_epoch"`
}

// Rank is the progress of a rank. Position counts batches of the job's epoch. Pid is the process that runs the training loop, as that
// process reports. Without a report it is the process of the last request, which may be one of several workers.
type Rank struct {
	Rank            int      `json:"rank"`
	Pid             int      `json:"pid"`
	Epoch           int      `json:"epoch"`    // of its last request
	Finished        bool     `json:"finished"` // it has received all batches of Epoch, and has not requested another epoch
	Position        int      `json:"position"`
	LoopWaitSeconds *float64 `json:"loop_wait_seconds"`
	LeasedBytes     int64    `json:"leased_bytes"`
	Late            bool     `json:"late"`
	Readiness       *float64 `json:"readiness"` // as in Job
}

// Epoch is an epoch that has ended.
type Epoch struct {
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
	LoopSeconds     *float64 `json:"loop_seconds"` // of the training loop, which continues after the last delivery; nil: not reported
	OrderDigest     *string  `json:"order_digest"`
	RequestedDigest *string  `json:"requested_digest"` // of the requested indices; equal to OrderDigest unless samples were substituted
}

// Divergence is the first request that differed from the schedule.
type Divergence struct {
	Epoch    int `json:"epoch"`
	Rank     int `json:"rank"`
	Batch    int `json:"batch"`
	Position int `json:"position"` // in the batch
}
