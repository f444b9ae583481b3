package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"lcache/cache"
	"lcache/importance"
	"lcache/ingest"
	"lcache/sample"
	"lcache/schedule"
)

// importanceOf is the status of a job by its name.
func importanceOf(t *testing.T, e *Engine, name string) *ImportanceStatus {
	t.Helper()
	for _, j := range e.Status().Jobs {
		if j.Importance != nil && j.Importance.Name == name {
			return j.Importance
		}
	}
	t.Fatalf("no job %s", name)
	return nil
}

// TestJobsShareImportance: two jobs keep their important samples together, by what both of them want. What one has brought is a hit for the other from its first batch on; the bytes stay within both caches, and
// lie there once. Orders are each job's own. When one leaves the other goes on alone.
func TestJobsShareImportance(t *testing.T) {
	inLayouts(t, func(t *testing.T, layout string) {
		d, o := small(t, schedule.Job{World: 1})
		o.Layout, o.Patience, o.LateEpoch = layout, 20*time.Second, time.Minute
		e := open(t, o)
		defer closeEngine(t, e)
		const text = `{"method":%q,"name":%q,"policy":%q,"batch_size":16,"world_size":1,"cache":900000,"lag":0,"seed":%d%s}`
		first := losing{d: d, e: e, world: 1}
		first.ask(t, 0, fmt.Sprintf(text, "impact", "first", "next-use", 5, `,"params":{"s_share":0}`))
		status := func(name string) *ImportanceStatus { return importanceOf(t, e, name) }
		alone := int64(0)
		for epoch := range 3 {
			first.begin(t, epoch)
			alone = status("first").HHits
			first.steps(t, epoch, 0)
		}
		alone = status("first").HHits - alone
		number, err := e.Join("second")
		if err != nil {
			t.Fatal(err)
		}
		second := losing{d: d, e: e, job: number, world: 1}
		second.ask(t, 0, fmt.Sprintf(text, "shade", "second", "paper", 6, ""))
		common := e.shared.common
		if common == nil {
			t.Fatal("two jobs keep nothing together")
		}
		within := func(when string) (bytes int64) {
			t.Helper()
			common.mu.RLock()
			defer common.mu.RUnlock()
			if common.capacity != 1_800_000 || common.held.taken > common.capacity || int64(len(common.held.cells.next)*common.held.cells.size) > common.capacity+2*chunkCells*int64(common.held.cells.size) {
				t.Errorf("%s: %d bytes in %d cells are kept together, of %d", when, common.held.taken, len(common.held.cells.next), common.capacity)
			}
			for _, p := range e.states {
				if apart := p.high.held.taken; apart > 0 {
					t.Errorf("%s: %s keeps %d bytes apart", when, p.config.Name, apart)
				}
			}
			return common.held.taken
		}
		if taken := within("when the second begins"); taken < 700_000 {
			t.Errorf("%d bytes went over from the first job", taken)
		}
		order := second.begin(t, 0)[0]
		mine := second.steps(t, 0, 0)
		if !slices.Equal(slices.Concat(mine.served[0]...), order) {
			t.Error("the second job is served another order than its own")
		}
		// It asks for each sample once, so nothing that it brings itself is a hit.
		if s := status("second"); s.HHits < 3 || s.HHits+s.LogHits+s.SourceMisses != s.Requested {
			t.Errorf("the second job's first epoch: %+v", s)
		}
		var shared [2]int64
		for epoch := 3; epoch < 6; epoch++ {
			first.begin(t, epoch)
			shared = [2]int64{status("first").HHits, status("second").HHits}
			first.steps(t, epoch, 0)
			second.begin(t, epoch-2)
			second.steps(t, epoch-2, 0)
			within(fmt.Sprintf("epoch %d", epoch))
		}
		shared[0], shared[1] = status("first").HHits-shared[0], status("second").HHits-shared[1]
		if shared[0] <= alone || shared[1] <= 0 {
			t.Errorf("the first job has %d hits in an epoch with memory of its own, %d with what both share; the second %d", alone, shared[0], shared[1])
		}
		t.Logf("the first job has %d hits in an epoch with memory of its own, %d with what both share; the second %d", alone, shared[0], shared[1])
		if a, b := status("first"), status("second"); a.HBytes+b.HBytes > 1_800_000 || a.HBytes == 0 || b.HBytes == 0 {
			t.Errorf("the jobs have %d and %d bytes", a.HBytes, b.HBytes)
		}
		e.Leave(number)
		before := status("first").HHits
		for epoch := 6; epoch < 8; epoch++ {
			first.begin(t, epoch)
			first.steps(t, epoch, 0)
		}
		if s := status("first"); e.shared.common != nil || s.HHits <= before || s.HBytes > 900_000 || s.HBytes < 500_000 {
			t.Errorf("alone again: %+v", s)
		}
	})
}

