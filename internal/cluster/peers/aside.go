package peers

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A peer that has sent several samples with wrong bytes within a minute is put aside: it is asked for nothing for a minute. Its memory or its network
// card flips bits, and each wrong sample costs two requests.
const (
	wrongUntilAside = 3
	wrongWithin     = time.Minute
	asideFor        = time.Minute
)

// aside remembers, by address, which peers sent wrong bytes lately, and which of them are put aside.
type aside struct {
	until atomic.Pointer[map[string]time.Time] // of the peers that are put aside; nil: none. The map is not changed

	mu  sync.Mutex             // guards what follows, and changes of until
	was map[string][]time.Time // when a peer sent wrong bytes, within wrongWithin
}

// wrong notes that a peer has sent a sample with wrong bytes. It reports whether the peer is put aside by this one.
func (a *aside) wrong(address string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.is(address, now) { // requests that were under way
		return false
	}
	for of, times := range a.was {
		times = slices.DeleteFunc(times, func(at time.Time) bool { return now.Sub(at) >= wrongWithin })
		if a.was[of] = times; len(times) == 0 {
			delete(a.was, of)
		}
	}
	if a.was == nil {
		a.was = map[string][]time.Time{}
	}
	a.was[address] = append(a.was[address], now)
	if len(a.was[address]) < wrongUntilAside {
		return false
	}
	delete(a.was, address)
	until := map[string]time.Time{address: now.Add(asideFor)}
	if others := a.until.Load(); others != nil {
		for of, end := range *others {
			if now.Before(end) {
				until[of] = end
			}
		}
	}
	a.until.Store(&until)
	return true
}

// is reports whether a peer is put aside.
func (a *aside) is(address string, now time.Time) bool {
	until := a.until.Load()
	return until != nil && now.Before((*until)[address])
}

// Wrong notes that a peer has sent a sample with wrong bytes. After three in a minute, Holder does not name it for a minute.
func (d *Dataset) Wrong(address string) {
	if d.aside.wrong(address, d.o.Now()) {
		d.o.Logger.Warn("a machine of the cluster has sent wrong bytes for several samples within a minute, so it is asked for nothing for a minute; check its memory and its network",
			"peer", address, "samples", wrongUntilAside)
	}
}

// IsAside reports whether a peer is asked for nothing, because it sent wrong bytes.
func (d *Dataset) IsAside(address string) bool {
	return d.aside.until.Load() != nil && d.aside.is(address, d.o.Now())
}
