package engine

import (
	"fmt"
	"testing"
	"time"

	"lcache/internal/serve/schedule"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
)

// TestKeepsDrawnSamples: a log with room for half of the data keeps the samples that the next epoch delivers. If it kept the samples that the budget admits by name, half of the deliveries that are not in memory would come from the source.
func TestKeepsDrawnSamples(t *testing.T) {
	testenv.WithoutRace(t)
	givesBack(t)
	d := photos(t, 4000)
	for _, job := range testenv.Some([]struct {
		text   string
		memory int64   // 1/memory of the data; 0: none
		most   float64 // of the requests that may come from the source
	}{
		{`"method":"impact","lag":"split","params":{"s_share":0,"warmup":2}`, 5, 0.27},
		{`"method":"impact","lag":1,"params":{"s_share":0,"warmup":2}`, 5, 0.27},
		{`"method":"impact","lag":1,"params":{"s_share":0,"warmup":2}`, 0, 0.4},
		{`"method":"shade","lag":1`, 5, 0.37},
	}, 2) {
		t.Run(fmt.Sprintf("%s memory 1/%d", job.text, job.memory), func(t *testing.T) {
			o, _ := ingested(t, d, ingest.Options{Job: schedule.Job{World: 1}, Block: 128 << 10, Memory: 40 << 20, Budget: int64(d.total)/2 + 7<<20})
			cache := int64(0)
			if job.memory > 0 {
				cache = d.total / job.memory
			}
			o.Patience, o.Memory = 20*time.Second, 60<<20+cache
			e := open(t, o)
			defer func() { closeEngine(t, e) }()
			kept := float64(e.Status().Jobs[0].KeptBytes) / float64(d.total)
			l := losing{d: d, e: e, world: 1}
			l.ask(t, 0, fmt.Sprintf(`{"batch_size":64,"cache":%d,"seed":5,%s}`, cache, job.text))
			c := attach(t, e)
			share := 0.0
			for epoch := range 9 {
				before := e.Status().Jobs[0]
				samples, _ := l.steady(t, c, epoch)
				now := e.Status().Jobs[0]
				misses := now.Importance.SourceMisses - before.Importance.SourceMisses
				t.Logf("epoch %d: %d samples, %d from memory, %d from the log, %d from the source (%d reads); %d MB written", epoch, samples, now.Importance.HHits-before.Importance.HHits,
					now.Importance.LogHits-before.Importance.LogHits, misses, now.SourceReads-before.SourceReads, (now.LogWriteBytes-before.LogWriteBytes)>>20)
				if s := e.Status().Cache; s.UsedBytes > s.BudgetBytes {
					t.Errorf("epoch %d: %d bytes are used of %d", epoch, s.UsedBytes, s.BudgetBytes)
				}
				if epoch >= 5 {
					share += float64(misses) / float64(samples) / 4
				}
			}
			if s := e.Status().Jobs[0]; s.CorruptSamples != 0 || s.Divergences != 0 || s.ReorderDropped != 0 {
				t.Errorf("%d corrupt, %d dropped, %d divergences", s.CorruptSamples, s.ReorderDropped, s.Divergences)
			}
			t.Logf("the log has room for %.2f of the data; %.3f of the requests came from the source", kept, share)
			if kept < 0.4 || kept > 0.55 || share > job.most {
				t.Errorf("%.3f of the requests came from the source, want at most %.2f; the log has room for %.2f of the data", share, job.most, kept)
			}

			// A restarted server finds the chosen samples.
			observing(t, e, c, 9, 0, 10)
			c.Disconnected()
			closeEngine(t, e)
			e = open(t, o)
			l.e = e
			l.ask(t, 0, fmt.Sprintf(`{"batch_size":64,"cache":%d,"seed":5,%s}`, cache, job.text))
			c = attach(t, e)
			defer c.Disconnected()
			observing(t, e, c, 9, 10, 11)
			logsBecome(t, e, "the log that is read is recognised", func(l logfiles) bool { return l.recovered && l.read >= 9 })
			l.steady(t, c, 10)
		})
	}
}
