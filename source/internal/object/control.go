package object

import "time"

// Limits of requests in flight. The first limit is such that startBytes are in flight.
const (
	fewest, most              = 8, 256
	startLow, startHigh       = 16, 64
	startBytes                = 50 << 20
	inFlight                  = 64 << 20
	window                    = time.Second // time over which a rate is measured
	growth                    = 8           // a step grows the limit by 1/growth
	worthwhile                = 1.03        // minimum factor by which the rate must rise to justify another step
	halvingPause              = time.Second
	rangeBytes          int64 = 8 << 20 // bytes of one request
)

// control chooses the limit of requests in flight. The limit grows while more requests bring more bytes, and halves
// if the store is slow or asks for fewer requests. A control is a value: the next one is computed from the
// measurements.
type control struct {
	limit  int
	rate   float64       // bytes per second in the last window; 0: unknown
	halved time.Duration // when the limit was last halved, since the start of the reader; negative: never
}

// startControl returns the first control for a source whose objects have this median size in bytes; 0: unknown.
func startControl(median int64) control {
	n := int64(startHigh)
	if median > 0 {
		n = startBytes / median
	}
	return control{limit: int(min(max(n, startLow), startHigh)), halved: -1}
}

// after returns the control after a window in which bytes arrived. full says that the limit was reached at some time.
// If it was not, a higher limit would have changed nothing.
func (c control) after(took time.Duration, bytes int64, full bool) control {
	rate := float64(bytes) / took.Seconds()
	if full && rate >= worthwhile*c.rate {
		c.limit = min(c.limit+max(1, c.limit/growth), most)
	}
	c.rate = rate
	return c
}

// slowed returns the control after the store was slow. Many requests fail together, and count as one.
func (c control) slowed(now time.Duration) control {
	if c.halved >= 0 && now-c.halved < halvingPause {
		return c
	}
	// The next rate is not compared with the last one, because it may rise slowly after a problem.
	return control{limit: max(c.limit/2, fewest), halved: now}
}
