package engine

import (
	"fmt"

	"github.com/dustin/go-humanize"

	"lcache/deliver"
	"lcache/drawn"
	"lcache/quota"
)

// Importance memory is part of --memory. It is taken when a job asks for importance: for its state, for drawn orders, and for samples and packages.

const (
	stateEach   = 64      // bytes of the state for each sample: values and warm-up, what drawing an epoch needs, tables of the memory policy
	orderEach   = 8       // bytes of a drawn order in the state for each sample: the index, and its expected uses
	leastStates = 4 << 20 // for states of small datasets if --memory leaves nothing
)

// A holding is the part of the account that one job's importance has.
type holding struct {
	e      *Engine
	state  int64        // bytes of Engine.importances
	kept   int64        // bytes of Engine.kept
	orders *quota.Share // for the orders that the schedule has, and the requested ones
}

// ordersOf returns how many drawn orders a job has at a time, and the bytes that the schedule needs for one of them.
func (e *Engine) ordersOf(c drawn.Config) (orders, bytes int64) {
	n := int64(e.cache.Manifest.Len() + c.WorldSize*c.BatchSize)
	orders, bytes = 3, 4*n+28*(n/int64(c.BatchSize)+1)+n/8+1024*int64(c.WorldSize)
	if c.Lag != "0" {
		orders = 4
	}
	if c.Substitute != "" {
		bytes *= 2
	}
	return orders, bytes
}

// hold takes the memory of a job's state. c.Cache may not be known yet.
func (e *Engine) hold(c drawn.Config) (*holding, error) {
	orders, bytes := e.ordersOf(c)
	each := stateEach + orderEach*orders
	if c.Substitute != "" {
		each += 4 * orders
	}
	state := each*int64(e.cache.Manifest.Len()) + orders*bytes
	if !e.importances.Take(state) {
		left := e.importances.Left()
		return nil, &deliver.ArgumentError{Reason: fmt.Sprintf("importance: its state takes %s, more than the %s that memory leaves: give the server --memory %d or more",
			humanize.IBytes(uint64(state)), humanize.IBytes(uint64(left)), e.MemoryLimit()+state-left)}
	}
	return &holding{e: e, state: state, orders: e.account.Share(orders*bytes, orders*bytes+e.MemoryLimit()/shareOrders)}, nil
}

// keep takes memory for samples and packages. It reports whether there was room.
func (h *holding) keep(bytes int64) bool {
	if !h.e.kept.Take(bytes) {
		return false
	}
	h.kept += bytes
	return true
}

// giveBack gives everything back. The schedule has given back its orders.
func (h *holding) giveBack() {
	h.e.importances.Give(h.state)
	h.e.kept.Give(h.kept)
	h.state, h.kept = 0, 0
}

// spareMemory returns the memory not yet reserved, for samples and packages of importance.
func (e *Engine) spareMemory() int64 { return e.kept.Left() }

// keepCache takes the memory that cache= asks for.
func (h *holding) keepCache(c drawn.Config) error {
	if h.keep(c.Cache) {
		return nil
	}
	left := h.e.spareMemory()
	return &deliver.ArgumentError{Reason: fmt.Sprintf("importance: cache=%s is more than the %s that memory leaves: give the server --memory %d or more, or a smaller cache",
		humanize.IBytes(uint64(c.Cache)), humanize.IBytes(uint64(left)), h.e.MemoryLimit()+c.Cache-left)}
}
