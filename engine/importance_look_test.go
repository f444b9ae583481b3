package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"lcache/internal/importance/score"
	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/internal/serve/status"
	"lcache/sample"
)

// looking is a job of two ranks whose unstable samples are known after two epochs.
func looking(t *testing.T, change func(*Options)) losing {
	t.Helper()
	d, o := small(t, schedule.Job{World: 2})
	o.Patience, o.Memory = 20*time.Second, 60<<20
	change(&o)
	e := open(t, o)
	t.Cleanup(func() { closeEngine(t, e) })
	l := losing{d: d, e: e, world: 2}
	for rank := range l.world {
		l.ask(t, rank, fmt.Sprintf(`{"method":"impact","batch_size":16,"world_size":2,"cache":%d,"lag":0,"seed":5,"params":{"warmup":2,"s_share":0.5}}`, d.total/2))
	}
	return l
}

// look observes the samples that a rank evaluates again, with one loss for all of them, and returns them.
func (l losing) look(t *testing.T, rank, epoch int, loss float32) []sample.Index {
	t.Helper()
	mine, err := l.e.Unstable(l.job, rank)
	if err != nil {
		t.Fatal(err)
	}
	if len(mine) == 0 {
		return nil
	}
	o := score.Observation{Kind: score.Reevaluated, Rank: uint16(rank), Epoch: uint32(epoch), Index: mine, Loss: slices.Repeat([]float32{loss}, len(mine)), Node: sample.None}
	l.e.Observe(l.job, o)
	return mine
}

// TestReevaluate: each rank gets its part of the unstable samples once these are known, and its observations determine the next order. An observation after the boundary does not count for that order.
func TestReevaluate(t *testing.T) {
	l := looking(t, func(*Options) {})
	for rank := range l.world {
		if got := l.look(t, rank, 0, 1); len(got) > 0 {
			t.Errorf("rank %d looks at %d samples before anything is known", rank, len(got))
		}
	}
	l.epochs(t, 0, 3)
	s := l.e.Status().Jobs[0].Importance
	if want := len(l.d.bytes) / 4; s.SSize < want-1 || s.SSize > want+1 || s.ReevaluationsMissed != 0 {
		t.Fatalf("S has %d of %d samples, %d looks were missed", s.SSize, len(l.d.bytes), s.ReevaluationsMissed)
	}
	all := [][]sample.Index{l.look(t, 0, 2, 1000), l.look(t, 1, 2, 1000)}
	seen := map[sample.Index]bool{}
	for k := range s.SSize {
		seen[all[k%2][k/2]] = true
	}
	if len(seen) != s.SSize || len(all[0])+len(all[1]) != s.SSize || !slices.IsSorted(all[0]) {
		t.Fatalf("the ranks look at %d and %d samples, %d in all of %d", len(all[0]), len(all[1]), len(seen), s.SSize)
	}
	order := slices.Concat(l.epochs(t, 3, 4)...)
	drawn := 0
	for _, i := range order {
		if seen[i] {
			drawn++
		}
	}
	if expected := 0.8 * float64(s.SSize); float64(drawn) < expected { // their ranks are the upper quarter: 7/8 of them on average
		t.Errorf("%d of %d samples with the greatest loss are in the next epoch, want %v at least", drawn, s.SSize, expected)
	}
	if s := l.e.Status().Jobs[0].Importance; s.ReevaluationsMissed != 0 || s.Refused != (status.Refused{}) {
		t.Errorf("%d looks were missed, refused %+v", s.ReevaluationsMissed, s.Refused)
	}
	l.look(t, 1, 2, 1000) // of the boundary that was made
	l.epochs(t, 4, 5)
	if s := l.e.Status().Jobs[0].Importance; s.ReevaluationsMissed != 1 {
		t.Errorf("%d looks were missed, want 1", s.ReevaluationsMissed)
	}
	if _, err := l.e.Unstable(7, 0); err == nil {
		t.Error("got unstable samples of a job that does not exist")
	}
	for _, rank := range []int{-1, 2, 1 << 30} {
		if got, err := l.e.Unstable(0, rank); err == nil {
			t.Errorf("rank %d of a world of 2 has %d samples", rank, len(got))
		}
	}
}

// TestReevaluateHasADeadline: a rank that does not report its evaluation delays the others for a limited time. The epoch then begins with the known values, before the requests of the others time out.
func TestReevaluateHasADeadline(t *testing.T) {
	for _, c := range []struct{ late, timeout, least, most time.Duration }{
		{50 * time.Millisecond, time.Minute, 300 * time.Millisecond, 5 * time.Second}, // six times LateEpoch
		{time.Second, 3 * time.Second, 2500 * time.Millisecond, 3 * time.Second},
	} {
		l := looking(t, func(o *Options) { o.LateEpoch, o.Timeout = c.late, c.timeout })
		l.epochs(t, 0, 3)
		if len(l.look(t, 1, 2, 10)) == 0 {
			t.Fatal("nothing to look at")
		}
		client := attach(t, l.e)
		began := time.Now()
		got, err := client.ChunkAt(context.Background(), deliver.Position{Epoch: 3})
		took := time.Since(began)
		var timeout *deliver.TimeoutError
		if errors.As(err, &timeout) || took < c.least || took > c.most {
			t.Errorf("LateEpoch %v, Timeout %v: epoch 3 began after %v: %v", c.late, c.timeout, took, err)
		}
		if err == nil {
			client.Release(got.Lease)
		}
		client.Disconnected()
		if s := l.e.Status().Jobs[0].Importance; s.ReevaluationsMissed != 0 {
			t.Errorf("%d looks were missed, and one rank looked", s.ReevaluationsMissed)
		}
	}
}
