package engine

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"lcache/internal/importance/score"
	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/internal/testenv"
	"lcache/sample"
)

// TestSplitIsLaidOut: with lag "split" the known part of an epoch's order is laid out while the previous epoch is read. When the epoch begins, its log is ready, and delivers
// its samples in order. The prefetcher reads the samples that were drawn when the epoch began. A restarted server continues in the same order.
func TestSplitIsLaidOut(t *testing.T) {
	for _, method := range testenv.Some([]string{`"method":"impact","params":{"s_share":0,"warmup":1}`, `"method":"shade"`}, 1) {
		t.Run(method, func(t *testing.T) {
			d, o := small(t, schedule.Job{World: 1})
			o.Patience, o.Memory = 20*time.Second, 60<<20
			e := open(t, o)
			text := `{"batch_size":16,"cache":4000000,"seed":5,"lag":"split",` + method + `}`
			l := losing{d: d, e: e, world: 1}
			l.ask(t, 0, text)
			c := attach(t, e)
			orders := map[int][]sample.Index{}
			for epoch := range 7 {
				began := e.Status().Jobs[0]
				orders[epoch] = l.watched(t, c, epoch)
				now := e.Status().Jobs[0]
				logs, _, _ := e.nowLogfiles()
				cur, tgt := logs.read, logs.target
				t.Logf("epoch %d: %d samples, %d high hits, %d lay in memory; the logs are of epochs %d and %d", epoch, len(orders[epoch]),
					now.Importance.HHits-began.Importance.HHits, now.PrefetchedSamples-began.PrefetchedSamples, cur, tgt)
				if epoch < 3 {
					continue
				}
				if cur != epoch && cur != epoch+1 || tgt >= 0 && tgt != cur+1 {
					t.Errorf("epoch %d was read while the logs were of epochs %d and %d", epoch, cur, tgt)
				}
				if late := int64(len(orders[epoch])) - (now.PrefetchedSamples - began.PrefetchedSamples); late > int64(len(orders[epoch])/5) {
					t.Errorf("epoch %d: %d of %d samples were not in memory when they were requested, want at most a fifth", epoch, late, len(orders[epoch]))
				}
			}
			c.Disconnected()
			noSource(t, e)
			closeEngine(t, e)

			o.Patience = 20 * time.Second
			e = open(t, o)
			defer closeEngine(t, e)
			l.e = e
			l.ask(t, 0, text)
			c = attach(t, e)
			defer c.Disconnected()
			if order := l.watched(t, c, 6); !slices.Equal(order, orders[6]) {
				t.Errorf("after a restart epoch 6 has another order")
			}
			logsBecome(t, e, "after a restart the log is of epoch 6 or 7", func(l logfiles) bool { return l.read == 6 || l.read == 7 })
			if s := e.Status().Jobs[0]; s.Divergences != 0 {
				t.Errorf("after a restart: %d divergences", s.Divergences)
			}
			noSource(t, e)
		})
	}
}

// watched reads an epoch with a pause after each batch, as training has, and observes it. The pause ends when the next batch is in memory, so that there is time to read ahead on a
// slow machine, too.
func (l losing) watched(t *testing.T, c *deliver.Client, epoch int) (order []sample.Index) {
	t.Helper()
	s := l.e.lookUp(l.job).schedule
	absent := func(index sample.Index) bool { return len(l.d.bytes[index]) > 0 && !l.e.staging.Present(index) }
	for b := 0; ; b++ {
		got, err := c.ChunkAt(context.Background(), deliver.Position{Job: l.job, Epoch: epoch, Batch: b})
		if errors.Is(err, io.EOF) {
			return order
		}
		if err != nil {
			t.Fatalf("epoch %d batch %d: %v", epoch, b, err)
		}
		if err := l.d.check(l.e, got); err != nil {
			t.Fatalf("epoch %d batch %d: %v", epoch, b, err)
		}
		seen := score.Observation{Kind: score.Losses, Epoch: uint32(epoch), Batch: uint32(b), Index: slices.Clone(got.Indices), Node: sample.None}
		c.Release(got.Lease)
		for _, i := range seen.Index {
			seen.Loss = append(seen.Loss, loss(i, epoch))
		}
		l.e.Observe(l.job, seen)
		order = append(order, seen.Index...)
		time.Sleep(5 * time.Millisecond) // the model computes
		next, _, err := s.Chunk(context.Background(), deliver.Position{Epoch: epoch, Batch: b + 1})
		if err != nil {
			t.Fatalf("epoch %d batch %d: %v", epoch, b+1, err)
		}
		for until := time.Now().Add(100 * time.Millisecond); slices.ContainsFunc(next, absent) && time.Now().Before(until); {
			time.Sleep(time.Millisecond)
		}
	}
}
