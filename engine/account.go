package engine

import (
	"cmp"
	"fmt"

	"github.com/dustin/go-humanize"

	"lcache/internal/errcode"
	"lcache/internal/host"
	"lcache/internal/importance/session"
	"lcache/internal/memquota"
	"lcache/internal/serve/deliver"
	"lcache/internal/store/cache"
)

// Memory that the server uses on behalf of clients is part of --memory. The account holds the memory that is left after the planned parts of the server.

const (
	leastOrders   = 4 << 20  // for pushed orders: with few samples, table entries take most of an order's memory
	orderEntries  = 64 << 10 // bytes of these table entries
	leastStates   = 4 << 20  // for importance state of small datasets, if --memory leaves nothing
	leastObserved = 2 << 20  // for queued observations
	shareOrders   = 4        // pushed orders may take 1/shareOrders of --memory,
	shareObserved = 16       // and observations 1/shareObserved
	program       = 16 << 20 // heap bytes for everything whose size does not depend on clients
)

// checkPeerMemory returns an error if the memory that was given has no room for what travels between machines.
func (e *Engine) checkPeerMemory() error {
	if given, need := e.opts.Memory, int64(e.cache.Sizing.Memory)+e.opts.PeerMemory; e.opts.PeerMemory > 0 && given > 0 && given < need {
		return errcode.Errorf(errcode.Memory, "--memory of %s is too small with --cluster: the cache needs %s, and samples between machines %s; give --memory %dMiB or more, or less --peer-memory",
			humanize.IBytes(uint64(given)), humanize.IBytes(e.cache.Sizing.Memory), humanize.IBytes(uint64(e.opts.PeerMemory)), (need+1<<20-1)>>20)
	}
	return nil
}

// MemoryLimit returns --memory in bytes: the value given to the server, else the one that ingest recorded, else a quarter of the machine's memory.
func (e *Engine) MemoryLimit() int64 {
	limit := cmp.Or(e.opts.Memory, e.cache.Record.Memory, int64(host.MachineMemory()/4))
	return max(limit, int64(e.cache.Sizing.Memory)+e.opts.PeerMemory) // the minimum may have grown since the cache was made
}

// HeapLimit returns how much memory the Go heap may use, so that garbage does not come on top of --memory. It is --memory without the planned memory
// outside the heap. Tables count as heap memory.
func (e *Engine) HeapLimit() int64 {
	f := e.cache.Facts()
	outside := int64(e.cache.Sizing.Memory) + int64(e.opts.homeBytes()) - int64(f.TableBytes)*int64(f.Samples)
	return e.MemoryLimit() - max(outside, 0) + program
}

// Account returns the memory that --memory leaves for clients.
func (e *Engine) Account() *memquota.Account { return e.account }

// openAccount creates the account and the share for pushed orders.
func (e *Engine) openAccount() {
	limit := e.MemoryLimit()
	e.account = memquota.New(limit - int64(e.cache.Sizing.Memory) - e.opts.PeerMemory)
	own := cache.OrderBytes*int64(e.cache.Manifest.Len()) + orderEntries // one order with batches of any size, and its table entries
	e.orders = e.account.Share(max(own, leastOrders), max(own, limit/shareOrders))
	if e.opts.PushBytes > 0 {
		e.orders.SetLimit(e.opts.PushBytes)
	}
	left := e.account.Left()
	e.shares = session.Shares{Account: e.account, States: e.account.Share(leastStates, leastStates+left), Kept: e.account.Share(0, left), MostOrders: limit / shareOrders, Memory: limit}
	e.observed = e.account.Share(leastObserved, max(leastObserved, limit/shareObserved))
	e.cache.Schedule.CountIn(e.orders)
}

// TakeOrders reserves bytes for an order that is being received in pieces. It fails if the orders of all jobs leave no room. GiveOrders releases them.
func (e *Engine) TakeOrders(bytes int64) error {
	if e.orders.Take(bytes) || e.dropSpare(nil) && e.orders.Take(bytes) {
		return nil
	}
	if limit := e.orders.Limit(); bytes > limit {
		return &deliver.ArgumentError{Reason: fmt.Sprintf("the order takes %s, more than the %s that --memory has for the orders of all jobs: give the server more --memory", humanize.Bytes(uint64(bytes)), humanize.Bytes(uint64(limit)))}
	}
	return &deliver.ArgumentError{Reason: "no memory is left for the order: push it again, from batch 0 on, after an earlier epoch was read"}
}

// GiveOrders releases bytes that TakeOrders reserved.
func (e *Engine) GiveOrders(bytes int64) { e.orders.Give(bytes) }

// dropSpare drops pushed orders that no client will request any longer, for all jobs except one. It reports whether it dropped any.
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
