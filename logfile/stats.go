package logfile

import (
	"sync/atomic"

	"lcache/internal/disk/blockio"
)

// Stats are counters since Open. They only grow.
type Stats struct {
	Reads, ReadBytes   uint64 // transfers submitted to the engine, without journals
	BlockReads         uint64 // of ReadBlock, and their bytes
	BlockReadBytes     uint64
	Writes, WriteBytes uint64
	ReadErrors         uint64
	WriteErrors        uint64 // each attempt counts
	SyncErrors         uint64 // of arena or journal
	JournalBytes       uint64 // records written
	JournalErrors      uint64 // failed writes of records; they are retried
	JournalRewrites    uint64 // of the journal of packages
	Holes              uint64 // blocks and tails lost after two attempts, or because no arena block was free
	LostSamples        uint64 // samples lost in Holes
	RecoveredRecords   uint64 // at Open, both journals
	IgnoredRecords     uint64 // at Open: of another epoch, out of range, or superseded
	IgnoredBytes       uint64 // at Open: bytes that are not a record
}

type counters struct {
	reads, readBytes, writes, writeBytes, blockReads, blockReadBytes atomic.Uint64
	readErrors, writeErrors, syncErrors, journalBytes, journalErrors atomic.Uint64
	holes, lostSamples, recovered, ignored, ignoredBytes, rewrites   atomic.Uint64
}

func (c *counters) count(op *blockio.Op) {
	if op.Write {
		c.writes.Add(1)
		c.writeBytes.Add(uint64(len(op.Buf)))
		return
	}
	c.reads.Add(1)
	c.readBytes.Add(uint64(len(op.Buf)))
}

func (c *counters) countError(op *blockio.Op, err error) {
	switch {
	case err == nil:
	case op.Write:
		c.writeErrors.Add(1)
	default:
		c.readErrors.Add(1)
	}
}

// Stats returns the counters as they are now.
func (s *Store) Stats() Stats {
	c := &s.stats
	return Stats{
		Reads: c.reads.Load(), ReadBytes: c.readBytes.Load(),
		BlockReads: c.blockReads.Load(), BlockReadBytes: c.blockReadBytes.Load(),
		Writes: c.writes.Load(), WriteBytes: c.writeBytes.Load(),
		ReadErrors: c.readErrors.Load(), WriteErrors: c.writeErrors.Load(), SyncErrors: c.syncErrors.Load(),
		JournalBytes: c.journalBytes.Load(), JournalErrors: c.journalErrors.Load(), JournalRewrites: c.rewrites.Load(),
		Holes: c.holes.Load(), LostSamples: c.lostSamples.Load(),
		RecoveredRecords: c.recovered.Load(), IgnoredRecords: c.ignored.Load(), IgnoredBytes: c.ignoredBytes.Load(),
	}
}
