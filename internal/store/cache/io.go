package cache

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"lcache/internal/disk/blockio"
	"lcache/internal/disk/durable"
	"lcache/sample"
)

// IO chooses the I/O engine ("auto", "uring" or "pread"), and whether reads and writes bypass the page cache ("auto", "on" or "off").
type IO struct {
	Engine string
	Direct string
	Inject func(*blockio.IO) // for tests: faults, from the first operation on
	Trace  durable.Trace     // for tests: receives each step of the log on files other than the arenas

	Statfs    func(dir string, fs *unix.Statfs_t) error // for tests: instead of unix.Statfs
	Elsewhere func(*sample.Manifest, sample.Index) bool // for tests: Cache.Elsewhere

	// For tests: the time without an answer that quarantines a device, and the wait before its first probe. 0: the defaults of logfile.
	Deadline, ProbeAfter time.Duration
	CloseTimeout         time.Duration // how long Close waits for a hung device; 0: 30 s for the log, and 10 s for other files
}

// open opens the I/O engine for a cache.
func (o IO) open(c *Cache) (*blockio.IO, error) {
	depth := Depth
	// Each device has a queue depth of its own, so that a hung device does not block the others.
	io, err := blockio.Open(blockio.Options{Engine: o.Engine, Direct: o.Direct, Depth: depth * len(c.Dirs), PerFile: depth, Logger: c.Logger})
	if err != nil {
		return nil, fmt.Errorf("open the I/O engine: %w", err)
	}
	if o.Inject != nil {
		o.Inject(io)
	}
	return io, nil
}

// Depth is the queue depth of a device. An NVMe disk needs many reads in flight if they are as small as a sample. A device that is limited
// in operations and in bytes serves large and small reads together if it has many of both.
const Depth = 64
