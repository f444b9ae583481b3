package substitute

import (
	"lcache/internal/importance/policy"
	"lcache/sample"
)

// LCache tracks loaded packages of L-samples (ImPACT §III-D). If the user allows it, a loaded L-sample that was not
// served in this epoch replaces a requested one that is not loaded.
type LCache struct {
	n              int
	loaded         []waiting // in order of arrival; some entries are empty, because their sample has left
	at             map[sample.Index]int
	first          int
	served         *sample.Set // in this epoch
	asked          []sample.Index
	queued         *sample.Set // samples in asked
	capacity, used int64
	pick           func(n int) int // chooses one of n positions; nil: the first allowed one
}

type waiting struct {
	id    sample.Index
	bytes int64
}

// NewLCache returns an LCache for n samples with a capacity in bytes.
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

// Close frees the memory.
func (c *LCache) Close() {
	c.served.Close()
	c.queued.Close()
}

// Load adds a package: its samples that were not yet served in this epoch. It evicts the oldest samples to make room,
// and returns them.
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

// Resize changes the capacity and returns the samples that it evicts, oldest first.
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

// oldest returns the first sample that f allows, in the order of packages.
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

// standIn returns a loaded sample that f allows: a random one if pick is set.
func (c *LCache) standIn(f policy.May) (sample.Index, bool) {
	first, ok := c.oldest(f)
	if !ok || c.pick == nil {
		return first, ok
	}
	places := c.loaded[c.first:]
	for range 64 { // at least half of the entries are filled, and few samples are refused
		if w := places[c.pick(len(places))]; w.id != sample.None && f(w.id) {
			return w.id, true
		}
	}
	return first, true
}

// leave removes a sample. Its entry stays empty until half of all entries are empty.
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

// Get serves a loaded sample: the requested one, or else one that may allows. A served sample leaves the cache. An
// absent requested sample is queued for repacking.
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

// absent queues a requested sample that is not loaded, unless it was already served.
func (c *LCache) absent(id sample.Index) {
	if !c.served.Has(id) && c.queued.Add(id) {
		c.asked = append(c.asked, id)
	}
}

// Served notes that a sample was read after a miss, so it can't be a substitute in this epoch any longer.
func (c *LCache) Served(id sample.Index) {
	c.served.Add(id)
	if _, here := c.at[id]; here {
		c.leave(id)
	}
}

// Begin starts an epoch: no sample is served or queued yet.
func (c *LCache) Begin() {
	c.served.Clear()
	c.queued.Clear()
	c.asked = nil
}

// Asked returns the samples that were requested in this epoch while absent, in that order. They are repacked first.
func (c *LCache) Asked() []sample.Index { return c.asked }

// Left returns the loaded samples, oldest first.
func (c *LCache) Left() (out []sample.Index) {
	for _, w := range c.loaded {
		if w.id != sample.None {
			out = append(out, w.id)
		}
	}
	return out
}
