package logfile

import (
	"math"
	"slices"
	"sync"
)

// noPlace stands for no place of the arena.
const noPlace = math.MaxUint32

// freeList holds the places that no block claims, and the writes that wait for one. First in, first out: the place that was freed
// longest ago is written over first, so after a crash the old journal still finds the samples whose new copies were
// only in write buffers.
type freeList struct {
	mu sync.Mutex // guards the fields that follow; taken after a segment's mu, never before it

	ring    []uint32
	head, n int
	shared  map[uint32]int // places that hold several tails: how many still need them
	waiting []*flight      // not empty only while n is 0
}

// newFreeList has all places free for which taken is false, in ascending order.
func newFreeList(places int, taken func(place uint32) bool) *freeList {
	l := &freeList{ring: make([]uint32, places), shared: map[uint32]int{}}
	for p := range uint32(places) {
		if !taken(p) {
			l.ring[l.n] = p
			l.n++
		}
	}
	return l
}

// take gives f a place, or lets it wait for one.
func (l *freeList) take(f *flight) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n == 0 {
		l.waiting = append(l.waiting, f)
		return false
	}
	f.place = l.popLocked()
	return true
}

// tryTake returns a place if there is one now.
func (l *freeList) tryTake() (uint32, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n == 0 {
		return noPlace, false
	}
	return l.popLocked(), true
}

func (l *freeList) popLocked() uint32 {
	p := l.ring[l.head]
	l.head = (l.head + 1) % len(l.ring)
	l.n--
	return p
}

// share says that n tails lie in place; each of them will release it.
func (l *freeList) share(place uint32, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n > 1 {
		l.shared[place] = n
	}
}

// release takes back places, noPlace among them ignored, and returns the writes that got one by it: the caller launches them
// when it holds no lock.
func (l *freeList) release(places ...uint32) (ready []*flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range places {
		if p == noPlace {
			continue
		}
		if n := l.shared[p]; n > 1 {
			l.shared[p] = n - 1
			continue
		}
		delete(l.shared, p)
		l.ring[(l.head+l.n)%len(l.ring)] = p
		l.n++
	}
	for l.n > 0 && len(l.waiting) > 0 {
		f := l.waiting[0]
		l.waiting = l.waiting[1:]
		f.place = l.popLocked()
		ready = append(ready, f)
	}
	return ready
}

// cancel takes the waiting writes out that match.
func (l *freeList) cancel(match func(f *flight) bool) (out []*flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = slices.DeleteFunc(l.waiting, func(f *flight) bool {
		if match(f) {
			out = append(out, f)
			return true
		}
		return false
	})
	return out
}

func (l *freeList) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}
