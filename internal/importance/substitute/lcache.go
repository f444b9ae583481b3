package substitute

import (
	"lcache/internal/importance/policy"
	"lcache/sample"
)

// LCache keeps the books of loaded packages of L-samples (ImPACT §III-D). Where the user allows it, an L-sample that is not here is replaced by one that is,
// and that was not served in this epoch.
type LCache struct {
	n              int
	loaded         []waiting // in the order in which they came; some have left
	at             map[sample.Index]int
	first          int
	served         *sample.Set // in this epoch
	asked          []sample.Index
	queued         *sample.Set // those in asked
	capacity, used int64
	pick           func(n int) int // chooses among n places; nil: the first that may be taken
}

type waiting struct {
	id    sample.Index
	bytes int64
}

// NewLCache returns the books of n samples with so many bytes.
func NewLCache(n int, capacity int64) (*LCache, error) {
	c := &LCache{n: n, capacity: capacity, at: map[sample.Index]int{}}
	var err error
	if c.served, err = sample.NewSet(n); err == nil {
		c.queued, err = sample.NewSet(n)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close gives the memory back.
func (c *LCache) Close() {
	c.served.Close()
	c.queued.Close()
}

// Load takes a package that was read: its samples that were not yet served in this epoch. It returns those that leave for them, the oldest.
func (c *LCache) Load(members []sample.Index, size func(sample.Index) int64) (drop []sample.Index) {
	for _, id := range members {
		if _, here := c.at[id]; here || int(id) >= c.n || c.served.Has(id) {
			continue
		}
		bytes := size(id)
		c.at[id] = len(c.loaded)
		c.loaded = append(c.loaded, waiting{id, bytes})
		c.used += bytes
	}
	return append(drop, c.Resize(c.capacity)...)
}

// Resize changes the memory; the oldest samples leave.
func (c *LCache) Resize(capacity int64) (drop []sample.Index) {
	for c.capacity = capacity; c.used > c.capacity; {
		id, ok := c.oldest(policy.Always)
		if !ok {
			break
		}
		c.leave(id)
		drop = append(drop, id)
	}
	return drop
}

// oldest is the first sample in the order of packages that f allows.
func (c *LCache) oldest(f policy.May) (sample.Index, bool) {
	for c.first < len(c.loaded) && c.loaded[c.first].id == sample.None {
		c.first++
	}
	for _, w := range c.loaded[c.first:] {
		if w.id != sample.None && f(w.id) {
			return w.id, true
		}
	}
	return sample.None, false
}

// standIn is a loaded sample that f allows: a random one if there is a way to choose.
func (c *LCache) standIn(f policy.May) (sample.Index, bool) {
	first, ok := c.oldest(f)
	if !ok || c.pick == nil {
		return first, ok
	}
	places := c.loaded[c.first:]
	for range 64 { // at least half of many places are taken, and hardly any is forbidden
		if w := places[c.pick(len(places))]; w.id != sample.None && f(w.id) {
			return w.id, true
		}
	}
	return first, true
}

// leave takes a sample out. Its place is empty until half of all places are.
func (c *LCache) leave(id sample.Index) {
	k := c.at[id]
	delete(c.at, id)
	c.used -= c.loaded[k].bytes
	c.loaded[k].id = sample.None
	if len(c.loaded) < 64 || len(c.at)*2 > len(c.loaded) {
		return
	}
	live := c.loaded[:0]
	for _, w := range c.loaded {
		if w.id != sample.None {
			c.at[w.id] = len(live)
			live = append(live, w)
		}
	}
	c.loaded, c.first = live, 0
}

// Get serves a sample that is loaded, else another loaded one that may allows. A sample leaves when it is served. One that was absent is queued for
// repacking.
func (c *LCache) Get(id sample.Index, may policy.May) (sample.Index, policy.Kind) {
	if _, here := c.at[id]; here {
		c.leave(id)
		c.served.Add(id)
		return id, policy.Hit
	}
	if may == nil {
		c.absent(id)
		return id, policy.Miss
	}
	c.absent(id)
	other, ok := c.standIn(may)
	if !ok {
		return id, policy.Miss
	}
	c.leave(other)
	c.served.Add(other)
	return other, policy.Substitute
}

// absent queues a sample that was asked for and is not here, unless it was served before.
func (c *LCache) absent(id sample.Index) {
	if !c.served.Has(id) && c.queued.Add(id) {
		c.asked = append(c.asked, id)
	}
}

// Served notes that a sample was read exactly, after a miss: it is no substitute in this epoch any more.
func (c *LCache) Served(id sample.Index) {
	c.served.Add(id)
	if _, here := c.at[id]; here {
		c.leave(id)
	}
}

// Begin begins an epoch: nothing was served yet, nothing waits for repacking.
func (c *LCache) Begin() {
	c.served.Clear()
	c.queued.Clear()
	c.asked = nil
}

// Asked are the samples that were asked for in this epoch and were absent, in that order: the first to be repacked.
func (c *LCache) Asked() []sample.Index { return c.asked }

// Left are the loaded samples, oldest first.
func (c *LCache) Left() (out []sample.Index) {
	for _, w := range c.loaded {
		if w.id != sample.None {
			out = append(out, w.id)
		}
	}
	return out
}
