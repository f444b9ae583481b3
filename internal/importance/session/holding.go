package session

import (
	"fmt"

	"github.com/dustin/go-humanize"

	"lcache/internal/importance/state"
	"lcache/internal/memquota"
	"lcache/internal/serve/deliver"
)

const (
	stateEach = 64 // bytes of the state for each sample: values, warm-up, memory to draw an epoch, tables of the memory policy
	orderEach = 8  // bytes of a drawn order for each sample: the index and its expected uses
)

// Shares are the parts of --memory for importance. A job takes its state, its drawn orders, and its samples and
// packages from them when it turns on importance.
type Shares struct {
	Account    *memquota.Account
	States     *memquota.Share // for the states of all jobs
	Kept       *memquota.Share // for samples and packages that all jobs keep in memory
	MostOrders int64           // maximum bytes of one job's orders, in addition to the reserved bytes
	Memory     int64           // --memory
}

// A Holding is one job's part of the Shares.
type Holding struct {
	Orders *memquota.Share // for the orders in the schedule, and the requested orders
	shares Shares
	state  int64 // bytes of Shares.States
	kept   int64 // bytes of Shares.Kept
}

// ordersOf returns the maximum number of drawn orders that a job has at once, and the schedule's bytes for one of
// them.
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

// Hold reserves the memory for a job's state. c.Cache may still be unknown.
func (s Shares) Hold(c state.Config, samples int) (*Holding, error) {
	orders, bytes := ordersOf(c, samples)
	each := stateEach + orderEach*orders
	if c.Substitute != "" {
		each += 4 * orders
	}
	state := each*int64(samples) + orders*bytes
	if !s.States.Take(state) {
		left := s.States.Left()
		return nil, &deliver.ArgumentError{Reason: fmt.Sprintf("importance: its state takes %s, but --memory leaves %s: give the server --memory %d or more",
			humanize.IBytes(uint64(state)), humanize.IBytes(uint64(left)), s.Memory+state-left)}
	}
	return &Holding{shares: s, state: state, Orders: s.Account.Share(orders*bytes, orders*bytes+s.MostOrders)}, nil
}

// Keep reserves memory for samples and packages. It reports whether there was room.
func (h *Holding) Keep(bytes int64) bool {
	if !h.shares.Kept.Take(bytes) {
		return false
	}
	h.kept += bytes
	return true
}

// KeepCache reserves the memory of the option cache=.
func (h *Holding) KeepCache(c state.Config) error {
	if h.Keep(c.Cache) {
		return nil
	}
	left := h.shares.Kept.Left()
	return &deliver.ArgumentError{Reason: fmt.Sprintf("importance: cache=%s is more than the %s that --memory leaves: give the server --memory %d or more, or a smaller cache",
		humanize.IBytes(uint64(c.Cache)), humanize.IBytes(uint64(left)), h.shares.Memory+c.Cache-left)}
}

// GiveBack releases all of the job's memory. The schedule must have released its orders before.
func (h *Holding) GiveBack() {
	h.shares.States.Give(h.state)
	h.shares.Kept.Give(h.kept)
	h.state, h.kept = 0, 0
}
