package engine

import (
	"lcache/internal/serve/status"
	"lcache/sample"
)

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
	t.RandomReads, t.ReorderDropped, t.LateBlocks = f.Reads[sample.FromLog].Reads.Load(), e.pass.Stats.Dropped.Load(), e.pass.Stats.LateBlocks.Load()
	t.CorruptSamples, t.StaleSamples = f.CorruptSamples.Load(), f.StaleReads.Load()
	t.WriteErrors, t.ReadErrors, t.SyncErrors = int64(store.WriteErrors), int64(store.ReadErrors), int64(store.SyncErrors)
	t.EvictedSegments, t.ConsumerWait, t.Draining = e.evicted, e.idleFor().Seconds(), e.drained && e.tgt != nil
	t.Segments, t.SegmentBytes = len(e.segs), int64(e.cache.Sizing.Segment)
}
