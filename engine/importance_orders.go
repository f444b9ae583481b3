package engine

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"lcache/drawn"
	"lcache/importance"
	"lcache/sample"
	"lcache/schedule"
)

// give gives the schedule the orders that the state has and the schedule lacks, and takes back those that the state has forgotten. The worker calls it, and newImportant before there is one.
func (p *important) give() {
	orders := p.state.Orders()
	p.takeBack(orders)
	failed := p.giveNew(orders)
	p.mu.Lock()
	first := failed != nil && p.giveErr == nil
	p.giveErr, p.giveTried = failed, time.Now()
	p.mu.Unlock()
	if first {
		p.e.cache.Logger.Error("an order that was drawn can't be given to the ranks; it is tried again", "name", p.config.Name, "err", failed)
	}
	if epoch, order := p.state.Coming(); order != nil && epoch != p.foretold {
		if err := p.foretell(epoch, order); err != nil {
			p.e.cache.Logger.Error("what is drawn of an order can't be laid out ahead", "name", p.config.Name, "epoch", epoch, "err", err)
		}
	}
	p.e.nudge()
}

// giveAgainAfter is how long an order that could not be given waits for the next attempt: orders of other jobs may have left no room for it.
const giveAgainAfter = time.Second

// giveAgain tries again to give orders if that failed, and returns how long the worker waits at most.
func (p *important) giveAgain(wait time.Duration) time.Duration {
	p.mu.Lock()
	failed, since := p.giveErr, time.Since(p.giveTried)
	p.mu.Unlock()
	switch {
	case failed == nil:
		return wait
	case since < giveAgainAfter:
		return min(wait, giveAgainAfter-since)
	}
	p.give()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tellWaiters()
	return min(wait, giveAgainAfter)
}

// takeBack takes from the schedule the orders that the state has forgotten.
func (p *important) takeBack(orders map[int]*drawn.Order) {
	p.mu.Lock()
	back := -1
	for epoch := range p.given {
		if orders[epoch] == nil && epoch >= p.state.Epoch() && (back < 0 || epoch < back) {
			back = epoch
		}
	}
	if p.state.Epoch() < p.positions.epoch { // all is forgotten: what was given of earlier epochs goes with no state that there is
		back = 0
	}
	if back >= 0 {
		maps.DeleteFunc(p.given, func(epoch int, _ bool) bool { return epoch >= back })
	}
	p.mu.Unlock()
	p.dropTwo(func(epoch int) bool {
		return back >= 0 && epoch >= back || orders[epoch] == nil && !p.j.schedule.IsKnown(epoch)
	})
	if back < 0 {
		return
	}
	p.j.schedule.Retract(back)
	p.foretold = -1
	for epoch := range p.e.epochsOf(p.j) {
		if epoch >= back {
			p.e.reordered(p.j, epoch, true)
		}
	}
}

// giveNew gives the schedule the orders that it lacks. The error names one that could not be given.
func (p *important) giveNew(orders map[int]*drawn.Order) (failed error) {
	for epoch, o := range orders {
		p.mu.Lock()
		has := p.given[epoch]
		p.mu.Unlock()
		if has {
			continue
		}
		if err := p.giveOne(o); err != nil {
			failed = fmt.Errorf("the order of epoch %d is drawn, and can't be given to the ranks: %w", epoch, err)
			continue
		}
		p.mu.Lock()
		p.announced(epoch)
		p.mu.Unlock()
	}
	return failed
}

// foretell tells the schedule the part of an epoch's order that is known, so that it is laid out meanwhile.
func (p *important) foretell(epoch int, order []sample.Index) error {
	s := p.j.schedule
	p.foretold = epoch
	whole := importance.Striped(order, p.world, p.config.DropLast)
	for rank := range p.world {
		if !s.IsLocal(rank) || !s.Exists(epoch) {
			continue
		}
		if err := s.Foretell(epoch, rank, batches(whole, rank, p.world, p.config.BatchSize, p.config.DropLast), p.isRead()); err != nil {
			return err
		}
	}
	return nil
}

// giveOne gives the schedule an epoch's order, as the ranks served here read it: rank r has places r, r+W, ….
func (p *important) giveOne(o *drawn.Order) error {
	s := p.j.schedule
	if o.Indices == nil {
		s.Allow(o.Epoch)
	} else {
		if part := o.Foretold(); part != nil && o.Epoch != p.foretold { // a log that an earlier server wrote was laid out by it
			if err := p.foretell(o.Epoch, part); err != nil {
				return err
			}
		}
		served, two := p.cut(o)
		if two != nil {
			p.addTwo(o.Epoch, two)
		}
		for rank := range p.world {
			if !s.IsLocal(rank) || !s.Exists(o.Epoch) {
				continue
			}
			if err := p.push(o.Epoch, rank, served[rank]); err != nil {
				return err
			}
		}
	}
	for rank := range p.world {
		p.e.window.ahead.pushed(p.j, rank, o.Epoch)
	}
	return nil
}

// push pushes an order for the server itself: it holds for all sessions.
func (p *important) push(epoch, rank int, batches [][]sample.Index) error {
	s, by := p.j.schedule, schedule.Pusher{Pid: os.Getpid()}
	if err := s.Claim(by.Pid, rank, 0, func(int) bool { return false }); err != nil {
		return err
	}
	changed, replaced, err := s.Push(p.e.ctx, by, epoch, rank, schedule.Cut(batches), p.isRead())
	if changed {
		p.e.reordered(p.j, epoch, replaced)
	}
	return err
}

// isRead returns a function that reports whether an epoch's order may make room for a newer one.
func (p *important) isRead() func(epoch, pid int) bool {
	first := p.state.Epoch() - 1
	return func(epoch, _ int) bool { return epoch < first }
}

// batches cuts one rank's part of an order.
func batches(order []sample.Index, rank, world, size int, dropLast bool) (out [][]sample.Index) {
	var mine []sample.Index
	for k := rank; k < len(order); k += world {
		mine = append(mine, order[k])
	}
	for batch := range slices.Chunk(mine, size) {
		if len(batch) == size || !dropLast {
			out = append(out, batch)
		}
	}
	return out
}
