package logfile

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// noPlace means no arena block.
const noPlace = math.MaxUint32

// freeList holds the arena blocks (places) that no block claims, by device, and the writes that wait for one. Place p is on device p mod
// devices. A block goes to the device with the fewest writes in flight, so that a slow device gets fewer blocks and does not delay
// others. A device that is off gets none. Each device's places are first in, first out: the place that was freed first is overwritten
// first. So after a crash the old journal still finds samples whose new copies were only in write buffers.
type freeList struct {
	most int // limit of writes in flight on one device

	mu      sync.Mutex // guards the fields that follow; taken after a segment's mu, never before it
	devices []freePlaces
	turn    int            // the device that wins a tie
	guard   func()         // requests more noted places, because only noted places may be taken; nil: any may be taken
	late    bool           // noting takes too long: any place may be taken
	shared  map[uint32]int // places that hold several tails, with the number of tails that still need them
	waiting []*blockWrite  // not empty only while no place may be taken: none is free, or their devices have enough writes in flight
	noFrees bool           // no place will be freed: fail instead of waiting
}

// freePlaces are the free places of one device.
type freePlaces struct {
	ring     []uint32
	head, n  int
	ready    int  // number of noted places, at the front
	noting   int  // number of places after these that are being noted
	inFlight int  // writes
	off      bool // it gets no blocks
}

// newFreeList returns a list of the places for which taken is false, in ascending order.
func newFreeList(places, devices, most int, taken func(place uint32) bool) *freeList {
	l := &freeList{most: max(most, 1), devices: make([]freePlaces, devices), shared: map[uint32]int{}}
	for i := range l.devices {
		l.devices[i].ring = make([]uint32, (places-i+devices-1)/devices)
	}
	for p := range uint32(places) {
		if !taken(p) {
			l.pushLocked(p)
		}
	}
	return l
}

func (l *freeList) of(place uint32) *freePlaces { return &l.devices[int(place)%len(l.devices)] }

func (l *freeList) pushLocked(place uint32) {
	d := l.of(place)
	d.ring[(d.head+d.n)%len(d.ring)] = place
	d.n++
}

// take gives f a place and returns true, or queues f and returns false. If no place will ever be free, it returns true and f has noPlace.
func (l *freeList) take(f *blockWrite) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.place = l.pickLocked(l.most, f.avoid); f.place != noPlace {
		l.of(f.place).inFlight++
		return true
	}
	if l.hopelessLocked() {
		return true
	}
	l.waiting = append(l.waiting, f)
	return false
}

// tryTake returns a place if one is free now. The write to it is not counted.
func (l *freeList) tryTake() (uint32, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pickLocked(math.MaxInt, noPlace)
	return p, p != noPlace
}

// tryTakeOn is tryTake for one device, even if that is off.
func (l *freeList) tryTakeOn(device int) (uint32, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.hasLocked(&l.devices[device]) {
		return noPlace, false
	}
	return l.devices[device].popLocked(), true
}

// hasLocked reports whether a place of a device may be taken. It requests more noted places before none is left.
func (l *freeList) hasLocked(d *freePlaces) bool {
	if l.guard != nil && d.ready < (min(l.aheadLocked(d), d.n)+1)/2 {
		l.guard()
	}
	return d.n > 0 && (l.guard == nil || l.late || d.ready > 0)
}

// aheadLocked returns the number of places of a device to note ahead. After a crash, samples in noted places are not found again, so it is small if few places are free.
func (l *freeList) aheadLocked(d *freePlaces) int {
	return min(max(4, d.n/8, len(l.waiting)), 4*l.most)
}

// unready lists the next places to note. gen is a generation after every old block of the places, and before every new one.
func (l *freeList) unready(last *atomic.Uint64) (places []uint32, gen uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.devices {
		d := &l.devices[i]
		d.noting = max(min(l.aheadLocked(d), d.n)-d.ready, 0)
		for k := range d.noting {
			places = append(places, d.ring[(d.head+d.ready+k)%len(d.ring)])
		}
	}
	return places, last.Load() + 1
}

// noted marks the places that unready has listed as noted. It returns the writes that got a place, as release does.
func (l *freeList) noted() (ready []*blockWrite) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = false
	for i := range l.devices {
		d := &l.devices[i]
		d.ready, d.noting = d.ready+d.noting, 0
	}
	return l.dealLocked()
}

// goOn lets writes take places that are not noted, until some are noted again. It returns the writes that got a place, as release does.
func (l *freeList) goOn() (ready []*blockWrite) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = true
	return l.dealLocked()
}

// unguard lets writes take any place from now on. It returns the writes that got a place, as release does.
func (l *freeList) unguard() (ready []*blockWrite) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.guard = nil
	return l.dealLocked()
}

