package count

import (
	"reflect"
	"testing"
	"time"

	"lcache/internal/serve/status"
	"lcache/internal/verdict"
)

// TestBoundBy: the verdict depends on the counters of the period. The stories of package verdict test which facts lead to which verdict.
func TestBoundBy(t *testing.T) {
	p := period{seconds: 100, samples: 1000, misses: 20, stall: 30, idle: 60, loop: loopTotals{wait: 30, loop: 99, decode: 5, workers: 2}}
	want := verdict.Facts{Delivered: 1000, Seconds: 100, Samples: 1000, Misses: 20, Stall: 30, Idle: 60, LoopSeconds: 99, LoopWait: 30}
	if got := p.facts(); got != want {
		t.Errorf("facts %+v, want %+v", got, want)
	}
	if got := p.boundBy(); got != "disk" {
		t.Errorf("bound by %s, want disk: the loop waits, batches do not lie ready, and the source is hardly read", got)
	}
	p.loop = loopTotals{}
	if got := p.boundBy(); got != "consumer" {
		t.Errorf("bound by %s, want consumer: nothing was reported, and more lay ready than was missing", got)
	}
	if got := (period{}).boundBy(); got != "unknown" {
		t.Errorf("bound by %s, want unknown: nothing was asked for", got)
	}
}

func TestPeriod(t *testing.T) {
	then := Totals{At: time.Unix(100, 0), Samples: 5, Misses: 2, Stall: time.Second, Idle: time.Second, loop: loopTotals{wait: 1, loop: 10, decode: 3}}
	now := Totals{At: time.Unix(130, 0), Samples: 11, Misses: 3, Stall: 3 * time.Second, Idle: 5 * time.Second, loop: loopTotals{wait: 4, loop: 30, decode: 5}}
	want := period{seconds: 30, samples: 6, misses: 1, stall: 2, idle: 4, loop: loopTotals{wait: 3, loop: 20, decode: 2}}
	if got := now.since(then); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestFigures: a document has the figures of the open epoch, or else of the epoch that was over last. Wear and bottleneck are of this epoch and the one before it.
func TestFigures(t *testing.T) {
	j := newJob()
	at := func(epoch int) Totals {
		return Totals{At: j.now, Source: int64(epoch) * 100, LogWrite: int64(epoch) * 1000, Samples: int64(epoch) * 10, Misses: int64(epoch) * 10, Stall: time.Duration(epoch) * 50 * time.Second}
	}
	for epoch := range 3 {
		ep := j.deliver(epoch, 0, 0, 1, 2)
		ep.Hits, ep.Misses = int64(epoch), 10
		var d status.Job
		j.now = j.now.Add(time.Minute)
		if j.Fill(&d, at(epoch+1)); d.HitsEpoch != int64(epoch) || d.MissesEpoch != 10 || d.SourceBytesEpoch != 100 || len(d.EpochsDone) != epoch {
			t.Errorf("in epoch %d: %d hits, %d misses, %d bytes of the source, %d epochs done", epoch, d.HitsEpoch, d.MissesEpoch, d.SourceBytesEpoch, len(d.EpochsDone))
		}
		for _, end := range j.Over([]Rank{{Asked: true, Epoch: epoch}}, j.batches) {
			done := j.Close(end, at(epoch+1), epoch > 0)
			wrote := int64(1000)
			if epoch == 0 {
				wrote = 0
			}
			if done.Seconds != 60 || done.SourceBytes != 100 || done.StallSeconds != 50 || done.LogWriteBytes != wrote {
				t.Errorf("epoch %d: %+v", epoch, done)
			}
		}
		d = status.Job{}
		if j.Fill(&d, at(epoch+1)); d.HitsEpoch != int64(epoch) || d.SourceBytesEpoch != 100 || len(d.EpochsDone) != epoch+1 || d.BoundBy != "source" {
			t.Errorf("after epoch %d: %d hits, %d bytes of the source, %d epochs done, bound by %s", epoch, d.HitsEpoch, d.SourceBytesEpoch, len(d.EpochsDone), d.BoundBy)
		}
	}
	var latest status.Job
	j.deliver(4, 0).Hits = 4
	j.deliver(3, 1).Hits = 3
	if j.Fill(&latest, at(3)); latest.HitsEpoch != 3 {
		t.Errorf("two epochs are open: %d hits, want the 3 of the epoch with the latest request", latest.HitsEpoch)
	}
	j.now = j.now.Add(time.Minute)
	var got, want status.Wear
	j.FillWear(&got, 4000)       // since epoch 1 was over
	want.PerDay(2000, 60+1+2+60) // each request came a second after the event before it
	if !reflect.DeepEqual(got, want) {
		t.Errorf("wear %+v, want %+v", got, want)
	}
}
