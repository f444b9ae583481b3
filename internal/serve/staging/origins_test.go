package staging

import (
	"testing"

	"lcache/sample"
)

// TestOriginsStayUntilTaken: the first Take after a Publish returns the furthest origin since the Take before,
// wherever the bytes are by then. The next Take returns the log.
func TestOriginsStayUntilTaken(t *testing.T) {
	const samples = 40
	s := newStaging(t, Options{Samples: samples, Slots: 1, SlotBytes: 4096})
	slot, _ := s.Acquire(Segment{Log: 1})
	s.Ready(slot)
	got := func(index sample.Index) sample.Origin {
		t.Helper()
		h, absent, out := take(s, index)
		if absent > 0 {
			t.Fatalf("sample %d is absent", index)
		}
		s.Release(&h)
		return out[0].From
	}
	for first := range sample.Origins {
		for second := range sample.Origins {
			for i := range sample.Index(samples) { // in one word, and in the next ones
				s.Publish(i, 64, first)
				s.Publish(i, 128, second)
			}
			for i := range sample.Index(samples) {
				if from, again := got(i), got(i); from != max(first, second) || again != sample.FromLog {
					t.Fatalf("sample %d of origin %d and then %d: taken with %d and then %d", i, first, second, from, again)
				}
			}
		}
	}
}
