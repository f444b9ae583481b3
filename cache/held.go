package cache

import (
	"context"
	"fmt"

	"lcache/logfile"
	"lcache/sample"
	"lcache/schedule"
)

// IsComplete reports whether the log holds every admitted sample of a share of the source. A sample can be missing because its segment was full, or
// because its tail found no free place. A sample without a known checksum counts as missing.
func (c *Cache) IsComplete(share, shares int) bool {
	for i := range c.Manifest.Len() {
		index := sample.Index(i)
		if _, known := c.Sums.Get(index); c.InShare(index, share, shares) && c.Admits(index) && !(known && c.Locations.Get(index) != 0) && !c.Refuses(index) {
			return false
		}
	}
	return true
}

// InShare reports whether a sample is in a share of the source: of shards, whole ones that follow each other; else every shares-th sample.
func (c *Cache) InShare(index sample.Index, share, shares int) bool {
	if n := len(c.Manifest.Shards()); n > 0 && shares > 1 {
		return c.Manifest.ShardOf(index)*shares/n == share
	}
	return int(index)%shares == share
}

// IsOfThisJob reports whether a Logfile is in the order of one of this job's epochs. first is the order of the first epoch.
func (c *Cache) IsOfThisJob(l *logfile.Logfile, first *schedule.Order) bool {
	h := l.Header()
	if l.IsOlder() {
		return false
	}
	if h.Key == first.Key {
		return true
	}
	if !c.Schedule.Replays() || !c.Schedule.Exists(int(h.Epoch)) {
		return false
	}
	o, err := c.Schedule.Order(context.Background(), int(h.Epoch))
	return err == nil && o.Key == h.Key
}

// HoldsOlder reports whether a Logfile of a replaced manifest still holds samples, because the sort of it was cut off.
func (c *Cache) HoldsOlder() bool {
	for _, l := range c.Store.Logfiles() {
		if l != nil && l.IsOlder() && !l.Empty() {
			return true
		}
	}
	return false
}

// HoldsNothing returns the error for a command that needs samples in the log and finds none.
func (c *Cache) HoldsNothing() error {
	return fmt.Errorf("%s holds no samples yet: run lcache ingest without --no-prefill, or train for an epoch", c.Dirs[0])
}
