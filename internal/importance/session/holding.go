package session

import (
	"fmt"

	"github.com/dustin/go-humanize"

	"lcache/internal/importance/state"
	"lcache/internal/memquota"
	"lcache/internal/serve/deliver"
)

const (
	stateEach = 64 // bytes of the state for each sample: values and warm-up, what drawing an epoch needs, tables of the memory policy
	orderEach = 8  // bytes of a drawn order in the state for each sample: the index, and its expected uses
)

// Shares are the parts of --memory that importance takes. A job takes from them when it asks for importance: for its state, for drawn orders, and for samples and packages.
type Shares struct {
	Account    *memquota.Account
	States     *memquota.Share // states of all jobs
	Kept       *memquota.Share // samples and packages that all jobs keep in memory
	MostOrders int64           // bytes that the orders of one job may take in addition to the bytes that are reserved for them
	Memory     int64           // --memory
}

// A Holding is the part of the Shares that one job has.
type Holding struct {
	Orders *memquota.Share // for the orders that the schedule has, and the requested ones
	shares Shares
	state  int64 // bytes of Shares.States
	kept   int64 // bytes of Shares.Kept
}

// ordersOf returns how many drawn orders a job has at a time, and the bytes that the schedule needs for one of them.
func ordersOf(c state.Config, samples int) (orders, bytes int64) {
	n := int64(samples + c.WorldSize*c.BatchSize)
	orders, bytes = 3, 4*n+28*(n/int64(c.BatchSize)+1)+n/8+1024*int64(c.WorldSize)
	if c.Lag != "0" {
		orders = 4
	}
	if c.Substitute != "" {
		bytes *= 2
	}
	return orders, bytes
}

// Hold takes the memory of a job's state. c.Cache may not be known yet.
func (s Shares) Hold(c state.Config, samples int) (*Holding, error) {
	orders, bytes := ordersOf(c, samples)
	each := stateEach + orderEach*orders
	if c.Substitute != "" {
		each += 4 * orders
	}
	state := each*int64(samples) + orders*bytes
	if !s.States.Take(state) {
		left := s.States.Left()
		return nil, &deliver.ArgumentError{Reason: fmt.Sprintf("importance: its state takes %s, more than the %s that memory leaves: give the server --memory %d or more",
			humanize.IBytes(uint64(state)), humanize.IBytes(uint64(left)), s.Memory+state-left)}
	}
	return &Holding{shares: s, state: state, Orders: s.Account.Share(orders*bytes, orders*bytes+s.MostOrders)}, nil
}

// Keep takes memory for samples and packages. It reports whether there was room.
func (h *Holding) Keep(bytes int64) bool {
	if !h.shares.Kept.Take(bytes) {
		return false
	}
	h.kept += bytes
	return true
}

// KeepCache takes the memory that cache= asks for.
func (h *Holding) KeepCache(c state.Config) error {
	if h.Keep(c.Cache) {
		return nil
	}
	left := h.shares.Kept.Left()
	return &deliver.ArgumentError{Reason: fmt.Sprintf("importance: cache=%s is more than the %s that memory leaves: give the server --memory %d or more, or a smaller cache",
		humanize.IBytes(uint64(c.Cache)), humanize.IBytes(uint64(left)), h.shares.Memory+c.Cache-left)}
}

// GiveBack gives everything back. The schedule has given back its orders.
func (h *Holding) GiveBack() {
	h.shares.States.Give(h.state)
	h.shares.Kept.Give(h.kept)
	h.state, h.kept = 0, 0
}
