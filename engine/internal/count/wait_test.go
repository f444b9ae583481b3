package count

import (
	"testing"
	"time"
)

// TestConsumerWait: waits for a slot count, and waits for memory count where the window serves no rank. A wait that goes on counts as well.
func TestConsumerWait(t *testing.T) {
	var w ConsumerWait
	at := func(seconds int) time.Time { return time.Unix(int64(1000+seconds), 0) }
	for _, step := range []struct {
		note             func()
		now              int
		counted, ignored int // seconds in all if waits for memory count now, and if they do not
		slot             int
	}{
		{func() {}, 0, 0, 0, 0},
		{func() { w.Slot(at(0), true) }, 3, 3, 3, 3},
		{func() { w.Slot(at(5), true) }, 7, 7, 7, 7},
		{func() { w.Slot(at(10), false) }, 15, 10, 10, 0},
		{func() { w.Slot(at(20), false) }, 25, 10, 10, 0},
		{func() { w.Memory(at(100), true, true) }, 110, 20, 10, 0},
		{func() { w.Memory(at(130), false, true) }, 140, 40, 40, 0},
		{func() { w.Memory(at(200), true, true) }, 205, 45, 40, 0},
		{func() { w.Memory(at(210), false, false) }, 220, 40, 40, 0},
	} {
		step.note()
		for what, got := range map[string][2]time.Duration{
			"with memory":    {w.Total(at(step.now), true), time.Duration(step.counted)},
			"without memory": {w.Total(at(step.now), false), time.Duration(step.ignored)},
			"for a slot":     {w.ForSlot(at(step.now)), time.Duration(step.slot)},
		} {
			if got[0] != got[1]*time.Second {
				t.Errorf("second %d, %s: %s, want %d s", step.now, what, got[0], got[1])
			}
		}
	}
}
