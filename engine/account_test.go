package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"lcache/internal/importance/score"
	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/internal/serve/status"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/sample"
)

// All jobs share one limit for pushed orders, and a job that is over releases its part.
func TestOrdersOfAllJobsHaveOneLimit(t *testing.T) {
	d, o := small(t, samplerJob(20, 16, 1, false))
	const limit = 100_000
	o.PushBytes = limit
	e := open(t, o)
	defer closeEngine(t, e)
	r := rand.New(rand.NewPCG(1, 2))
	var seats []*seat
	taken := int64(0)
	for k := range 3 {
		s := d.join(t, e, fmt.Sprintf("search-%d", k))
		seats = append(seats, s)
		for epoch := range 20 {
			if err := s.push(r, epoch, len(d.bytes)); err != nil {
				refused(t, err, "push it when one of them has been read")
				break
			}
			taken += schedule.PushBytes(s.orders[epoch])
		}
	}
	if taken > limit || taken < limit*9/10 {
		t.Errorf("the orders of three jobs take %d bytes, want what %d hold", taken, limit)
	}
	if err := e.TakeOrders(10_000); err == nil {
		t.Error("room was given to an order received in pieces although the kept orders fill the limit")
	}
	for _, s := range seats {
		s.leave()
	}
	if err := e.TakeOrders(limit); err != nil {
		t.Errorf("when all clients are gone: %v", err)
	}
	e.GiveOrders(limit)
}

// Orders that a job has read make room for another job's.
func TestReadOrdersMakeRoomForOtherJobs(t *testing.T) {
	d, o := small(t, samplerJob(20, 16, 1, false))
	o.PushBytes = 6 * schedule.PushBytes(d.drawn(0, 1)[0])
	e := open(t, o)
	defer closeEngine(t, e)
	r := rand.New(rand.NewPCG(3, 4))
	first, second := d.join(t, e, "first"), d.join(t, e, "second")
	defer first.leave()
	defer second.leave()
	for epoch := range 6 {
		if err := first.push(r, epoch, len(d.bytes)); err != nil {
			t.Fatal(err)
		}
	}
	refused(t, second.push(r, 0, len(d.bytes)), "push it when one of them has been read")
	for epoch := range 5 {
		if err := first.read(epoch, 0); err != nil {
			t.Fatal(err)
		}
	}
	for epoch := range 3 {
		if err := second.push(r, epoch, len(d.bytes)); err != nil {
			t.Fatalf("an order after another job has read five: %v", err)
		}
	}
	if err := second.read(0, 0); err != nil {
		t.Error(err)
	}
	if err := first.read(5, 0); err != nil {
		t.Errorf("the order that was not read yet: %v", err)
	}
}

// A cache that was made with the minimum --memory of a version that did not count pushed orders still opens, with the new minimum. A smaller
// --memory is an error.
func TestOldLeastMemory(t *testing.T) {
	d := makeDataset(t, 20_000, func(*rand.Rand, int) int { return 100 })
	o, rep := ingested(t, d, ingest.Options{Job: samplerJob(4, 16, 1, false), Block: 128 << 10, Memory: 64 << 20})
	record, err := cache.ReadRecord(o.Dirs[0])
	if err != nil {
		t.Fatal(err)
	}
	memory := func(recorded, given int64) (int64, error) {
		record.Memory = recorded
		if err := cache.WriteRecord(o.Dirs[0], record); err != nil {
			t.Fatal(err)
		}
		again := o
		again.Memory = given
		e, err := Open(context.Background(), again)
		if err != nil {
			return 0, err
		}
		defer closeEngine(t, e)
		return int64(e.cache.Sizing.Memory), nil
	}
	least := rep.MemoryBytes
	for step := int64(1 << 20); step > 0; step /= 2 { // the smallest one that is accepted
		for {
			if _, err := memory(0, least-step); err != nil {
				break
			}
			least -= step
		}
	}
	old := least - cache.OrderBytes*int64(len(d.bytes))
	for name, given := range map[string]int64{"as recorded": 0, "given again": old} {
		if now, err := memory(old, given); err != nil || now > least || now <= old {
			t.Errorf("%s: the server takes %d bytes (%v), want more than %d and at most %d", name, now, err, old, least)
		}
	}
	if _, err := memory(old, old-1); err == nil || !strings.Contains(err.Error(), "give --memory") {
		t.Errorf("a smaller memory: got %v, want the number that is needed", err)
	}
	if _, err := memory(64<<20, old); err == nil {
		t.Error("the old minimum is accepted by a cache that was not made with it")
	}
}

// One order fits wherever nothing else was pushed, in batches of any size.
func TestOrderInAnyBatchesFits(t *testing.T) {
	const n = 300_000
	for _, size := range []int{1, 4, 256} {
		var batches [][]sample.Index
		for range n / size {
			batches = append(batches, make([]sample.Index, size))
		}
		if bytes := schedule.PushBytes(batches); bytes > cache.OrderBytes*n+orderEntries {
			t.Errorf("batches of %d: the order takes %d bytes", size, bytes)
		}
	}
}

// Queued observations use a limit that all jobs share. Without room they are dropped, and all memory is released.
func TestObservationsHaveALimit(t *testing.T) {
	d, o := small(t, schedule.Job{World: 1})
	e := open(t, o)
	defer closeEngine(t, e)
	l := losing{d: d, e: e, world: 1}
	l.ask(t, 0, fmt.Sprintf(shade, 0))
	l.epochs(t, 0, 2)
	p := e.owner.importance.Load()
	waitFor(t, "the observations are taken", func() bool { return e.observed.Taken() == 0 })
	status := func() *status.Importance { return e.Status().Jobs[0].Importance }
	before, room := *status(), e.observed.Left()
	if !e.observed.Take(room) {
		t.Fatalf("%d bytes are not there", room)
	}
	seen := score.Observation{Kind: score.Losses, Epoch: 2, Index: []sample.Index{1}, Loss: []float32{1}, Node: sample.None}
	e.Observe(0, seen)
	e.observed.Give(room)
	for epoch := range uint32(2) { // of the epoch that is trained, and of the next one, which waits for the boundary
		seen.Epoch, seen.Batch = 2+epoch, 7
		e.Observe(0, seen)
	}
	e.EndEpoch(0, 0, score.Progress{Epoch: 1 << 20}, Unsent{Dropped: 1000, Changed: true}) // the status after this has all of it
	waitFor(t, "the worker has looked", func() bool { return status().ObservationsDropped >= before.ObservationsDropped+1000 })
	if now := status(); now.ObservationsDropped != before.ObservationsDropped+1001 {
		t.Errorf("%d observations are dropped, want 1", now.ObservationsDropped-before.ObservationsDropped-1000)
	}
	if e.observed.Taken() == 0 {
		t.Error("the observation of the next epoch is not kept")
	}
	p.stop(deliver.ErrClosing)
	if taken := e.observed.Taken(); taken != 0 {
		t.Errorf("%d bytes are taken by observations of a job that is over", taken)
	}
}