// pickLocked takes a place on the device with the fewest writes in flight, if these are fewer than most. It uses the device of the place
// avoid only if no other device has a place.
func (l *freeList) pickLocked(most int, avoid uint32) uint32 {
	best, worse := -1, -1
	others := false
	for i := range l.devices {
		k := (l.turn + i) % len(l.devices)
		d := &l.devices[k]
		avoided := avoid != noPlace && int(avoid)%len(l.devices) == k
		others = others || !avoided && !d.off && d.n > 0
		switch {
		case d.off || d.inFlight >= most || !l.hasLocked(d):
		case avoided:
			worse = k
		case best < 0 || d.inFlight < l.devices[best].inFlight:
			best = k
		}
	}
	if best < 0 && !others {
		best = worse
	}
	if best < 0 {
		return noPlace
	}
	l.turn = (best + 1) % len(l.devices)
	return l.devices[best].popLocked()
}

func (d *freePlaces) popLocked() uint32 {
	p := d.ring[d.head]
	d.head = (d.head + 1) % len(d.ring)
	d.n--
	if d.ready > 0 {
		d.ready--
	} else if d.noting > 0 {
		d.noting--
	}
	return p
}

// hopelessLocked reports whether a waiting write may never get a place. While all devices are on, the mover frees as many places as it
// takes. Places that it frees on a device that is off can't be taken.
func (l *freeList) hopelessLocked() bool {
	some := l.noFrees
	for i := range l.devices {
		if d := &l.devices[i]; d.off {
			some = true
		} else if d.n > 0 {
			return false
		}
	}
	return some
}

// share notes that n tails are in one place. Each of them will release it.
func (l *freeList) share(place uint32, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n > 1 {
		l.shared[place] = n
	}
}

// release returns places to the list, and returns the waiting writes that now have one. The caller launches them when it holds no lock.
// It ignores noPlace.
func (l *freeList) release(places ...uint32) (ready []*blockWrite) {
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
		l.pushLocked(p)
	}
	return l.dealLocked()
}

// landed notes that a write to a place has ended. It returns the writes that got a place, as release does.
func (l *freeList) landed(place uint32) (ready []*blockWrite) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of(place).inFlight--
	return l.dealLocked()
}

// turnOff sets whether a device gets no blocks. It returns the writes that got a place, as release does.
func (l *freeList) turnOff(device int, off bool) (ready []*blockWrite) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.devices[device].off = off
	return l.dealLocked()
}

// setNoFrees sets noFrees: if true, no place will be freed from now on, so waiting writes fail. It returns the writes to launch, as release does.
func (l *freeList) setNoFrees(none bool) (ready []*blockWrite) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noFrees = none
	return l.dealLocked()
}

// dealLocked gives places to waiting writes, and returns those writes. A write that can never get a place is among them, with noPlace.
func (l *freeList) dealLocked() (ready []*blockWrite) {
	for len(l.waiting) > 0 {
		f := l.waiting[0]
		if f.place = l.pickLocked(l.most, f.avoid); f.place != noPlace {
			l.of(f.place).inFlight++
		} else if !l.hopelessLocked() {
			break
		}
		l.waiting = l.waiting[1:]
		ready = append(ready, f)
	}
	return ready
}

// cancel removes the waiting writes that match, and returns them.
func (l *freeList) cancel(match func(f *blockWrite) bool) []*blockWrite {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cancelLocked(match)
}

// cancelPlaceless is cancel without the first waiting writes, for which places are free as soon as fewer writes are in flight.
func (l *freeList) cancelPlaceless(match func(f *blockWrite) bool) []*blockWrite {
	l.mu.Lock()
	defer l.mu.Unlock()
	places := 0
	for i := range l.devices {
		if d := &l.devices[i]; !d.off {
			places += d.n
		}
	}
	return l.cancelLocked(func(f *blockWrite) bool {
		places--
		return places < 0 && match(f)
	})
}

func (l *freeList) cancelLocked(match func(f *blockWrite) bool) (out []*blockWrite) {
	l.waiting = slices.DeleteFunc(l.waiting, func(f *blockWrite) bool {
		if match(f) {
			out = append(out, f)
			return true
		}
		return false
	})
	return out
}

// len counts the free places.
func (l *freeList) len() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.devices {
		n += l.devices[i].n
	}
	return n
}

// unclaimed returns the free places that can be taken, minus the waiting writes. It may be negative.
func (l *freeList) unclaimed() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := -len(l.waiting)
	for i := range l.devices {
		if d := &l.devices[i]; !d.off {
			n += d.n
		}
	}
	return n
}

// writable reports whether any device gets blocks.
func (l *freeList) writable() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.devices, func(d freePlaces) bool { return !d.off })
}
