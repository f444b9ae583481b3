package engine

import (
	"lcache/deliver"
	"lcache/fetch"
	"lcache/sample"
	"lcache/schedule"
)

// missReader is how far misses are listed for the prefetcher: a sequence over epochs that begins again when the ranks jump.
type missReader struct {
	turn    int  // sequences begun; an older one does not change what follows
	epoch   int  // that is being listed; past the last one at the end
	blocked bool // its order is not known: go on there once it is
}

// readMisses begins a sequence if the log does not keep everything, and a rank asks for an epoch that the current sequence does not come to. A
// sequence lists one epoch after the other, and leaves out the misses that no rank waits for. again reports that the rank goes back. e.mu is held.
func (e *Engine) readMisses(at *deliver.Position, again bool) {
	if e.cache.Sizing.Miss == 0 {
		return
	}
	m := &e.missing
	switch {
	case m.turn == 0, at.Epoch > m.epoch+1, again && at.Epoch < m.epoch:
		m.epoch = at.Epoch
	case m.blocked && e.cache.Schedule.IsKnown(m.epoch): // pushed meanwhile
	default:
		return
	}
	m.turn++
	m.blocked = false
	select {
	case e.misses <- struct{}{}:
	default: // the loop has not looked since the last time
	}
}

// missLoop starts the MissPrefetcher at the epoch that readMisses chose. It is a goroutine of its own, because ending a sequence takes locks.
func (e *Engine) missLoop() {
	defer e.loops.Done()
	for {
		select {
		case <-e.misses:
			e.mu.Lock()
			m := e.missing
			e.mu.Unlock()
			e.missPrefetcher.Start(e.missSequence(m.epoch, m.turn), e.missWanted)
		case <-e.ctx.Done():
			return
		}
	}
}

// missSequence lists the samples that the log does not keep, in the order of need, from an epoch on.
func (e *Engine) missSequence(epoch, turn int) func() (fetch.Ask, bool) {
	var order *schedule.Order
	batch, r, i := 0, 0, 0
	var indices []sample.Index
	loaded := false
	return func() (fetch.Ask, bool) {
		for e.ctx.Err() == nil {
			if order == nil {
				var err error
				order, err = e.cache.Schedule.Order(e.ctx, epoch)
				e.mu.Lock()
				old := e.missing.turn != turn
				if !old {
					e.missing.epoch, e.missing.blocked = epoch, err != nil
				}
				e.mu.Unlock()
				if old || err != nil { // past the last epoch, or an order that is still to be pushed
					return fetch.Ask{}, false
				}
			}
			if !loaded {
				steps := 0
				for _, rank := range order.Ranks {
					steps = max(steps, order.Batches(rank))
				}
				if batch >= steps {
					order, batch, r = nil, 0, 0
					epoch++
					continue
				}
				indices, _ = order.Chunk(order.Ranks[r], batch, indices[:0])
				loaded, i = true, 0
			}
			for ; i < len(indices); i++ {
				if index := indices[i]; e.cache.Manifest.Size(index) > 0 && !e.cache.Admits(index) {
					i++
					return fetch.Ask{Index: index, Epoch: epoch, Rank: order.Ranks[r], Batch: batch}, true
				}
			}
			loaded = false
			if r++; r == len(order.Ranks) {
				r = 0
				batch++
			}
		}
		return fetch.Ask{}, false
	}
}

// missSkipped reports whether a miss is being read by index now, by the request that its rank waits for.
func (e *Engine) missSkipped(a fetch.Ask) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.ranks[a.Rank]
	return r != nil && a.Epoch == r.epoch && a.Batch < r.missFrom
}

// missWanted reports whether a miss is still ahead of its rank.
func (e *Engine) missWanted(a fetch.Ask) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.ranks[a.Rank]
	if r == nil || r.outOfWindow {
		return false
	}
	at := r.at(e.cache.Schedule)
	if at != a.Epoch {
		return at < a.Epoch && e.cache.Schedule.Exists(a.Epoch)
	}
	if r.finished {
		return at > r.epoch
	}
	return a.Batch >= r.batch
}
