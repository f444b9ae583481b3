package engine

import (
	"fmt"
	"testing"
	"time"

	"lcache/internal/importance/score"
	"lcache/internal/importance/state"
	"lcache/sample"
)

// TestJobWithoutImportance: in a job without importance, an observation and the end of an epoch allocate nothing, and a request does not wait for another job's session.
func TestJobWithoutImportance(t *testing.T) {
	j := samplerJob(4, 16, 1, false)
	d, o := small(t, j)
	o.Memory, o.Patience = 32<<20, 20*time.Second
	e := open(t, o)
	defer closeEngine(t, e)
	seen := score.Observation{Kind: score.Losses, Index: []sample.Index{1}, Loss: []float32{1}, Node: sample.None}
	allocated := testing.AllocsPerRun(100, func() {
		e.Observe(0, seen)
		e.EndEpoch(0, 0, score.Progress{Epoch: 1}, Unsent{Dropped: 1})
	})
	if allocated != 0 {
		t.Errorf("%v allocations for importance in a job without", allocated)
	}
	l := losing{d: d, e: e, world: 1}
	var err error
	if l.job, err = e.Join("with importance"); err != nil {
		t.Fatal(err)
	}
	l.ask(t, 0, fmt.Sprintf(shade, 0))
	c := attach(t, e)
	defer c.Disconnected()
	done := make(chan error, 1)
	err = e.viewState(l.job, func(*state.State) { // the other job's worker has to wait
		go func() {
			got, err := c.Chunk(t.Context(), 0, 0, 0)
			if err == nil {
				c.Release(got.Lease)
			}
			e.Observe(0, seen)
			e.EndEpoch(0, 0, score.Progress{}, Unsent{})
			done <- err
		}()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(30 * time.Second):
			t.Error("a request waits for another job's importance")
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// TestStatusWaitsForNoImportance: while the memory of a job's importance is locked, the status document is made, and a request of another job is answered.
func TestStatusWaitsForNoImportance(t *testing.T) {
	j := samplerJob(4, 16, 1, false)
	d, o := small(t, j)
	o.Memory, o.Patience = 32<<20, 20*time.Second
	e := open(t, o)
	defer closeEngine(t, e)
	l := losing{d: d, e: e, world: 1}
	var err error
	if l.job, err = e.Join("with importance"); err != nil {
		t.Fatal(err)
	}
	l.ask(t, 0, fmt.Sprintf(shade, 0))
	c := attach(t, e)
	defer c.Disconnected()
	done := make(chan error, 1)
	e.lookUp(l.job).importance.Load().high.Observe([]sample.Index{1}, func(sample.Index) (float64, bool) { // the lock is held
		go func() {
			e.Status()
			got, err := c.Chunk(t.Context(), 0, 0, 0)
			if err == nil {
				c.Release(got.Lease)
			}
			done <- err
		}()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(30 * time.Second):
			t.Error("the status document, or a request after it, waits for a job's importance")
		}
		return 0, false
	})
}
