package engine

import (
	"cmp"
	"fmt"

	"github.com/dustin/go-humanize"

	"lcache/internal/host"
	"lcache/internal/importance/session"
	"lcache/internal/quota"
	"lcache/internal/serve/deliver"
	"lcache/internal/store/cache"
)

// What clients make a server keep is a part of --memory: the account has what the planned parts leave.

const (
	leastOrders   = 4 << 20  // for pushed orders: with few samples an order is little more than its entries in tables
	orderEntries  = 64 << 10 // these entries
	leastStates   = 4 << 20  // for states of importance of small datasets, if --memory leaves nothing
	leastObserved = 2 << 20  // for observations that wait
	shareOrders   = 4        // pushed orders may take this part of --memory,
	shareObserved = 16       // and observations this one
	program       = 16 << 20 // of the heap, for all that does not grow with what clients do
)

// MemoryLimit is --memory in bytes: as given to the server, as recorded by ingest, or what a server without either may take.
func (e *Engine) MemoryLimit() int64 {
	limit := cmp.Or(e.opts.Memory, e.cache.Record.Memory, int64(host.MachineMemory()/4))
	return max(limit, int64(e.cache.Sizing.Memory)) // the minimum may have grown since the cache was made
}

// HeapLimit is how much memory Go may take for the server, so that garbage does not come on top of --memory: all of it but what is planned outside the heap.
// Tables are counted as if they were in the heap.
func (e *Engine) HeapLimit() int64 {
	f := e.cache.Facts()
	outside := int64(e.cache.Sizing.Memory) - int64(f.TableBytes)*int64(f.Samples)
	return e.MemoryLimit() - max(outside, 0) + program
}

// Account is what --memory leaves for clients.
func (e *Engine) Account() *quota.Account { return e.account }

// openAccount makes the account, and the share of pushed orders.
func (e *Engine) openAccount() {
	limit := e.MemoryLimit()
	e.account = quota.New(limit - int64(e.cache.Sizing.Memory))
	own := cache.OrderBytes*int64(e.cache.Manifest.Len()) + orderEntries // one order in any batches, and its entries in tables
	e.orders = e.account.Share(max(own, leastOrders), max(own, limit/shareOrders))
	if e.opts.PushBytes > 0 {
		e.orders.SetLimit(e.opts.PushBytes)
	}
	left := e.account.Left()
	e.shares = session.Shares{Account: e.account, States: e.account.Share(leastStates, leastStates+left), Kept: e.account.Share(0, left), MostOrders: limit / shareOrders, Memory: limit}
	e.observed = e.account.Share(leastObserved, max(leastObserved, limit/shareObserved))
	e.cache.Schedule.CountIn(e.orders)
}

// TakeOrders takes bytes for an order that is being received in pieces; GiveOrders gives them back. It fails if the orders of all jobs leave no room.
func (e *Engine) TakeOrders(bytes int64) error {
	if e.orders.Take(bytes) || e.dropSpare(nil) && e.orders.Take(bytes) {
		return nil
	}
	if limit := e.orders.Limit(); bytes > limit {
		return &deliver.ArgumentError{Reason: fmt.Sprintf("it takes %s, more than the %s that --memory has for the orders of all jobs: give the server more --memory", humanize.Bytes(uint64(bytes)), humanize.Bytes(uint64(limit)))}
	}
	return &deliver.ArgumentError{Reason: "the orders of all jobs leave no room for it: push it again, from batch 0 on, when an earlier epoch has been read"}
}

// GiveOrders gives back what TakeOrders took.
func (e *Engine) GiveOrders(bytes int64) { e.orders.Give(bytes) }

// dropSpare drops the pushed orders that nobody will ask for any longer, of all jobs but one. It reports whether there were any.
func (e *Engine) dropSpare(but *job) (dropped bool) {
	e.mu.Lock()
	jobs := e.sorted()
	e.mu.Unlock()
	for _, j := range jobs {
		if j != but && j.importance.Load() == nil && j.schedule.DropSpare(e.spare(j)) {
			dropped = true
		}
	}
	return dropped
}
