package count

import "time"

// A ConsumerWait measures how long nothing more could be read before a client had consumed batches: the scan had no slot, or the prefetcher no memory.
// The caller's lock guards it. The zero value is ready for use.
type ConsumerWait struct {
	slot, memory time.Time     // since when the scan waits for a slot, and the prefetcher for memory; zero: it does not wait
	over         time.Duration // duration of the waits that are over
}

// Slot notes whether the scan waits for a slot.
func (w *ConsumerWait) Slot(now time.Time, waits bool) { w.note(&w.slot, now, waits, true) }

// Memory notes whether the prefetcher waits for memory. counts is false while the window serves a rank: then this is not a wait for a client.
func (w *ConsumerWait) Memory(now time.Time, waits, counts bool) {
	w.note(&w.memory, now, waits, counts)
}

func (w *ConsumerWait) note(since *time.Time, now time.Time, waits, counts bool) {
	switch {
	case waits && since.IsZero():
		*since = now
	case !waits && !since.IsZero():
		if counts {
			w.over += now.Sub(*since)
		}
		*since = time.Time{}
	}
}

// ForSlot returns how long the scan has waited for a slot; 0: it does not wait.
func (w *ConsumerWait) ForSlot(now time.Time) time.Duration {
	if w.slot.IsZero() {
		return 0
	}
	return now.Sub(w.slot)
}

// Total returns the sum of all waits. counts is as in Memory.
func (w *ConsumerWait) Total(now time.Time, counts bool) time.Duration {
	total := w.over + w.ForSlot(now)
	if counts && !w.memory.IsZero() {
		total += now.Sub(w.memory)
	}
	return total
}
