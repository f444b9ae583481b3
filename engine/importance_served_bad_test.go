package engine

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"lcache/internal/importance/score"
	"lcache/internal/serve/schedule"
	"lcache/internal/store/ingest"
	"lcache/sample"
)

// TestLowOfLittle: with tiny datasets and few observations, each epoch is read to its end, by the law.
func TestLowOfLittle(t *testing.T) {
	steady := func(v float32) func(sample.Index) float32 { return func(sample.Index) float32 { return v } }
	for name, c := range map[string]struct {
		samples, bytes, cache int
		loss                  func(sample.Index) float32 // nil: no losses are reported in a known epoch
		plain                 bool                       // no epoch is drawn
	}{
		"one sample of a class":   {3, 5000, 0, steady(1), false},
		"fewer than a batch":      {7, 5000, 0, steady(1), false},
		"all losses are the same": {60, 5000, 20_000, steady(1), false},
		"all losses are zero":     {60, 5000, 20_000, steady(0), false},
		"no loss is a number":     {60, 5000, 20_000, steady(float32(math.NaN())), true},
		"all reports are stale":   {60, 5000, 20_000, nil, true},
		"no memory for H":         {60, 5000, 0, func(i sample.Index) float32 { return float32(i) }, false},
		"memory for less than H":  {60, 5000, 100, func(i sample.Index) float32 { return float32(i) }, false},
		"memory for all":          {60, 5000, 600_000, func(i sample.Index) float32 { return float32(i) }, false},
		"samples without bytes":   {60, 0, 20_000, func(i sample.Index) float32 { return float32(i) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := makeDataset(t, c.samples, func(*rand.Rand, int) int { return c.bytes })
			o, _ := ingested(t, d, ingest.Options{Job: schedule.Job{World: 1}, Memory: 56 << 20})
			o.LateEpoch = time.Minute
			e := open(t, o)
			defer closeEngine(t, e)
			l := losing{d: d, e: e, world: 1}
			observed := func(rank, epoch, batch int, served []sample.Index) score.Observation {
				o := score.Observation{Kind: score.Losses, Rank: uint16(rank), Epoch: uint32(epoch), Batch: uint32(batch)}
				if c.loss == nil {
					o.Epoch += 100 // stale
				}
				for _, i := range served {
					v := float32(0)
					if c.loss != nil {
						v = c.loss(i)
					}
					o.Index, o.Loss = append(o.Index, i), append(o.Loss, v)
				}
				return o
			}
			l.ask(t, 0, fmt.Sprintf(`{"method":"impact","substitute":"low","batch_size":16,"cache":%d,"params":{"s_share":0}}`, c.cache))
			for epoch := range 4 {
				order := l.begin(t, epoch)[0]
				high := e.highNow(t, 0)
				got := l.stepsObserved(t, epoch, 0, observed)
				n := got.substitutes(t, high, false)
				if plain := epoch == 0 || c.plain; plain && (n > 0 || len(order) != c.samples) {
					t.Errorf("epoch %d has %d samples and %d substitutes, want a plain one", epoch, len(order), n)
				}
			}
			if s := e.Status().Jobs[0]; s.Divergences != 0 || c.plain != (s.Importance.State != string(score.Active)) {
				t.Errorf("%d divergences, state %s", s.Divergences, s.Importance.State)
			}
		})
	}
}
