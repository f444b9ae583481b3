package prometheus

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"
)

// about is a metric's kind, help text and name.
type about struct {
	kind prometheus.ValueType
	help string
	name string // "": that of its key
}

func counter(help string) about { return about{kind: prometheus.CounterValue, help: help} }
func gauge(help string) about   { return about{kind: prometheus.GaugeValue, help: help} }

// named returns the metric under a name of its own, without prefix and _total.
func (a about) named(name string) about {
	a.name = name
	return a
}

// fullName returns the name in Prometheus. A counter ends in _total.
func (a about) fullName(key string) string {
	name := prefix + cmp.Or(a.name, key)
	if a.kind == prometheus.CounterValue {
		name += "_total"
	}
	return name
}

// names has every number of the document that is a metric, by its section and JSON key. A counter is 0 when its server starts, and only grows.
var names = map[string]about{}

// add adds metrics of a section to names.
func add(section string, metrics map[string]about) {
	for key, m := range metrics {
		if m.name == "" && (section == ofTotals || section == ofDataset) {
			m.name = key // the server's own
		}
		names[section+key] = m
	}
}

func init() {
	add(ofServer, map[string]about{
		"uptime_seconds":       gauge("Seconds since the server started."),
		"direct":               gauge("1 with O_DIRECT, 0 with buffered files."),
		"page_bytes":           gauge("Size of the pages of the shared memory."),
		"memory_bytes":         gauge("Memory that the server has taken."),
		"memory_limit_bytes":   gauge("Memory that the server may take."),
		"memory_shared_bytes":  gauge("Shared memory: slots, miss ring and side memory."),
		"memory_buffer_bytes":  gauge("Write buffers of both Logfiles."),
		"memory_scratch_bytes": gauge("Memory from which compressed blocks are unpacked."),
		"memory_index_bytes":   gauge("Tables with an entry for each sample."),
		"rss_bytes":            gauge("Memory of the server's process that is resident, as the kernel counts it."),
		"rss_shared_bytes":     gauge("Resident part of the shared memory."),
		"rss_file_bytes":       gauge("Resident pages of files: manifest, checksums and the program. The kernel may drop them."),
		"rss_private_bytes":    gauge("Resident memory of buffers, index, orders and heap."),
	})
	add(ofCache, map[string]about{
		"budget_bytes":            gauge("Disk space that the cache may take."),
		"used_bytes":              gauge("Disk space of the blocks that hold samples."),
		"slack_bytes":             gauge("Disk space beyond the dataset's size, for the first blocks of the next epoch."),
		"arena_bytes":             gauge("Disk space that is reserved for samples."),
		"block_bytes":             gauge("Size of a block, the unit of disk I/O."),
		"written_per_day_bytes":   gauge("Bytes written to the log per day, at the rate of the last epochs."),
		"drive_bytes":             gauge("Size of the file systems that hold the cache; 0 if not known."),
		"drive_writes_per_day":    gauge("Bytes written per day, divided by the size of the file systems that hold the cache."),
		"endurance_per_day_bytes": gauge("Bytes per day that the drives are rated for (--endurance); 0 if not given."),
	})

	// Sums over all jobs, also ended ones, and the figures that jobs share.
	add(ofTotals, map[string]about{
		"chunks_delivered":           counter("Mini-batches handed to client processes, of all jobs."),
		"samples_delivered":          counter("Samples handed to client processes, of all jobs."),
		"bytes_delivered":            counter("Bytes of samples handed to client processes, of all jobs."),
		"hits":                       counter("Samples delivered that came from the log, from memory or from another machine, of all jobs."),
		"misses":                     counter("Samples delivered that came from the source, of all jobs."),
		"prefetched_samples":         counter("Samples delivered that were in memory when requested, of all jobs."),
		"skipped_samples":            counter("Samples left out of a batch because they could not be read, of all jobs."),
		"source_bytes":               counter("Bytes read from the source, for all jobs."),
		"source_reads":               counter("Reads of the source, for all jobs."),
		"stall_seconds":              counter("Seconds in which at least one rank of any job waited for the server."),
		"source_retries":             counter("Retried reads of the source."),
		"source_hedges":              counter("Requests to a source over a network that were sent a second time, because the first took long."),
		"log_read_bytes":             counter("Bytes read from the log."),
		"log_read_ops":               counter("Reads of the log."),
		"log_write_bytes":            counter("Bytes written to the log: the write volume of the disk."),
		"log_write_ops":              counter("Writes to the log."),
		"sort_bytes":                 counter("Bytes of these that were written to sort the log into a job's order."),
		"random_reads":               counter("Samples read individually from the log, out of order."),
		"reorder_dropped":            counter("Samples that were not written to the next epoch's log, and will be misses there."),
		"evicted_segments":           counter("Segments evicted because a request waited for memory; late ranks get read-ahead with random reads."),
		"draining":                   gauge("1 while an epoch is reordered that no rank reads."),
		"consumer_wait_seconds":      counter("Seconds in which all permitted read-ahead was done."),
		"corrupt_samples":            counter("Samples whose bytes in the log were wrong; read from the source instead."),
		"stale_samples":              counter("Samples in blocks that a crash left unfinished; read from the source instead."),
		"late_blocks":                counter("Blocks that were read after their deadline."),
		"log_write_errors":           counter("Writes to the log that failed."),
		"log_read_errors":            counter("Reads of the log that failed."),
		"log_sync_errors":            counter("Syncs of the log that failed."),
		"segments":                   gauge("Segments of the epoch."),
		"segment_bytes":              gauge("Size of the largest segment."),
		"metaindex_bytes_per_sample": gauge("Memory of the index, for each sample."),
	})

	// The dataset.
	add(ofDataset, map[string]about{
		"samples":       gauge("Samples of the dataset."),
		"dataset_bytes": gauge("Bytes of the dataset."),
		"kept_bytes":    gauge("Bytes of the samples that the cache keeps."),
	})

	// A job.
	add(ofJob, map[string]about{
		"owner":              gauge("1 while the log is laid out in this job's order."),
		"on_demand":          gauge("1 while nothing is read ahead for this job, because there are too many others."),
		"connections":        gauge("Connections that named this job."),
		"epochs":             gauge("Epochs that the job will have; 0: not known."),
		"epoch":              gauge("The epoch that is being read, from 0."),
		"batches":            gauge("Batches of the epoch for the rank that has the most."),
		"chunks_delivered":   counter("Mini-batches handed to client processes."),
		"samples_delivered":  counter("Samples handed to client processes."),
		"bytes_delivered":    counter("Bytes of samples handed to client processes."),
		"hits":               counter("Samples delivered that came from the log, from memory or from another machine."),
		"hits_local":         counter("Samples delivered that came from this machine's log or memory."),
		"hits_peer":          counter("Samples delivered that came from other machines."),
		"peer_in_bytes":      counter("Bytes of samples that came from other machines."),
		"misses":             counter("Samples delivered that came from the source."),
		"prefetched_samples": counter("Samples delivered that were in memory when requested."),
		"readiness":          gauge("Share of batches whose samples were all in memory when requested, since the job began."),
		"skipped_samples":    counter("Samples left out of a batch because they could not be read (--on-error skip)."),
		"source_bytes":       counter("Bytes read from the source for the job."),
		"source_reads":       counter("Reads of the source for the job."),
		"stall_seconds":      counter("Seconds in which at least one rank waited for the server."),
		"loop_wait_seconds":  counter("Seconds in which the training loop waited for its next batch, as the loop reported."),
		"loop_seconds":       counter("Seconds in which the training loop ran, as the loop reported."),
		"decode_seconds":     counter("Seconds of decoding in all processes together, as they reported."),
		"loop_workers":       gauge("Worker processes that decode for the training loops, as the loops reported."),
		"ready_batches":      gauge("Batches that are loaded and not yet delivered, for the rank that is furthest behind."),
		"divergences":        counter("Requests that differed from the planned order."),
		"hits_epoch":         gauge("Samples delivered of the present epoch that came from the log or from memory.").named("job_epoch_hits"),
		"misses_epoch":       gauge("Samples delivered of the present epoch that came from the source.").named("job_epoch_misses"),
		"source_bytes_epoch": gauge("Bytes read from the source since the end of the last epoch.").named("job_epoch_source_bytes"),
		"epochs_done":        counter("Finished epochs."),
	})

	// A rank that reads here.
	add(ofRank, map[string]about{
		"position":          gauge("The batch that the rank reads next."),
		"loop_wait_seconds": counter("Seconds in which the rank's training loop waited for its next batch, as the loop reported."),
		"leased_bytes":      gauge("Bytes of batches that the rank's process has not released."),
		"epoch":             gauge("The epoch of the rank's last request."),
		"finished":          gauge("1 for a rank that has all batches of that epoch and has requested no other epoch."),
		"readiness":         gauge("Share of the rank's batches whose samples were all in memory when requested."),
		"late":              gauge("1 for a rank that is behind the prefetch window and gets read-ahead with random reads."),
	})

	// A device: a directory of the cache.
	add(ofDevice, map[string]about{
		"errors":         counter("Reads and writes of the device that failed."),
		"asides":         counter("Times that the device was quarantined after errors."),
		"blocks_written": counter("Blocks written to the device."),
	})

	// The last finished epoch of a job.
	add(ofLastEpoch, map[string]about{
		"epoch":             gauge("The last finished epoch.").named("job_last_epoch"),
		"seconds":           gauge("Duration of the last epoch, in seconds."),
		"hits":              gauge("Hits of the last epoch."),
		"misses":            gauge("Misses of the last epoch."),
		"log_read_bytes":    gauge("Bytes read from the log in the last epoch."),
		"log_read_ops":      gauge("Reads of the log in the last epoch."),
		"log_write_bytes":   gauge("Bytes written to the log in the last epoch."),
		"source_bytes":      gauge("Bytes read from the source in the last epoch."),
		"stall_seconds":     gauge("Seconds of the last epoch in which at least one rank waited for the server."),
		"loop_wait_seconds": gauge("Seconds of the last epoch in which the training loop waited, as the loop reported."),
		"loop_seconds":      gauge("Seconds of the last epoch in which the training loop ran, as the loop reported."),
	})
}
