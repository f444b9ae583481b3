package engine

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"lcache/internal/importance/score"
	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/sample"
)

// sourceReads returns how many samples a job has read from the source.
func sourceReads(e *Engine, token string) (n int) {
	for _, j := range e.Status().Jobs {
		if j.ID == token {
			n = int(j.SourceReads)
		}
	}
	return n
}

// nowhere returns how many samples the log lacks.
func nowhere(e *Engine) int {
	_, _, absent, _ := countPlaces(e, func(sample.Index) bool { return false })
	return absent
}

// TestTwoJobsPack: two jobs whose L-samples may be substituted for each other. A sample that the log has lost is read from the source and put into a package, both with two jobs and after the second one has ended.
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
			t.Errorf("the second job's packer takes %d bytes of memory", more)
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

// TestLogIsFilledAfterPackages: in the static layout a job that puts its samples into packages leaves some of them in the source, and ends. The next job, a plain one, reads these once: its second epoch reads nothing from the source.
func TestLogIsFilledAfterPackages(t *testing.T) {
	d, o, _ := lowBed(t, 1500, ingest.Options{Layout: cache.LayoutStatic, NoPrefill: true, Budget: 64 << 20})
	o.LateEpoch = 50 * time.Millisecond
	e := open(t, o)
	defer func() { closeEngine(t, e) }()
	number, err := e.Join("packs")
	if err != nil {
		t.Fatal(err)
	}
	l := losing{d: d, e: e, world: 1, job: number}
	l.ask(t, 0, fmt.Sprintf(`{"batch_size":64,"cache":%d,"seed":5,"method":"impact","substitute":"low","params":{"s_share":0,"warmup":1}}`, d.total/10))
	c := attach(t, e)
	for batch := range 2 {
		got, err := c.ChunkAt(t.Context(), deliver.Position{Job: number, Batch: batch})
		if err != nil {
			t.Fatal(err)
		}
		o := score.Observation{Kind: score.Losses, Batch: uint32(batch), Index: slices.Clone(got.Indices), Node: sample.None}
		c.Release(got.Lease)
		for _, i := range o.Index {
			o.Loss = append(o.Loss, loss(i, 0))
		}
		e.Observe(number, o)
	}
	for epoch := 1; epoch < 4; epoch++ {
		l.observed(t, c, epoch, func(int) {})
	}
	if _, packed, absent, _ := countPlaces(e, func(sample.Index) bool { return false }); packed < 50 || absent < 50 {
		t.Fatalf("%d samples are in packages, %d nowhere", packed, absent)
	}
	e.Leave(number)
	c.Disconnected()
	c = attach(t, e)
	order := d.drawn(7, 1)[0]
	for epoch := range 3 {
		if err := e.Push(schedule.Pusher{Pid: os.Getpid()}, epoch, 0, order); err != nil {
			t.Fatal(err)
		}
	}
	areOver(t, e, "packs")
	for epoch := range 3 {
		before := sourceReads(e, "")
		d.readAsked(t, e, epoch, 0, order)
		t.Logf("epoch %d: %d read from the source, %d nowhere", epoch, sourceReads(e, "")-before, nowhere(e))
		if read := sourceReads(e, "") - before; epoch > 0 && read > 0 {
			t.Errorf("epoch %d: %d samples are read from the source again", epoch, read)
		}
	}
	c.Disconnected()
}
