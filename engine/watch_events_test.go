package engine

import (
	"strings"
	"testing"
	"time"

	"lcache/internal/testenv"
)

// TestEvents: the status document has the server's start, and a job's coming and going.
func TestEvents(t *testing.T) {
	testenv.AnyIO(t)
	d, o := small(t, samplerJob(3, 16, 1, false))
	o.LookForEvents, o.LateEpoch = time.Millisecond, 50*time.Millisecond
	e := open(t, o)
	defer closeEngine(t, e)
	waitFor(t, "the server's start is an event", func() bool { return hasEvent(e, "started", "the server started: lcache ") })
	j := d.join(t, e, "run-7")
	waitFor(t, "the job's coming is an event", func() bool { return hasEvent(e, "job", "job run-7 came") })
	j.leave()
	waitFor(t, "the job's going is an event", func() bool { return hasEvent(e, "job", "job run-7 went") })
}

func hasEvent(e *Engine, kind, begins string) bool {
	for _, event := range e.Status().Events {
		if event.Kind == kind && strings.HasPrefix(event.Text, begins) {
			return true
		}
	}
	return false
}

// TestBatchWait: each answered request is one wait, and waits add up to no more than the time of the requests.
func TestBatchWait(t *testing.T) {
	testenv.AnyIO(t)
	j := samplerJob(1, 16, 1, false)
	d, o := small(t, j)
	e := open(t, o)
	defer closeEngine(t, e)
	began := time.Now()
	d.readEpochs(t, e, j, 0, 1)
	took := time.Since(began).Seconds()
	s := e.Status()
	w := s.Totals.BatchWait
	sum := int64(0)
	for _, n := range w.Native {
		sum += n
	}
	if w.Count != s.Totals.ChunksDelivered || sum != w.Count || w.Count == 0 {
		t.Errorf("%d waits, %d in the native buckets, for %d batches", w.Count, sum, s.Totals.ChunksDelivered)
	}
	if w.SumSeconds <= 0 || w.SumSeconds > took {
		t.Errorf("waits of %v s together, in %v s", w.SumSeconds, took)
	}
}
