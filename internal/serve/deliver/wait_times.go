package deliver

import (
	"math"
	"sort"
	"sync/atomic"
	"time"
)

// WaitTimes is a histogram of the time from a request to its answer. It counts in two sets of buckets: classic ones, with the bounds of WaitBounds, and
// eight of equal ratio for each power of two, which Prometheus calls a native histogram of schema 3. The zero value is ready for use; an observation is three
// atomic additions.
type WaitTimes struct {
	sum     atomic.Int64 // nanoseconds
	classic [len(WaitBounds)]atomic.Int64
	native  [lastWait - firstWait + 1]atomic.Int64
}

// WaitBounds are the upper bounds of the classic buckets, in seconds. Longer waits are in none of them.
var WaitBounds = [...]float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}

// Native bucket i has the waits over 2^((i-1)/8) and up to 2^(i/8) seconds. The first and the last bucket also have everything below and above.
const (
	perDoubling = 8
	firstWait   = -20 * perDoubling // about a microsecond
	lastWait    = 9 * perDoubling   // about eight minutes; a request ends after one
)

// mantissas are the mantissa bits of the bounds of native buckets in [1, 2): 2^(i/8).
var mantissas = func() (m [perDoubling]uint64) {
	for i := range m {
		m[i] = math.Float64bits(math.Exp2(float64(i)/perDoubling)) & mantissaMask
	}
	return m
}()

// An IEEE 754 double: mantissa and exponent.
const (
	mantissaMask = 1<<52 - 1
	exponentBias = 1023
)

// classicOf is the first classic bucket that each native bucket has waits of. Native buckets are narrow: their other waits are in the next classic bucket.
var classicOf = func() (first [lastWait - firstWait + 1]uint8) {
	for i := range first {
		above := math.Exp2(float64(i+firstWait-1) / perDoubling)
		first[i] = uint8(sort.Search(len(WaitBounds), func(k int) bool { return WaitBounds[k] > above }))
	}
	first[0] = 0
	return first
}()

// observe counts one wait.
func (w *WaitTimes) observe(d time.Duration) {
	d = max(d, 0)
	seconds := float64(d) / 1e9
	native := nativeBucket(seconds) - firstWait
	w.sum.Add(int64(d))
	w.native[native].Add(1)
	k := int(classicOf[native])
	for k < len(WaitBounds) && seconds > WaitBounds[k] {
		k++
	}
	if k < len(w.classic) {
		w.classic[k].Add(1)
	}
}

// nativeBucket returns the number of a wait's native bucket.
func nativeBucket(seconds float64) int {
	bits := math.Float64bits(seconds)
	mantissa, bucket := bits&mantissaMask, (int(bits>>52)-exponentBias)*perDoubling
	for _, bound := range mantissas {
		if mantissa > bound {
			bucket++
		}
	}
	return min(max(bucket, firstWait), lastWait)
}

// Waits is a snapshot of WaitTimes.
type Waits struct {
	Count      int64
	SumSeconds float64
	Bounds     []float64 // in seconds
	Classic    []int64   // number of waits up to each of Bounds
	First      int       // number of the first native bucket in Native
	Native     []int64   // number of waits in each native bucket, without the empty ones at both ends
}

// Read returns the counts now. Count may be a little larger than the sum of the classic buckets, while an observation is being made.
func (w *WaitTimes) Read() Waits {
	s := Waits{Bounds: WaitBounds[:], Classic: make([]int64, len(w.classic)), SumSeconds: time.Duration(w.sum.Load()).Seconds()}
	total := int64(0)
	for i := range w.classic { // before the native buckets, which are counted first
		total += w.classic[i].Load()
		s.Classic[i] = total
	}
	last := -1
	for i := range w.native {
		n := w.native[i].Load()
		if n == 0 && s.Count == 0 {
			continue
		}
		if s.Count == 0 {
			s.First = i + firstWait
		}
		s.Count += n
		if s.Native = append(s.Native, n); n > 0 {
			last = len(s.Native)
		}
	}
	s.Native = s.Native[:max(last, 0)]
	return s
}
