package object

import "time"

// Limits of the requests in flight. The first number of requests is such that startBytes are under way.
const (
	fewest, most              = 8, 256
	startLow, startHigh       = 16, 64
	startBytes                = 50 << 20
	inFlight                  = 64 << 20
	window                    = time.Second // how long a rate is measured
	growth                    = 8           // a step is the growth-th part
	worthwhile                = 1.03        // a rate must rise by this factor for the next step
	halvingPause              = time.Second
	rangeBytes          int64 = 8 << 20 // of one request
)

// control chooses how many requests are under way. It grows while more of them bring more bytes, and halves when the store is slow or
// asks for fewer. It is a value: the next one follows from what was seen.
type control struct {
	limit  int
	rate   float64       // bytes a second, of the last window; 0: not known
	halved time.Duration // when the limit was last halved, since the reader began; below 0: never
}

// startControl is the first control of a source whose objects have this median size, in bytes; 0: not known.
func startControl(median int64) control {
	n := int64(startHigh)
	if median > 0 {
		n = startBytes / median
	}
	return control{limit: int(min(max(n, startLow), startHigh)), halved: -1}
}

// after is the control after a window in which this many bytes came. full: all requests that the limit allows were under way at some time.
// Where they were not, more of them would have changed nothing.
func (c control) after(took time.Duration, bytes int64, full bool) control {
	rate := float64(bytes) / took.Seconds()
	if full && rate >= worthwhile*c.rate {
		c.limit = min(c.limit+max(1, c.limit/growth), most)
	}
	c.rate = rate
	return c
}

// slowed is the control after the store was slow at a time. Many requests fail together, and count as one.
func (c control) slowed(now time.Duration) control {
	if c.halved >= 0 && now-c.halved < halvingPause {
		return c
	}
	// The rate to come is compared with nothing: after trouble it may rise slowly.
	return control{limit: max(c.limit/2, fewest), halved: now}
}