// TestLogKeepsForAllJobs: where the log has room for half of the data it keeps what is worth most to all jobs, not what the job that owns its order delivers most. The second job's losses are great for
// even indices alone, and the first job's say nothing of that.
func TestLogKeepsForAllJobs(t *testing.T) {
	givesBack(t)
	d := photos(t, 2000)
	o, _ := ingested(t, d, ingest.Options{Job: schedule.Job{World: 1}, Block: 128 << 10, Memory: 40 << 20, Budget: int64(d.total)/2 + 7<<20})
	o.Patience, o.LateEpoch, o.Memory = 20*time.Second, time.Minute, 60<<20
	e := open(t, o)
	defer closeEngine(t, e)
	number, err := e.Join("second")
	if err != nil {
		t.Fatal(err)
	}
	first, second := losing{d: d, e: e, world: 1}, losing{d: d, e: e, job: number, world: 1}
	first.ask(t, 0, `{"method":"impact","name":"first","batch_size":64,"cache":0,"seed":5,"lag":1,"params":{"s_share":0,"warmup":2}}`)
	second.ask(t, 0, `{"method":"impact","name":"second","batch_size":64,"world_size":1,"cache":0,"seed":6,"lag":0,"params":{"s_share":0,"warmup":1}}`)
	for epoch := range 12 {
		first.begin(t, epoch)
		first.steps(t, epoch, 0)
		second.begin(t, epoch)
		second.stepsObserved(t, epoch, 0, func(_, epoch, batch int, served []sample.Index) importance.Observation {
			o := importance.Observation{Kind: importance.Losses, Epoch: uint32(epoch), Batch: uint32(batch), Index: served}
			for _, i := range served {
				o.Loss = append(o.Loss, float32(1-i%2)+loss(i, epoch)/100)
			}
			return o
		})
		if s := e.Status().Cache; s.UsedBytes > s.BudgetBytes {
			t.Errorf("epoch %d: %d bytes are used of %d", epoch, s.UsedBytes, s.BudgetBytes)
		}
	}
	var kept [2]int
	for i := range d.bytes {
		if e.cache.Locations.Get(sample.Index(i)) != 0 {
			kept[i%2]++
		}
	}
	t.Logf("the log holds %d samples that are worth much to the second job, and %d that are not", kept[0], kept[1])
	if 4*kept[0] < 5*kept[1] { // as many where the first job decides alone; how much was exchanged is a matter of time
		t.Errorf("the log holds %d samples that are worth much to the second job, and %d that are not", kept[0], kept[1])
	}
}

// TestBaselinesKeepApart: LRU and MinIO are there to compare with: they share with nobody.
func TestBaselinesKeepApart(t *testing.T) {
	d, o := small(t, schedule.Job{World: 1})
	o.Layout, o.Patience = cache.LayoutStatic, 20*time.Second
	e := open(t, o)
	defer closeEngine(t, e)
	number, err := e.Join("second")
	if err != nil {
		t.Fatal(err)
	}
	for job, policy := range map[int]string{0: "minio", number: "next-use"} {
		l := losing{d: d, e: e, job: job, world: 1}
		l.ask(t, 0, fmt.Sprintf(`{"method":"shade","name":%q,"policy":%q,"batch_size":16,"world_size":1,"cache":900000,"lag":0}`, policy, policy))
	}
	if e.shared.common != nil {
		t.Error("MinIO keeps samples together with another job")
	}
}

// TestClassShares: a job whose nodes stand in for others shares its important samples. Its nodes are its own, and its plan counts on what is shared.
func TestClassShares(t *testing.T) {
	d, o := small(t, schedule.Job{World: 1})
	o.Layout, o.Patience, o.LateEpoch = cache.LayoutStatic, 20*time.Second, time.Minute
	e := open(t, o)
	defer closeEngine(t, e)
	number, err := e.Join("second")
	if err != nil {
		t.Fatal(err)
	}
	second := losing{d: d, e: e, job: number, world: 1}
	second.ask(t, 0, `{"method":"shade","name":"second","batch_size":16,"world_size":1,"cache":600000,"lag":0}`)
	l, like := losing{d: d, e: e, world: 1}, newLikeness(e)
	l.ask(t, 0, `{"method":"spider","substitute":"class","batch_size":16,"world_size":1,"cache":1000000,"lag":0,"policy":"paper","params":{"ratio":[0.5,0.5]}}`)
	p := e.owner.importance.Load()
	total := 0
	for epoch := range 5 {
		second.begin(t, epoch)
		second.steps(t, epoch, 0)
		l.begin(t, epoch)
		_, n := l.classSteps(t, like, epoch, 8)
		e.settleNodes(t, p)
		total += n
		p.high.mu.RLock()
		if p.high.held.taken > 500_000 || p.high.common.capacity != 1_100_000 {
			t.Errorf("epoch %d: %d bytes of nodes, and memory for %d bytes is shared", epoch, p.high.held.taken, p.high.common.capacity)
		}
		p.high.mu.RUnlock()
	}
	if s := importanceOf(t, e, "default"); total < 20 || int(s.Substituted) != total || s.HHits == 0 || s.HomophilyHits == 0 {
		t.Errorf("%d substitutes: %+v", total, s)
	}
}
