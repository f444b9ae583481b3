package deliver

import (
	"math"
	"sync"
	"testing"
	"time"
)

// TestWaitTimes compares the buckets with their definitions, for waits at, just below and just above each bound.
func TestWaitTimes(t *testing.T) {
	waits := []time.Duration{0, -1, 1, time.Hour}
	for _, bound := range WaitBounds {
		at := time.Duration(math.Round(bound * 1e9))
		waits = append(waits, at-1, at, at+1)
	}
	for i := firstWait; i < lastWait; i++ {
		waits = append(waits, time.Duration(math.Exp2(float64(i)/perDoubling)*1e9))
	}
	var w WaitTimes
	classic, native, sum := make([]int64, len(WaitBounds)), map[int]int64{}, 0.0
	for _, d := range waits {
		w.observe(d)
		seconds := max(float64(d)/1e9, 0)
		sum += seconds
		for k, bound := range WaitBounds {
			if seconds <= bound {
				classic[k]++
			}
		}
		bucket := firstWait
		for bucket < lastWait && seconds > math.Exp2(float64(bucket)/perDoubling) {
			bucket++
		}
		native[bucket]++
	}
	got := w.Read()
	if got.Count != int64(len(waits)) || math.Abs(got.SumSeconds-sum) > 1e-6 {
		t.Errorf("%d waits of %v s, want %d of %v s", got.Count, got.SumSeconds, len(waits), sum)
	}
	for k, n := range got.Classic {
		if n != classic[k] {
			t.Errorf("%d waits up to %v s, want %d", n, WaitBounds[k], classic[k])
		}
	}
	for k, n := range got.Native {
		if i := got.First + k; n != native[i] {
			t.Errorf("%d waits in bucket %d, up to %v s; want %d", n, i, math.Exp2(float64(i)/perDoubling), native[i])
		}
	}
	if got.First != firstWait || len(got.Native) != lastWait-firstWait+1 {
		t.Errorf("native buckets from %d, %d of them", got.First, len(got.Native))
	}
}

func TestWaitTimesAreTrimmed(t *testing.T) {
	var w WaitTimes
	if got := w.Read(); got.Count != 0 || len(got.Native) != 0 || len(got.Classic) != len(WaitBounds) {
		t.Errorf("without a wait: %+v", got)
	}
	w.observe(time.Second)
	if got := w.Read(); got.First != 0 || len(got.Native) != 1 || got.Native[0] != 1 {
		t.Errorf("one second is in bucket 0 alone; got %+v", got)
	}
}

// TestWaitTimesAtOnce: concurrent observations are all counted, and a reader never sees more classic counts than waits.
func TestWaitTimesAtOnce(t *testing.T) {
	var w WaitTimes
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 10_000 {
				w.observe(time.Duration(i) * time.Microsecond)
			}
		})
	}
	for range 100 {
		if got := w.Read(); got.Classic[len(got.Classic)-1] > got.Count {
			t.Fatalf("%d waits in classic buckets, of %d", got.Classic[len(got.Classic)-1], got.Count)
		}
	}
	all.Wait()
	if got := w.Read(); got.Count != 40_000 || got.Classic[len(got.Classic)-1] != 40_000 {
		t.Errorf("%d waits, want 40000", got.Count)
	}
}

func BenchmarkWaitTimes(b *testing.B) {
	var w WaitTimes
	for b.Loop() {
		w.observe(345 * time.Microsecond)
	}
}
