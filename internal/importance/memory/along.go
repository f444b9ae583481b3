package memory

import (
	"sync"

	"lcache/sample"
)

// An Along holds samples of a drawn epoch that were read opportunistically with others (prefetch.Along): they lie near them in segments that were not moved, and are requested later in the epoch. Where a
// device is limited in operations, one read over the gap takes less time than two reads. A delivered sample leaves, unless the next epoch wants it, too.
//
// A nil Along keeps nothing; only the methods of prefetch.Along need one that is not nil.
type Along struct {
	absent   func(epoch int, of []sample.Index) []sample.Index
	total    int64 // bytes of --memory
	capacity int64 // bytes of samples

	held  *Bytes
	spare *sample.Set // the worker's

	mu         sync.Mutex  // guards the fields that follow
	epoch      int         // whose samples are read along; -1: none
	left       *sample.Set // of its order, what was not delivered
	next       *sample.Set // of the order of the epoch after it, as far as that is known
	promised   *sample.Set // what is here, or is to come
	taken      int64       // bytes of promised
	again      *sample.Set // of promised, what stays for the next epoch
	againBytes int64
}

// Held is the bytes that are here; nil for nil.
func (a *Along) Held() *Bytes {
	if a == nil {
		return nil
	}
	return a.held
}

// Total is how many bytes of --memory the samples and their tables take.
func (a *Along) Total() int64 {
	if a == nil {
		return 0
	}
	return a.total
}

// AlongUsage is what an Along's memory is used for, in bytes.
type AlongUsage struct {
	Capacity int64
	Taken    int64 // of samples that are here or on their way
	Held     int64 // of samples that are here
	Again    int64 // of those that stay for the next epoch
}

// Usage returns the use of the memory now.
func (a *Along) Usage() AlongUsage {
	if a == nil {
		return AlongUsage{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return AlongUsage{a.capacity, a.taken, a.held.Taken(), a.againBytes}
}

// All yields the samples that are here, and whether each stays for the next epoch.
func (a *Along) All(yield func(index sample.Index, again bool) bool) {
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

// Room is how many bytes may be kept at a time.
func (a *Along) Room() int64 {
	if a == nil {
		return 0
	}
	return a.capacity
}

// mostAlong is the part of an epoch's bytes that is read along at most: more would find nothing to read.
const mostAlong = 4

// alongTable is how many bytes of tables a sample of the dataset takes.
const alongTable = 5

// NewAlong allocates at most so many bytes; nil if no sample fits. absent returns the samples of some that an epoch does not find in its window or in memory.
func NewAlong(bytes int64, d Dataset, absent func(epoch int, of []sample.Index) []sample.Index) (a *Along, err error) {
	tables := alongTable * int64(d.Manifest.Len())
	capacity := min(bytes-tables, int64(d.Manifest.Bytes())/mostAlong)
	if capacity <= 0 {
		return nil, nil
	}
	a = &Along{absent: absent, total: capacity + tables, capacity: capacity, epoch: -1}
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
func (a *Along) Close() {
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

// Begin begins an epoch with its order, unless a chunk of it has: what is here of another one is dropped. A nil order is of an epoch of which nothing is read along. coming is what is known of
// the order of the next epoch.
func (a *Along) Begin(epoch int, order, coming []sample.Index) {
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
	a.fillSpare(coming)
	a.mu.Lock()
	a.next, a.spare = a.spare, a.next
	a.mu.Unlock()
}

// fillSpare makes spare the set of an order's samples. There may be millions of them: a.mu is not held.
func (a *Along) fillSpare(order []sample.Index) {
	a.spare.Clear()
	for _, i := range order {
		a.spare.Add(i)
	}
}

// change goes on with another epoch, whose order is in next, and drops what is here but for what stays for that epoch. a.mu is held.
func (a *Along) change(epoch int) {
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

// drop frees a sample, and the room that was set apart for it. a.mu is held.
func (a *Along) drop(index sample.Index) {
	if a.promised.Remove(index) {
		a.taken -= a.held.Size(index)
		a.held.free(index)
	}
	if a.again.Remove(index) {
		a.againBytes -= a.held.Size(index)
	}
}

// Delivered drops samples that were delivered.
func (a *Along) Delivered(epoch int, indices []sample.Index) {
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

// againShare is the part of the memory that may hold samples for the next epoch: one byte in so many.
const againShare = 2

// stays reports whether a sample stays for the next epoch: one that is wanted there, as far as is known, and for which there is room. a.mu is held.
func (a *Along) stays(index sample.Index) bool {
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

// Again keeps a copy of a sample that is read by place now, if the next epoch wants it, too (prefetch.Along): it lies in a segment that was not moved, and most of these are not moved again.
func (a *Along) Again(index sample.Index, data []byte) {
	w, ok := a.takeAgain(index, data)
	if !ok {
		return
	}
	if a.held.fill(w); !a.held.Has(index) {
		a.Drop(index)
	}
}

// takeAgain returns room for a sample that the next epoch wants.
func (a *Along) takeAgain(index sample.Index, data []byte) (w writing, ok bool) {
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

// Of returns the memory for a chunk of an epoch; nil: nothing is read along in it. The first chunk of an epoch whose order was known ahead begins it: the boundary before it may not be over.
func (a *Along) Of(epoch int) *Along {
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

// Wanted returns those of some samples that the epoch delivers later, that it does not find in the window or in memory, and that are not read along already (prefetch.Along).
func (a *Along) Wanted(of []sample.Index) (wanted []sample.Index) {
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

// Take sets room apart for a sample (prefetch.Along).
func (a *Along) Take(index sample.Index) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.epoch < 0 || !a.left.Has(index) || a.promised.Has(index) || a.taken+a.held.Size(index) > a.capacity {
		return false
	}
	a.promised.Add(index)
	a.taken += a.held.Size(index)
	return true
}

// Keep keeps a sample for which there is room still (prefetch.Along).
func (a *Along) Keep(index sample.Index, data []byte) {
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

// Drop gives the room for a sample back (prefetch.Along).
func (a *Along) Drop(index sample.Index) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop(index)
}
