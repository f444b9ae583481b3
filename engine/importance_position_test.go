package engine

import (
	"errors"
	"io"
	"testing"
	"time"

	"lcache/internal/importance/score"
	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/sample"
)

// TestInventedPositions: a position that no rank can be at moves no boundary, whatever a request says: epochs far ahead and far behind, ranks that the job does not have. What was observed stays. The next
// epoch's position does move it.
func TestInventedPositions(t *testing.T) {
	d, o := small(t, schedule.Job{World: 1, Epochs: 8})
	o.Patience, o.LateEpoch = 20*time.Second, time.Minute
	e := open(t, o)
	defer closeEngine(t, e)
	l := losing{d: d, e: e, world: 1}
	l.ask(t, 0, `{"method":"shade","batch_size":16,"cache":0,"lag":0,"seed":5}`)
	l.epochs(t, 0, 3)
	c := attach(t, e)
	defer c.Disconnected()
	get := func(at deliver.Position) {
		got, err := c.Get(t.Context(), []sample.Index{1, 2}, &at)
		if err != nil {
			t.Fatal(err)
		}
		c.Release(got.Lease)
	}
	for _, at := range []deliver.Position{{Epoch: 4}, {Epoch: 7}, {Epoch: 4_000_000_000}, {}, {Epoch: 1}, {Epoch: 3, Rank: 1}, {Epoch: 3, Rank: 70_000}} {
		get(at)
	}
	for _, at := range []deliver.Position{{Epoch: 8}, {Epoch: 4_000_000_000}} {
		if _, err := c.ChunkAt(t.Context(), at); !errors.Is(err, io.EOF) && !isArgument(err) {
			t.Errorf("%+v, beyond the job's end: %v", at, err)
		}
	}
	if _, err := c.ChunkAt(t.Context(), deliver.Position{Epoch: 3, Rank: 1}); !isArgument(err) {
		t.Errorf("rank 1 of a world of one: %v", err)
	}
	e.EndEpoch(0, 9, score.Progress{Epoch: 2}, Unsent{})
	before := e.Status().Jobs[0].Importance.Observations
	e.Observe(0, score.Observation{Kind: score.Losses, Epoch: 2, Batch: 1000, Index: []sample.Index{1}, Loss: []float32{1}})
	waitFor(t, "the worker has looked", func() bool { return e.Status().Jobs[0].Importance.Observations > before })
	if s := e.Status().Jobs[0].Importance; s.Epoch != 2 || s.LastObservedEpoch != 2 || s.State != "active" {
		t.Errorf("%+v", s)
	}
	get(deliver.Position{Epoch: 3})
	get(deliver.Position{Epoch: 2}) // of a worker of the last epoch's loader
	waitFor(t, "the next epoch begins", func() bool { return e.Status().Jobs[0].Importance.Epoch == 3 })
	if _, err := l.train(c, 3, 0, 0); err != nil {
		t.Error(err)
	}
}

func isArgument(err error) bool {
	refused := new(deliver.ArgumentError)
	return errors.As(err, &refused)
}
