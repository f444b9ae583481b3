package engine

import (
	"sync"

	"lcache/chunker"
	"lcache/drawn"
	"lcache/reorder"
	"lcache/sample"
)

// alongMemory holds samples that were read along with others of a drawn epoch: they lie near them in segments that were not moved, and are asked for later in the epoch. A read over
// the gap between two takes a device that is limited in operations less time than two reads. It is a supplier of reads as the memory of a policy is. What was delivered leaves it, unless
// the next epoch wants it, too.
type alongMemory struct {
	e        *Engine
	total    int64 // bytes of --memory
	capacity int64 // bytes of samples

	held  *sampleBytes
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

// alongShare is the part of the memory for importance that is for samples that are read along, where nobody says how much is for those of importance: one in so many bytes.
const alongShare = 16

// readsAlong reports whether samples are read along for a job: in a log that is reordered, of which drawn epochs leave segments where they are.
func (e *Engine) readsAlong(c drawn.Config) bool {
	return c.Lag != "0" && c.Substitute == "" && !e.cache.IsStatic()
}

// alongTurns is how often the memory for samples that are read along is filled in an epoch: a sample waits there for a third of it, and at the epoch's beginning and end there are few.
const alongTurns = 2

// room is how many bytes may be read along at a time.
func (a *alongMemory) room() int64 {
	if a == nil {
		return 0
	}
	return a.capacity
}

// mostAlong is the part of an epoch's bytes that is read along at most: more would find nothing to read.
const mostAlong = 4

// alongTable is how many bytes of tables a sample of the dataset takes.
const alongTable = 5

// newAlongMemory makes a memory of so many bytes; nil without room for any sample.
func (e *Engine) newAlongMemory(bytes int64) (a *alongMemory, err error) {
	tables := alongTable * int64(e.cache.Manifest.Len())
	capacity := min(bytes-tables, int64(e.cache.Manifest.Bytes())/mostAlong)
	if capacity <= 0 {
		return nil, nil
	}
	a = &alongMemory{e: e, total: capacity + tables, capacity: capacity, epoch: -1}
	if a.held, err = newSampleBytes(e.cache); err != nil {
		return nil, err
	}
	for _, set := range []**sample.Set{&a.left, &a.next, &a.promised, &a.again, &a.spare} {
		if *set, err = sample.NewSet(e.cache.Manifest.Len()); err != nil {
			a.close()
			return nil, err
		}
	}
	return a, nil
}

func (a *alongMemory) close() {
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

// begin begins an epoch with its order, unless a chunk of it has: what is here of another one is dropped. A nil order is of an epoch of which nothing is read along. coming is what is known of
// the order of the next epoch.
func (a *alongMemory) begin(epoch int, order, coming []sample.Index) {
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
func (a *alongMemory) fillSpare(order []sample.Index) {
	a.spare.Clear()
	for _, i := range order {
		a.spare.Add(i)
	}
}

// change goes on with another epoch, whose order is in next, and drops what is here but for what stays for that epoch. a.mu is held.
func (a *alongMemory) change(epoch int) {
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
func (a *alongMemory) drop(index sample.Index) {
	if a.promised.Remove(index) {
		a.taken -= a.held.size(index)
		a.held.free(index)
	}
	if a.again.Remove(index) {
		a.againBytes -= a.held.size(index)
	}
}

// delivered drops samples that were asked for.
func (a *alongMemory) delivered(epoch int, indices []sample.Index) {
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
func (a *alongMemory) stays(index sample.Index) bool {
	if a.again.Has(index) {
		return true
	}
	size := a.held.size(index)
	if !a.next.Has(index) || a.againBytes+size > a.capacity/againShare {
		return false
	}
	a.again.Add(index)
	a.againBytes += size
	return true
}

// Again keeps a copy of a sample that is read by place now, if the next epoch wants it, too (fetch.Along): it lies in a segment that was not moved, and most of these are not moved again.
func (a *alongMemory) Again(index sample.Index, data []byte) {
	w, ok := a.takeAgain(index, data)
	if !ok {
		return
	}
	if a.held.fill(w); !a.held.Has(index) {
		a.Drop(index)
	}
}

// takeAgain returns room for a sample that the next epoch wants.
func (a *alongMemory) takeAgain(index sample.Index, data []byte) (w writing, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.epoch < 0 || !a.next.Has(index) || a.promised.Has(index) || a.taken+a.held.size(index) > a.capacity || !a.stays(index) {
		return w, false
	}
	a.promised.Add(index)
	a.taken += a.held.size(index)
	if w, ok = a.held.begin(index, data); !ok {
		a.drop(index)
	}
	return w, ok
}

// of returns the memory for a chunk of an epoch; nil: nothing is read along in it. The first chunk of an epoch whose order was known ahead begins it: the boundary before it may not be over.
func (a *alongMemory) of(epoch int) *alongMemory {
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

// Wanted returns those of some samples that the epoch delivers later, that it does not find in the window or in memory, and that are not read along already (fetch.Along).
func (a *alongMemory) Wanted(of []sample.Index) (wanted []sample.Index) {
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
	held := a.e.fetcher.Held.Load()
	a.e.mu.Lock()
	defer a.e.mu.Unlock()
	line := a.e.lineOfEpoch(epoch)
	if line == nil {
		return nil
	}
	n := 0
	for _, i := range wanted {
		if _, delivers := line.Delivers(i); !delivers && !held.Has(i) {
			wanted[n] = i
			n++
		}
	}
	return wanted[:n]
}

// Take sets room apart for a sample (fetch.Along).
func (a *alongMemory) Take(index sample.Index) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.epoch < 0 || !a.left.Has(index) || a.promised.Has(index) || a.taken+a.held.size(index) > a.capacity {
		return false
	}
	a.promised.Add(index)
	a.taken += a.held.size(index)
	return true
}

// Keep keeps a sample for which there is room still (fetch.Along).
func (a *alongMemory) Keep(index sample.Index, data []byte) {
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

// Drop gives the room for a sample back (fetch.Along).
func (a *alongMemory) Drop(index sample.Index) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop(index)
}

// lineOfEpoch is the line of the Logfile of an epoch; nil: there is none. e.mu is held.
func (e *Engine) lineOfEpoch(epoch int) *chunker.Line {
	for _, l := range []*reorder.EpochLog{e.cur, e.tgt} {
		if l != nil && l.Epoch == epoch {
			return l.Line
		}
	}
	return nil
}
