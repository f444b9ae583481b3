package prometheus

import "github.com/prometheus/client_golang/prometheus"

// about is a metric's kind and help text.
type about struct {
	kind prometheus.ValueType
	help string
}

func counter(help string) about { return about{prometheus.CounterValue, help} }
func gauge(help string) about   { return about{prometheus.GaugeValue, help} }

// names has every metric, by its name without the prefix. A counter is 0 when its server starts, and only grows.
var names = map[string]about{
	// The server.
	"schema":             gauge("Version of the status document."),
	"version":            gauge("Version of the server, as a label."),
	"pid":                gauge("The server's process."),
	"uptime_seconds":     gauge("Seconds since the server started."),
	"io_engine":          gauge("I/O engine that reads and writes the disks, as a label."),
	"direct":             gauge("1 with O_DIRECT, 0 with buffered files."),
	"page_bytes":         gauge("Size of the pages of the shared memory."),
	"memory_bytes":       gauge("Memory that the server has taken."),
	"memory_limit_bytes": gauge("Memory that the server may take."),

	// What the memory is made of.
	"memory_shared_bytes":  gauge("Shared memory: slots, miss ring and side memory."),
	"memory_buffer_bytes":  gauge("Write buffers of both Logfiles."),
	"memory_scratch_bytes": gauge("Memory from which compressed blocks are unpacked."),
	"memory_index_bytes":   gauge("Tables with an entry for each sample."),
	"rss_bytes":            gauge("Memory of the server's process that is resident, as the kernel counts it."),
	"rss_shared_bytes":     gauge("Resident part of the shared memory."),
	"rss_file_bytes":       gauge("Resident pages of files: manifest, checksums and the program. The kernel may drop them."),
	"rss_private_bytes":    gauge("Resident memory of buffers, index, orders and heap."),

	"cache_budget_bytes":            gauge("Disk space that the cache may take."),
	"cache_used_bytes":              gauge("Disk space of the blocks that hold samples."),
	"cache_state":                   gauge("State of the cache's disks, as a label: normal, degraded or aside (quarantined)."),
	"cache_slack_bytes":             gauge("Disk space beyond the dataset's size, for the first blocks of the next epoch."),
	"cache_arena_bytes":             gauge("Disk space that is reserved for samples."),
	"cache_block_bytes":             gauge("Size of a block, the unit of disk I/O."),
	"cache_written_per_day_bytes":   gauge("Bytes written to the log per day, at the rate of the last epochs."),
	"cache_drive_bytes":             gauge("Size of the file systems that hold the cache; 0 if not known."),
	"cache_drive_writes_per_day":    gauge("Bytes written per day, divided by the size of the file systems that hold the cache."),
	"cache_endurance_per_day_bytes": gauge("Bytes per day that the drives are rated for (--endurance); 0 if not given."),
	"cache_compress":                gauge("Compression of samples in the log, as a label: lz4 or none."),

	"cluster_state":               gauge("How this server stands with the other machines, as a label: off, forming, alone, ok, degraded or refused."),
	"cluster_listen":              gauge("Address by which other machines find this server, as a label."),
	"cluster_expected":            gauge("Machines that the first roster waits for; 0: not known."),
	"cluster_members":             gauge("lcache processes of the cluster that this server knows, itself included."),
	"cluster_roster_changes":      counter("How often the set of machines that share the dataset changed."),
	"cluster_roster":              gauge("Hash of the set of machines that share the dataset, as a label; equal on all of them."),
	"cluster_peers":               gauge("Machines that serve the dataset, by their state: ok, lost or refused."),
	"cluster_refused_seconds_ago": gauge("Seconds since the last such message; 0: there was none."),
	"cluster_refused":             counter("Messages of machines with another key or version."),

	// The dataset, and the job.
	"source":                     gauge("Where the samples come from, as a label."),
	"samples":                    gauge("Samples of the dataset."),
	"dataset_bytes":              gauge("Bytes of the dataset."),
	"kept_bytes":                 gauge("Bytes of the samples that the cache keeps."),
	"recipe":                     gauge("Recipe of the shuffle, as a label; empty: the client pushes its own order."),
	"seed":                       gauge("The shuffle's seed, as a label."),
	"epochs":                     gauge("Epochs that the job will have; 0: not known."),
	"epoch":                      gauge("The epoch that is being read, from 0."),
	"batches":                    gauge("Batches of the epoch for the rank that has the most."),
	"layout":                     gauge("Layout of samples on disk, as a label: log or static."),
	"segments":                   gauge("Segments of the epoch."),
	"segment_bytes":              gauge("Size of the largest segment."),
	"metaindex_bytes_per_sample": gauge("Memory of the index, for each sample."),

	// Which job.
	"owner":       gauge("1 while the log is laid out in this job's order."),
	"on_demand":   gauge("1 while nothing is read ahead for this job, because there are too many others."),
	"connections": gauge("Connections that named this job."),

	// What was delivered.
	"chunks_delivered":   counter("Mini-batches handed to client processes."),
	"samples_delivered":  counter("Samples handed to client processes."),
	"bytes_delivered":    counter("Bytes of samples handed to client processes."),
	"hits":               counter("Samples delivered that came from the log or from memory."),
	"misses":             counter("Samples delivered that came from the source."),
	"hits_epoch":         gauge("Samples delivered of the present epoch that came from the log or from memory."),
	"misses_epoch":       gauge("Samples delivered of the present epoch that came from the source."),
	"source_bytes_epoch": gauge("Bytes read from the source since the end of the last epoch."),

	"prefetched_samples": counter("Samples delivered that were in memory when requested."),
	"readiness":          gauge("Share of batches whose samples were all in memory when requested, since the job began."),

	// Sums over all jobs, also ended ones.
	"totals_chunks_delivered":   counter("Mini-batches handed to client processes, of all jobs."),
	"totals_samples_delivered":  counter("Samples handed to client processes, of all jobs."),
	"totals_bytes_delivered":    counter("Bytes of samples handed to client processes, of all jobs."),
	"totals_hits":               counter("Samples delivered that came from the log or from memory, of all jobs."),
	"totals_misses":             counter("Samples delivered that came from the source, of all jobs."),
	"totals_prefetched_samples": counter("Samples delivered that were in memory when requested, of all jobs."),
	"totals_skipped_samples":    counter("Samples left out of a batch because they could not be read, of all jobs."),
	"totals_source_bytes":       counter("Bytes read from the source, for all jobs."),
	"totals_source_reads":       counter("Reads of the source, for all jobs."),
	"totals_stall_seconds":      counter("Seconds in which at least one rank of any job waited for the server."),

	// What it took.
	"source_bytes":    counter("Bytes read from the source for the job."),
	"source_reads":    counter("Reads of the source for the job."),
	"source_retries":  counter("Retried reads of the source."),
	"source_hedges":   counter("Requests to a source over a network that were sent a second time, because the first took long."),
	"log_read_bytes":  counter("Bytes read from the log."),
	"log_read_ops":    counter("Reads of the log."),
	"log_write_bytes": counter("Bytes written to the log: the write volume of the disk."),
	"log_write_ops":   counter("Writes to the log."),
	"sort_bytes":      counter("Bytes of these that were written to sort the log into a job's order."),
	"random_reads":    counter("Samples read individually from the log, out of order."),

	// Waiting.
	"stall_seconds":         counter("Seconds in which at least one rank waited for the server."),
	"consumer_wait_seconds": counter("Seconds in which all permitted read-ahead was done."),
	"loop_wait_seconds":     counter("Seconds in which the training loop waited for its next batch, as the loop reported."),
	"loop_seconds":          counter("Seconds in which the training loop ran, as the loop reported."),
	"decode_seconds":        counter("Seconds of decoding in all processes together, as they reported."),
	"loop_workers":          gauge("Worker processes that decode for the training loops, as the loops reported."),
	"ready_batches":         gauge("Batches that are loaded and not yet delivered, for the rank that is furthest behind."),
	"bound_by":              gauge("Bottleneck of the job, as a label: source, disk, consumer, decode or unknown."),
	"draining":              gauge("1 while an epoch is reordered that no rank reads."),

	// Of a job whose orders are drawn by importance.
	"importance_method":               gauge("Method, as a label."),
	"importance_lag":                  gauge("How many epochs old the losses are that an order is drawn from, as a label."),
	"importance_policy":               gauge("Memory policy, as a label."),
	"importance_substitute":           gauge("What may be served in place of a sample, as a label: low, class, or nothing."),
	"importance_state":                gauge("State, as a label: warmup, active or idle."),
	"importance_epoch":                gauge("The epoch that is trained."),
	"importance_epoch_length":         gauge("Samples of that epoch."),
	"importance_warmup_epochs":        gauge("Epochs that the warm-up took; 0: it has not ended, or there is none."),
	"importance_s_size":               gauge("Samples to reevaluate before each epoch."),
	"importance_requested":            counter("Samples delivered in the drawn order."),
	"importance_h_bytes":              gauge("Bytes of samples in the memory of the policy."),
	"importance_l_bytes":              gauge("Bytes of samples in memory that may stand in for others."),
	"importance_ratio":                gauge("Share of the memory for important samples."),
	"importance_h_hits":               counter("Samples delivered that were in the memory of the policy."),
	"importance_l_hits":               counter("Samples delivered that were in loaded packages."),
	"importance_homophily_hits":       counter("Samples delivered that were kept as nodes."),
	"importance_substituted":          counter("Samples delivered in place of others."),
	"importance_substituted_max":      gauge("Most uses of one sample in place of others in an epoch."),
	"importance_log_hits":             counter("Samples delivered that came from the log or from other memory."),
	"importance_source_misses":        counter("Samples delivered that came from the source."),
	"importance_packages_written":     counter("Packages written."),
	"importance_packages_loaded":      counter("Packages loaded."),
	"importance_cleaned_bytes":        counter("Bytes moved out of packages that were cleaned."),
	"importance_unseen_share":         gauge("Share of all samples that the epoch leaves out."),
	"importance_distinct_share":       gauge("Share of all samples that the epoch has."),
	"importance_max_uses":             gauge("Most uses of one sample in the epoch."),
	"importance_observations":         counter("Samples observed."),
	"importance_observations_dropped": counter("Observations dropped because they arrived too fast."),
	"importance_observed_share":       gauge("Share of all samples that were observed in the epoch before."),
	"importance_last_observed_epoch":  gauge("The last epoch that was observed; -1: none."),
	"importance_undelivered":          counter("Samples observed that had not been delivered."),
	"importance_reevaluations_missed": counter("Epochs that began without reevaluating the unstable samples."),
	"importance_refused_unknown":      counter("Samples observed that the dataset lacks."),
	"importance_refused_notfinite":    counter("Losses that were not finite numbers."),
	"importance_refused_stale":        counter("Samples observed for an epoch that has ended or not begun."),
	"importance_refused_shape":        counter("Observations with invalid lengths or types."),
	"importance_refused_dimension":    counter("Samples observed with embeddings of another dimension."),

	// What went wrong.
	"reorder_dropped":           counter("Samples that were not written to the next epoch's log, and will be misses there."),
	"evicted_segments":          counter("Segments evicted because a request waited for memory; late ranks get read-ahead with random reads."),
	"late_blocks":               counter("Blocks that were read after their deadline."),
	"log_write_errors":          counter("Writes to the log that failed."),
	"log_read_errors":           counter("Reads of the log that failed."),
	"log_sync_errors":           counter("Syncs of the log that failed."),
	"corrupt_samples":           counter("Samples whose bytes in the log were wrong; read from the source instead."),
	"skipped_samples":           counter("Samples left out of a batch because they could not be read (--on-error skip)."),
	"stale_samples":             counter("Samples in blocks that a crash left unfinished; read from the source instead."),
	"divergences":               counter("Requests that differed from the planned order."),
	"first_divergence_epoch":    gauge("Epoch of the first request that differed from the order."),
	"first_divergence_rank":     gauge("Rank of the first request that differed from the order."),
	"first_divergence_batch":    gauge("Batch of the first request that differed from the order."),
	"first_divergence_position": gauge("Position in its batch of the first sample that differed from the order."),

	// The cache's directories, one on each device.
	"device_state":          gauge("State of the device, as a label: normal, read-only or aside (quarantined)."),
	"device_errors":         counter("Reads and writes of the device that failed."),
	"device_asides":         counter("Times that the device was quarantined after errors."),
	"device_blocks_written": counter("Blocks written to the device."),

	// The ranks that read here.
	"rank_pid":               gauge("The rank's process."),
	"rank_position":          gauge("The batch that the rank reads next."),
	"rank_loop_wait_seconds": counter("Seconds in which the rank's training loop waited for its next batch, as the loop reported."),
	"rank_leased_bytes":      gauge("Bytes of batches that the rank's process has not released."),
	"rank_epoch":             gauge("The epoch of the rank's last request."),
	"rank_finished":          gauge("1 for a rank that has all batches of that epoch and has requested no other epoch."),
	"rank_readiness":         gauge("Share of the rank's batches whose samples were all in memory when requested."),
	"rank_late":              gauge("1 for a rank that is behind the prefetch window and gets read-ahead with random reads."),

	// The last finished epoch.
	"epochs_done":                  counter("Finished epochs."),
	"epoch_done_epoch":             gauge("The last finished epoch."),
	"epoch_done_seconds":           gauge("Duration of the last epoch, in seconds."),
	"epoch_done_hits":              gauge("Hits of the last epoch."),
	"epoch_done_misses":            gauge("Misses of the last epoch."),
	"epoch_done_log_read_bytes":    gauge("Bytes read from the log in the last epoch."),
	"epoch_done_log_read_ops":      gauge("Reads of the log in the last epoch."),
	"epoch_done_log_write_bytes":   gauge("Bytes written to the log in the last epoch."),
	"epoch_done_source_bytes":      gauge("Bytes read from the source in the last epoch."),
	"epoch_done_stall_seconds":     gauge("Seconds of the last epoch in which at least one rank waited for the server."),
	"epoch_done_loop_seconds":      gauge("Seconds of the last epoch in which the training loop ran, as the loop reported."),
	"epoch_done_loop_wait_seconds": gauge("Seconds of the last epoch in which the training loop waited, as the loop reported."),
}
