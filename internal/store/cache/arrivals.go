package cache

import (
	"fmt"

	"lcache/logfile"
	"lcache/metaindex"
)

// A cache that is one of several machines' keeps what the cluster gives to it, and that changes when machines come and go. So its new samples have no
// place in a layout that was cut before. They go into packages, in the order in which they arrive.

const (
	arrivalsOpen    = 4       // packages that are filled at once
	arrivalsBytes   = 4 << 20 // of a package, at least
	arrivalsSamples = 50      // of mean size that a package has at least: it wastes half a sample on average
)

// beginArrivals makes room for samples in the order of arrival, unless there is some from before.
func (c *Cache) beginArrivals() error {
	if c.readOnly || c.Store.Packages() != nil {
		return nil
	}
	f := c.facts()
	block, largest := uint64(c.Format.Block), f.Largest
	if f.LargestKept > 0 {
		largest = f.LargestKept
	}
	mean := f.Kept/uint64(max(f.Samples, 1)) + 1
	blocks := (max(arrivalsBytes, arrivalsSamples*mean, largest) + block - 1) / block
	blocks = max(1, min(blocks, max(uint64(c.Format.Places)/8, (largest+block-1)/block)))
	packages := min(2*uint64(c.Format.Places)/blocks+4*arrivalsOpen, metaindex.MaxSegments)
	room := 2*blocks*block/mean + 16
	if _, err := c.BeginPackages(int(blocks), arrivalsOpen, int(packages), int(room)); err != nil {
		return fmt.Errorf("make room for the samples of a cluster: %w", err)
	}
	return nil
}

// Arrivals returns the packages for samples in the order of arrival; nil: samples can't be added to them, because they were a Logfile.
func (c *Cache) Arrivals() *logfile.Packages {
	if p := c.Store.Packages(); p != nil && p.Open() > 0 {
		return p
	}
	return nil
}
