package engine

import (
	"fmt"
	"testing"
	"time"

	"lcache/internal/serve/schedule"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/sample"
)

// TestOpportunisticReads: wanted samples of segments that stay in place are read together with their neighbours, and later copied from memory. All bytes are right, nothing comes from the source,
// and no epoch uses more memory than it was given. The speed depends on the device: see scripts/bench-importance.
func TestOpportunisticReads(t *testing.T) {
	d := photos(t, 6000)
	for _, lag := range testenv.Some([]string{`1`, `"split"`}, 1) {
		t.Run("lag "+lag, func(t *testing.T) {
			givesBack(t)
			o, _ := ingested(t, d, ingest.Options{Job: schedule.Job{World: 1}, Block: 128 << 10, Memory: 48 << 20})
			cache := d.total / 5
			o.Patience, o.Memory = 20*time.Second, 56<<20+cache
			e := open(t, o)
			defer closeEngine(t, e)
			l := losing{d: d, e: e, world: 1}
			l.ask(t, 0, fmt.Sprintf(`{"batch_size":64,"cache":%d,"seed":5,"method":"impact","lag":%s,"params":{"s_share":0,"warmup":2}}`, cache, lag))
			p := e.owner.importance.Load()
			if got, most := e.shares.Kept.Taken(), e.opts.Memory-int64(e.cache.Sizing.Memory); got > most || p.opportunistic == nil {
				t.Fatalf("importance takes %d bytes, memory leaves %d; read opportunistically: %v", got, most, p.opportunistic != nil)
			}
			c := attach(t, e)
			defer c.Disconnected()
			kept, stayed := 0, 0
			for epoch := range 8 {
				here, stay := map[sample.Index]bool{}, map[sample.Index]bool{}
				l.observed(t, c, epoch, func(int) {
					for i, again := range p.opportunistic.All {
						if again {
							stay[i] = true
						} else {
							here[i] = true
						}
					}
					if u := p.opportunistic.Usage(); u.Taken > u.Capacity || u.Held > u.Taken || u.Again > u.Capacity/2 {
						t.Errorf("epoch %d: %+v", epoch, u)
					}
				})
				stayed += len(stay)
				if t.Logf("epoch %d: %d samples read opportunistically, %d kept for the next epoch", epoch, len(here), len(stay)); epoch >= 3 {
					kept += len(here)
				} else if epoch < 2 && len(here) > 0 {
					t.Errorf("%d samples were read opportunistically in epoch %d, which is plain", len(here), epoch)
				}
			}
			if kept < 50 {
				t.Errorf("%d samples were read opportunistically in 5 epochs", kept)
			}
			if stayed < 50 {
				t.Errorf("%d samples stayed for the next epoch", stayed)
			}
			noSource(t, e)
		})
	}
}
