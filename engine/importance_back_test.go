package engine

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"lcache/internal/importance/score"
	"lcache/internal/serve/schedule"
	"lcache/sample"
)

// TestJoinedAndLate: a training that begins again goes back to its first epoch, even if one of its ranks has joined and requested nothing yet. That rank does not count as requesting the epoch of the
// previous training.
func TestJoinedAndLate(t *testing.T) {
	d, o := small(t, schedule.Job{World: 2})
	var later atomic.Int64 // nanoseconds that the clock is ahead
	o.Patience, o.LateEpoch = 20*time.Second, 50*time.Millisecond
	o.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	e := open(t, o)
	defer closeEngine(t, e)
	l := losing{d: d, e: e, world: 2}
	text := low(2, 0)
	for rank := range l.world {
		l.ask(t, rank, text)
	}
	for epoch := range 4 {
		l.begin(t, epoch)
		l.steps(t, epoch, 0)
	}
	for rank := range l.world {
		if _, err := e.Importance(t.Context(), 0, rank, "the next training", []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	order := func(rank int) string {
		page, _, err := e.OrderPage(t.Context(), 0, 0, rank, 0, 8)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(page)
	}
	first := order(0)
	for turn := range uint32(2) {
		later.Add(int64(time.Minute))
		observed := e.Status().Jobs[0].Importance.Observations
		e.Observe(0, score.Observation{Kind: score.Losses, Batch: turn, Index: []sample.Index{1}, Loss: []float32{1}})
		waitFor(t, "the worker takes its turn at the later time", func() bool { return e.Status().Jobs[0].Importance.Observations > observed })
		if s := e.Status().Jobs[0].Importance; s.Epoch != 0 {
			t.Fatalf("the state is in epoch %d; one rank reads epoch 0, the other one has asked for nothing", s.Epoch)
		}
		if again := order(0); again != first {
			t.Fatalf("the order of epoch 0 is %s, and was %s", again, first)
		}
	}
	order(1)
	if s := e.Status().Jobs[0].Importance; s.Epoch != 0 {
		t.Errorf("the state is in epoch %d when both ranks have asked for epoch 0", s.Epoch)
	}
}

// TestBackTwice: a job whose state has forgotten all, since it went back to an epoch whose order was not kept, goes back once more: the state goes with it. Once it stayed, and the job read the order that the
// epoch had had before.
func TestBackTwice(t *testing.T) {
	d, o := small(t, schedule.Job{World: 1})
	o.Patience, o.LateEpoch = 20*time.Second, 50*time.Millisecond
	e := open(t, o)
	defer closeEngine(t, e)
	l := losing{d: d, e: e, world: 1}
	l.ask(t, 0, low(1, 0))
	l.begin(t, 0)
	l.steps(t, 0, 0)
	for _, epoch := range []int{2, 1, 0} { // epoch 1 was left out
		if _, _, err := e.OrderPage(t.Context(), 0, epoch, 0, 0, 8); err != nil {
			t.Fatal(err)
		}
		waitFor(t, fmt.Sprintf("the state goes to epoch %d", epoch), func() bool { return e.Status().Jobs[0].Importance.Epoch == epoch })
	}
}
