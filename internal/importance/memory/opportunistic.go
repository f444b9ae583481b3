package memory

import (
	"sync"

	"lcache/sample"
)

// An Opportunistic holds samples of a drawn epoch from opportunistic reads (prefetch.OpportunisticMemory). Each one
// is near another sample in a segment that was not moved, and the epoch requests it later. If the device has a limit
// of operations, one read across the gap takes less time than two reads. A sample is dropped after its delivery,
// unless the next epoch wants it too.
//
// A nil Opportunistic keeps no samples. The methods of prefetch.OpportunisticMemory require one that is not nil.
type Opportunistic struct {
	absent   func(epoch int, of []sample.Index) []sample.Index
	total    int64 // bytes of --memory
	capacity int64 // bytes of samples

	held  *Bytes
	spare *sample.Set // used only by the worker

	mu         sync.Mutex  // guards the fields that follow
	epoch      int         // the current epoch; -1: none
	left       *sample.Set // samples of its order that were not yet delivered
	next       *sample.Set // samples of the next epoch's order, as far as it is known
	promised   *sample.Set // samples that are held or reserved
	taken      int64       // bytes of promised
	again      *sample.Set // of promised: samples that stay for the next epoch
	againBytes int64
}

// Held returns the held bytes; nil for a nil Opportunistic.
func (a *Opportunistic) Held() *Bytes {
	if a == nil {
		return nil
	}
	return a.held
}

// Total returns the bytes of --memory that the samples and their tables use.
func (a *Opportunistic) Total() int64 {
	if a == nil {
		return 0
	}
	return a.total
}

// OpportunisticUsage is the use of the memory, in bytes.
type OpportunisticUsage struct {
	Capacity int64
	Taken    int64 // samples that are held or reserved
	Held     int64 // samples that are held
	Again    int64 // samples that stay for the next epoch
}

// Usage returns the current use of the memory.
func (a *Opportunistic) Usage() OpportunisticUsage {
	if a == nil {
		return OpportunisticUsage{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return OpportunisticUsage{a.capacity, a.taken, a.held.Taken(), a.againBytes}
}

// All yields the held samples, and whether each stays for the next epoch.
func (a *Opportunistic) All(yield func(index sample.Index, again bool) bool) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.promised.All {
		if a.held.Has(i) && !yield(i, a.again.Has(i)) {
			return
		}
	}
}

// Room returns the maximum number of bytes held at once.
func (a *Opportunistic) Room() int64 {
	if a == nil {
		return 0
	}
	return a.capacity
}

// opportunisticShare limits the memory to 1/opportunisticShare of an epoch's bytes, because more would not find
// enough samples to read.
const opportunisticShare = 4

// tableBytes is the size of tables in bytes per sample of the dataset.
const tableBytes = 5

// NewOpportunistic allocates at most bytes; it returns nil if no sample fits. absent returns the given samples that
// an epoch finds neither in the prefetch window nor in memory.
func NewOpportunistic(bytes int64, d Dataset, absent func(epoch int, of []sample.Index) []sample.Index) (a *Opportunistic, err error) {
	tables := tableBytes * int64(d.Manifest.Len())
	capacity := min(bytes-tables, int64(d.Manifest.Bytes())/opportunisticShare)
	if capacity <= 0 {
		return nil, nil
	}
	a = &Opportunistic{absent: absent, total: capacity + tables, capacity: capacity, epoch: -1}
	if a.held, err = newBytes(d); err != nil {
		return nil, err
	}
	for _, set := range []**sample.Set{&a.left, &a.next, &a.promised, &a.again, &a.spare} {
		if *set, err = sample.NewSet(d.Manifest.Len()); err != nil {
			a.Close()
			return nil, err
		}
	}
	return a, nil
}

// Close frees the memory.
func (a *Opportunistic) Close() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.epoch = -1
	a.held.close()
	a.spare.Close()
	a.left.Close()
	a.next.Close()
	a.promised.Close()
	a.again.Close()
}

// Begin starts an epoch with its order, unless the request for a chunk has started it already. It drops the samples
// of other epochs. A nil order disables opportunistic reads for this epoch. next is the known part of the next
// epoch's order.
func (a *Opportunistic) Begin(epoch int, order, next []sample.Index) {
	if a == nil {
		return
	}
	a.fillSpare(order)
	a.mu.Lock()
	if epoch != a.epoch {
		a.next, a.spare = a.spare, a.next
		a.change(epoch)
		if order == nil {
			a.epoch = -1
		}
	}
	a.mu.Unlock()
	a.fillSpare(next)
	a.mu.Lock()
	a.next, a.spare = a.spare, a.next
	a.mu.Unlock()
}

