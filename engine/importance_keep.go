package engine

import (
	"math"

	"lcache/chunker"
	"lcache/importance"
	"lcache/offheap"
	"lcache/sample"
	"lcache/schedule"
)

// If the budget is smaller than the data, a log keeps the samples that the budget admits by their names. More is known of an epoch that is drawn by importance: how often it delivers each sample, and how often each
// is expected to be delivered after that. The new log retains the most-used samples, from the old log or from the source (importance.Keeping). A sample from the source is written to the log of the next epoch as
// soon as the scan has made room for it, by leaving out what that log does not keep (docs/adr/0029-drawn-lines.md).

// room limits the chosen samples of a log to the bytes, number and largest size of those that the budget admits.
type room struct {
	bytes   int64
	samples int
	largest uint64
}

// roomForChosen returns the room for chosen samples; false if the budget admits all samples, or samples are compressed, and so have other sizes in the log.
func (e *Engine) roomForChosen() (r room, is bool) {
	c := e.cache
	if c.Form != nil {
		return r, false
	}
	keeps := c.Placement()
	for i, size := range c.Manifest.Sizes() {
		switch {
		case keeps.Keeps(sample.Index(i)):
			p := chunker.Padded(size, c.Format.Align)
			r.bytes, r.samples, r.largest = r.bytes+int64(p), r.samples+1, max(r.largest, p)
		case size > 0:
			is = true
		}
	}
	return r, is
}

// keeps returns the samples that the log of a drawn epoch keeps; nil: those that the budget admits. by are all samples, most used first. The caller closes the set.
func (p *important) keeps(epoch int, order *schedule.Order, by []sample.Index, high *sample.Set) (*sample.Set, error) {
	e := p.e
	r, is := e.roomForChosen()
	if !is {
		return nil, nil
	}
	uses, err := offheap.Make[uint8](len(by))
	if err != nil {
		return nil, err
	}
	defer offheap.Free(uses)
	comes, err := sample.NewSet(len(by))
	if err != nil {
		return nil, err
	}
	defer comes.Close()
	k := importance.Keeping{MostUsed: by, Uses: uses, Room: r.bytes, Most: r.samples, Comes: comes.Has, High: high.Has,
		Here: func(i sample.Index) bool { return e.cache.Locations.Get(i) != 0 },
		Size: func(i sample.Index) int64 {
			if p := chunker.Padded(e.cache.Manifest.Size(i), e.cache.Format.Align); p <= r.largest {
				return int64(p)
			}
			return 0
		}}
	p.countUses(epoch, order, uses, comes)
	return k.Choose()
}

// countUses counts how often an epoch delivers each sample, and adds the samples that the epoch before reads from the source to comes.
func (p *important) countUses(epoch int, order *schedule.Order, uses []uint8, comes *sample.Set) {
	for _, index := range order.Global {
		if int(index) < len(uses) && uses[index] < math.MaxUint8 { // else it is open
			uses[index]++
		}
	}
	before := p.orderBefore(epoch)
	if before == nil {
		return
	}
	p.e.mu.Lock()
	held := p.e.holders
	p.e.mu.Unlock()
	for _, index := range before.Global {
		if int(index) < len(uses) && !held.Has(index) {
			comes.Add(index)
		}
	}
}

// orderBefore returns the order of the epoch before one, unless that one has begun; nil: it has, or the order is not known.
func (p *important) orderBefore(epoch int) *schedule.Order {
	e := p.e
	e.mu.Lock()
	over := epoch <= e.readEpoch
	e.mu.Unlock()
	if over || !p.j.schedule.IsComplete(epoch-1, e.opts.LateEpoch) {
		return nil
	}
	order, err := p.j.schedule.ToLayOut(e.ctx, epoch-1)
	if err != nil {
		return nil
	}
	return order
}
