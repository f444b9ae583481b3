package cache

import (
	"fmt"
	"time"

	"lcache/blockio"
)

// IO chooses the engine ("auto", "uring" or "pread") and whether the page cache is bypassed ("auto", "on" or "off").
type IO struct {
	Engine string
	Direct string
	Inject func(*blockio.IO) // for tests: faults, from the first operation on

	// For tests: when a device that does not answer is put aside, and when it is probed first. Zero: the defaults of logfile.
	Deadline, ProbeAfter time.Duration
	CloseTimeout         time.Duration // how long closing waits for a device that hangs; 0: 30 s for the log, and 10 s for what is left
}

func (o IO) open(c *Cache) (*blockio.IO, error) {
	depth := blockio.DefaultDepth
	if c.IsStatic() {
		depth = StaticDepth
	}
	// Each device has a part of its own, so that one that hangs does not keep the others from being asked.
	io, err := blockio.Open(blockio.Options{Engine: o.Engine, Direct: o.Direct, Depth: depth * len(c.Dirs), PerFile: depth, Logger: c.Logger})
	if err != nil {
		return nil, fmt.Errorf("open the I/O engine: %w", err)
	}
	if o.Inject != nil {
		o.Inject(io)
	}
	return io, nil
}

// StaticDepth is how many transfers are in flight: an NVMe disk wants more reads at once when they are as small as a sample.
const StaticDepth = 64