// fillSpare makes spare the set of an order's samples. a.mu is not held, because an order may have millions of
// samples.
func (a *Opportunistic) fillSpare(order []sample.Index) {
	a.spare.Clear()
	for _, i := range order {
		a.spare.Add(i)
	}
}

// change switches to another epoch, whose order is in next, and drops all samples that do not stay for it. a.mu is held.
func (a *Opportunistic) change(epoch int) {
	follows := epoch == a.epoch+1
	for i := range a.promised.All {
		if !follows || !a.again.Has(i) || !a.next.Has(i) {
			a.drop(i)
		}
	}
	a.again.Clear()
	a.epoch, a.againBytes = epoch, 0
	a.left.Clear()
	a.left, a.next = a.next, a.left
}

// drop frees a sample, and its reservation. a.mu is held.
func (a *Opportunistic) drop(index sample.Index) {
	if a.promised.Remove(index) {
		a.taken -= a.held.Size(index)
		a.held.free(index)
	}
	if a.again.Remove(index) {
		a.againBytes -= a.held.Size(index)
	}
}

// Delivered drops delivered samples.
func (a *Opportunistic) Delivered(epoch int, indices []sample.Index) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if epoch != a.epoch {
		return
	}
	for _, i := range indices {
		if a.held.knows(i) && a.left.Remove(i) && !(a.held.Has(i) && a.stays(i)) {
			a.drop(i)
		}
	}
}

// againShare limits the samples for the next epoch to 1/againShare of the memory.
const againShare = 2

// stays reports whether a sample stays for the next epoch: the known part of that epoch wants it, and there is room. a.mu is held.
func (a *Opportunistic) stays(index sample.Index) bool {
	if a.again.Has(index) {
		return true
	}
	size := a.held.Size(index)
	if !a.next.Has(index) || a.againBytes+size > a.capacity/againShare {
		return false
	}
	a.again.Add(index)
	a.againBytes += size
	return true
}

// Again keeps a copy of a sample from a random read if the next epoch wants it too (prefetch.OpportunisticMemory).
// The sample's segment was not moved, and most such segments will not be moved in the next epoch either.
func (a *Opportunistic) Again(index sample.Index, data []byte) {
	w, ok := a.takeAgain(index, data)
	if !ok {
		return
	}
	if a.held.fill(w); !a.held.Has(index) {
		a.Drop(index)
	}
}

// takeAgain reserves room for a sample that the next epoch wants.
func (a *Opportunistic) takeAgain(index sample.Index, data []byte) (w writing, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.epoch < 0 || !a.next.Has(index) || a.promised.Has(index) || a.taken+a.held.Size(index) > a.capacity || !a.stays(index) {
		return w, false
	}
	a.promised.Add(index)
	a.taken += a.held.Size(index)
	if w, ok = a.held.begin(index, data); !ok {
		a.drop(index)
	}
	return w, ok
}

// Of returns the memory for a chunk of an epoch, or nil if the epoch has no opportunistic reads. If the order was
// known ahead, the epoch's first chunk starts the epoch, because the boundary before it may not be over.
func (a *Opportunistic) Of(epoch int) *Opportunistic {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.epoch >= 0 && epoch == a.epoch+1 && a.next.Len() > 0 {
		a.change(epoch)
	}
	if epoch != a.epoch {
		return nil
	}
	return a
}

// Wanted returns the given samples that the epoch delivers later and that are not in the prefetch window, in memory
// or reserved (prefetch.OpportunisticMemory).
func (a *Opportunistic) Wanted(of []sample.Index) (wanted []sample.Index) {
	a.mu.Lock()
	epoch := a.epoch
	for _, i := range of {
		if epoch >= 0 && a.left.Has(i) && !a.promised.Has(i) {
			wanted = append(wanted, i)
		}
	}
	a.mu.Unlock()
	if len(wanted) == 0 {
		return nil
	}
	return a.absent(epoch, wanted)
}

// Take reserves room for a sample (prefetch.OpportunisticMemory).
func (a *Opportunistic) Take(index sample.Index) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.epoch < 0 || !a.left.Has(index) || a.promised.Has(index) || a.taken+a.held.Size(index) > a.capacity {
		return false
	}
	a.promised.Add(index)
	a.taken += a.held.Size(index)
	return true
}

// Keep keeps a sample if its room is still reserved (prefetch.OpportunisticMemory).
func (a *Opportunistic) Keep(index sample.Index, data []byte) {
	a.mu.Lock()
	var w writing
	keep := a.epoch >= 0 && a.promised.Has(index)
	if keep {
		w, keep = a.held.begin(index, data)
	}
	a.mu.Unlock()
	if keep {
		a.held.fill(w)
	}
}

// Drop frees the reserved room of a sample (prefetch.OpportunisticMemory).
func (a *Opportunistic) Drop(index sample.Index) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop(index)
}
