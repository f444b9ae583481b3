package cache

import (
	"context"
	"sort"

	"lcache/internal/errcode"
	"lcache/internal/serve/schedule"
	"lcache/logfile"
	"lcache/sample"
)

// IsComplete reports whether the log has every sample of a share of the source. A sample can be missing because its segment was full, or
// because no arena block was free for its tail. A sample without a known checksum counts as missing.
func (c *Cache) IsComplete(share, shares int) bool {
	from, to := c.ShareOf(share, shares)
	keeps := c.Placement()
	for i := from; i < to; i++ {
		index := sample.Index(i)
		if _, known := c.Sums.Get(index); keeps.Keeps(index) && !(known && c.Locations.Get(index) != 0) && !c.Refuses(index) {
			return false
		}
	}
	return true
}

// ShareOf returns the range of samples of a share of the source: the first, and the one after the last. The samples of a shard are in one
// share.
func (c *Cache) ShareOf(share, shares int) (from, to int) {
	n, shards := c.Manifest.Len(), len(c.Manifest.Shards())
	begin := func(share int) int { return share * n / shares }
	if shards > 0 && shares > 1 {
		begin = func(share int) int {
			first := (share*shards + shares - 1) / shares
			return sort.Search(n, func(i int) bool { return c.Manifest.ShardOf(sample.Index(i)) >= first })
		}
	}
	return begin(share), begin(share + 1)
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

// HoldsOlder reports whether a Logfile of a replaced manifest still has samples, because its sort was interrupted.
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
	return errcode.Errorf(errcode.CacheUnfinished, "%s holds no samples yet: run lcache ingest without --no-prefill, or train for an epoch", c.Dirs[0])
}
