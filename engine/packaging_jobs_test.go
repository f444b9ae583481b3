package engine

import (
	"fmt"
	"testing"
	"time"

	"lcache/ingest"
	"lcache/sample"
)

// sourceReads is how many samples a job has read from the source.
func sourceReads(e *Engine, token string) (n int) {
	for _, j := range e.Status().Jobs {
		if j.ID == token {
			n = int(j.SourceReads)
		}
	}
	return n
}

// nowhere is how many samples the log lacks.
func nowhere(e *Engine) int {
	_, _, absent, _ := lies(e, func(sample.Index) bool { return false })
	return absent
}

// TestTwoJobsPack: two jobs whose L-samples may stand in for each other. A sample that the log has lost is read from the source and put into a package, while both jobs are there and when the second one has ended.
// The memory of both is counted.
func TestTwoJobsPack(t *testing.T) {
	inLayouts(t, func(t *testing.T, layout string) {
		d, o, _ := lowBed(t, 600, ingest.Options{Budget: 32 << 20})
		o.Layout, o.LateEpoch = layout, 50*time.Millisecond
		e := open(t, o)
		defer func() { closeEngine(t, e) }()
		join := func(token string) losing {
			number, err := e.Join(token)
			if err != nil {
				t.Fatal(err)
			}
			l := losing{d: d, e: e, world: 1, job: number}
			l.ask(t, 0, fmt.Sprintf(`{"name":%q,"batch_size":64,"cache":%d,"seed":5,"method":"impact","substitute":"low","params":{"s_share":0,"warmup":1}}`, token, d.total/10))
			return l
		}
		owner := join("owner")
		c := attach(t, e)
		epoch := 0
		train := func(epochs int) {
			for ; epochs > 0; epochs-- {
				owner.observed(t, c, epoch, func(int) {})
				epoch++
			}
		}
		train(5)
		before := e.memory().Buffers
		other := join("other")
		if more := e.memory().Buffers - before; more < 1<<20 {
			t.Errorf("the second job's packaging takes %d bytes of memory", more)
		}
		stores := func(when string) {
			t.Helper()
			for i := range sample.Index(len(d.bytes)) {
				if i%10 > 0 { // many: an L-sample that the log lacks is read only when no other one stands in for it
					e.cache.Locations.Clear(i, e.cache.Locations.Get(i))
				}
			}
			lost, before := nowhere(e), sourceReads(e, "owner")
			train(2)
			read, stored := sourceReads(e, "owner")-before, lost-nowhere(e)
			t.Logf("%s: of %d lost samples %d were read from the source, %d stored", when, lost, read, stored)
			if stored < 30 { // not each one: a sample that finds no room on its way to a package is read again
				t.Errorf("%s: of %d samples that were read from the source %d are stored", when, read, stored)
			}
		}
		stores("two jobs")
		e.Leave(other.job)
		areOver(t, e, "other")
		stores("one job, the second one has ended")
		c.Disconnected()
	})
}
