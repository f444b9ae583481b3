package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/internal/serve/status"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/sample"
)

// unprefilled is a served cache without a recipe and without samples: the state for a client whose cache was not prefilled.
func unprefilled(t *testing.T, layout string, world int, knobs ...func(*Options)) (*dataset, *Engine) {
	t.Helper()
	d := makeDataset(t, 1200, func(r *rand.Rand, _ int) int { return 1 + r.IntN(30_000) })
	o, _ := ingested(t, d, ingest.Options{Job: schedule.Job{World: world}, Block: 128 << 10, Memory: 24 << 20, NoPrefill: true})
	o.Layout, o.Patience = layout, 20*time.Second // second reads on a slow machine must not count here
	for _, set := range knobs {
		set(&o)
	}
	e := open(t, o)
	t.Cleanup(func() { closeEngine(t, e) })
	return d, e
}

// drawn is a shuffle in batches of 16, by rank.
func (d *dataset) drawn(seed uint64, world int) (byRank [][][]sample.Index) {
	for rank := range world {
		byRank = append(byRank, shuffled(seed, len(d.bytes), 1, world, rank)[0])
	}
	return byRank
}

// readAsked reads batches of a rank's epoch, as a map-style dataset does: by index, with the position.
func (d *dataset) readAsked(t testing.TB, e *Engine, epoch, rank int, batches [][]sample.Index) {
	t.Helper()
	c := attach(t, e)
	defer c.Disconnected()
	for b, indices := range batches {
		batch, err := c.Get(context.Background(), indices, &deliver.Position{Epoch: epoch, Rank: rank, Batch: b})
		if err != nil {
			t.Error(err)
			return
		}
		if !slices.Equal(batch.Indices, indices) {
			t.Errorf("epoch %d rank %d batch %d: other samples than asked for", epoch, rank, b)
		}
		if err := d.check(e, batch); err != nil {
			t.Error(err)
		}
		c.Release(batch.Lease)
	}
}

func push(t testing.TB, e *Engine, epoch, rank int, batches [][]sample.Index) {
	t.Helper()
	if err := e.Push(schedule.Pusher{Pid: os.Getpid()}, epoch, rank, batches); err != nil {
		t.Fatal(err)
	}
}

// readOnce fails unless each sample was read from the source once.
func (d *dataset) readOnce(t testing.TB, e *Engine) status.Job {
	t.Helper()
	s := e.Status().Jobs[0]
	if s.SourceReads != int64(len(d.bytes)) {
		t.Errorf("%d reads from the source for %d samples", s.SourceReads, len(d.bytes))
	}
	return s
}

// The first epoch with a pushed order is read from the source in that order, each sample once, although nothing was laid out for it before.
func TestFirstPushedEpoch(t *testing.T) { inLayouts(t, testFirstPushedEpoch) }

func testFirstPushedEpoch(t *testing.T, layout string) {
	d, e := unprefilled(t, layout, 1)
	for epoch := range 3 {
		push(t, e, epoch, 0, d.drawn(uint64(epoch), 1)[0])
	}
	for epoch := range 3 {
		d.readAsked(t, e, epoch, 0, d.drawn(uint64(epoch), 1)[0])
	}
	if s := d.readOnce(t, e); layout == cache.LayoutLog && s.RandomReads > 0 {
		t.Errorf("%d samples read by index, want all from the window", s.RandomReads)
	}
}

// If no order is known, samples that are read from the source are kept, and become part of the order that is pushed at last.
func TestByIndexFillsTheLog(t *testing.T) {
	testenv.Long(t)
	inLayouts(t, testByIndexFillsTheLog)
}

func testByIndexFillsTheLog(t *testing.T, layout string) {
	for _, part := range testenv.Some([]float64{0.7, 0.1, 1}, 1) {
		d, e := unprefilled(t, layout, 1)
		all := d.drawn(9, 1)[0]
		some := all[:int(part*float64(len(all)))]
		c := attach(t, e)
		for range 2 {
			for _, indices := range some {
				batch, err := c.Get(context.Background(), indices, nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := d.check(e, batch); err != nil {
					t.Fatal(err)
				}
				c.Release(batch.Lease)
			}
		}
		read := 0
		for _, indices := range some {
			read += len(indices)
		}
		if got := e.Status().Jobs[0].SourceReads; got != int64(read) {
			t.Errorf("%.1f of all read twice by index: %d reads from the source for %d samples", part, got, read)
		}
		for epoch := range 3 {
			push(t, e, epoch, 0, d.drawn(uint64(epoch), 1)[0])
		}
		for epoch := range 3 {
			d.readAsked(t, e, epoch, 0, d.drawn(uint64(epoch), 1)[0])
		}
		s := e.Status().Jobs[0]
		// Most of it stays in place while the first epoch is read by index, and the scan moves the missing samples for the second epoch.
		limit := int64(len(d.bytes)) * 21 / 20
		if part > 0.5 {
			limit = int64(2*len(d.bytes) - read)
		}
		if s.SourceReads > limit {
			t.Errorf("%.1f of all were there: %d reads from the source for %d samples", part, s.SourceReads, len(d.bytes))
		}
		if got := s.EpochsDone[2]; got.Misses > 0 || got.SourceBytes > 0 {
			t.Errorf("%.1f of all were there: %d misses in the third epoch", part, got.Misses)
		}
	}
}

// A client that begins again with another order is served by its new order. Samples that were laid out for the first order are moved.
func TestAnotherOrderIsPushed(t *testing.T) {
	testenv.Long(t)
	inLayouts(t, testPushedAnew)
}

func testPushedAnew(t *testing.T, layout string) {
	for _, broken := range testenv.Some([]int{40, 0}, 1) { // batches of the epoch that was read of the first order
		d, e := unprefilled(t, layout, 1)
		for epoch := range 3 {
			push(t, e, epoch, 0, d.drawn(uint64(10+epoch), 1)[0])
		}
		d.readAsked(t, e, 0, 0, d.drawn(10, 1)[0][:broken])
		const epochs = 5
		for epoch := range epochs {
			push(t, e, epoch, 0, d.drawn(uint64(epoch), 1)[0])
		}
		for epoch := range epochs {
			d.readAsked(t, e, epoch, 0, d.drawn(uint64(epoch), 1)[0])
		}
		s := e.Status().Jobs[0]
		if s.Divergences != 0 {
			t.Errorf("broken off after %d batches: %d divergences", broken, s.Divergences)
		}
		last := s.EpochsDone[len(s.EpochsDone)-1]
		if last.Epoch != epochs-1 || last.Misses > 0 || layout == cache.LayoutLog && last.LogReadOps > 400 {
			t.Errorf("broken off after %d batches: the last epoch had %d misses and took %d reads of the log", broken, last.Misses, last.LogReadOps)
		}
	}
}

// Ranks that push their orders one after the other are laid out together: the engine does not begin with the first rank's order alone.
func TestRanksPushOneAfterTheOther(t *testing.T) {
	const world = 3
	d, e := unprefilled(t, cache.LayoutLog, world)
	for rank := range world {
		for epoch := range 3 {
			push(t, e, epoch, rank, d.drawn(uint64(epoch), world)[rank])
		}
		if rank == 0 { // the others come when it has begun to read
			d.readAsked(t, e, 0, 0, d.drawn(0, world)[0][:4])
		}
	}
	for epoch := range 3 {
		var wg sync.WaitGroup
		for rank := range world {
			wg.Go(func() { d.readAsked(t, e, epoch, rank, d.drawn(uint64(epoch), world)[rank]) })
		}
		wg.Wait()
	}
	s := e.Status().Jobs[0]
	for _, done := range s.EpochsDone[1:] {
		if done.Misses > 0 {
			t.Errorf("epoch %d: %d misses", done.Epoch, done.Misses)
		}
	}
	if most := int64(len(d.bytes)) / 4; s.RandomReads > most {
		t.Errorf("%d samples read by index, want at most %d", s.RandomReads, most)
	}
}

// A client that pushes exactly the recipe's order changes nothing.
func TestPushedAsTheRecipeSays(t *testing.T) {
	j := samplerJob(4, 16, 2, false)
	d, o := small(t, j)
	e := open(t, o)
	defer closeEngine(t, e)
	for epoch := range 4 {
		var wg sync.WaitGroup
		for rank := range 2 {
			var batches [][]sample.Index
			for order := d.want(t, j, epoch, rank); len(order) > 0; order = order[min(16, len(order)):] {
				batches = append(batches, order[:min(16, len(order))])
			}
			push(t, e, epoch, rank, batches)
			wg.Go(func() { d.readAsked(t, e, epoch, rank, batches) })
		}
		wg.Wait()
	}
	if s := noSource(t, e); s.RandomReads > 0 {
		t.Errorf("%d samples read by index", s.RandomReads)
	}
}

// While one process reads a rank in its own order, a push of another process is an error, until the first has been silent for as long as a late rank.
func TestFirstJobOwnsTheOrder(t *testing.T) {
	var later atomic.Int64 // nanoseconds that the clock is ahead
	d, e := unprefilled(t, cache.LayoutLog, 1, func(o *Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	})
	other := exec.Command("sleep", "60")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { other.Process.Kill(); other.Wait() }()
	mine, theirs := d.drawn(1, 1)[0], d.drawn(2, 1)[0]
	c, _, err := e.Attach(other.Process.Pid, "")
	if err != nil {
		t.Fatal(err)
	}
	attach(t, e)
	push(t, e, 0, 0, mine)
	d.readAsked(t, e, 0, 0, mine[:5])
	refused := new(deliver.ArgumentError)
	if err := e.Push(schedule.Pusher{Pid: other.Process.Pid}, 1, 0, theirs); !errors.As(err, &refused) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("another order under a running job gave %v, want a refusal that names process %d", err, os.Getpid())
	}
	batch, err := c.Get(context.Background(), theirs[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Release(batch.Lease)
	d.readAsked(t, e, 0, 0, mine)
	if s := e.Status().Jobs[0]; s.Divergences != 0 || s.EpochsDone[0].Misses > int64(len(d.bytes)) {
		t.Errorf("%d divergences", s.Divergences)
	}
	later.Store(int64(time.Minute))
	if err := e.Push(schedule.Pusher{Pid: other.Process.Pid}, 1, 0, theirs); err != nil {
		t.Errorf("push another order while no rank reads: %v", err)
	}
}

// TestWorkerBelongsToTheProgram: after a server's restart a loader's worker may read before its program pushes an order. With one token they are one program, whose order is accepted. Without a token the
// reader may be another program, whose order counts.
func TestWorkerBelongsToTheProgram(t *testing.T) {
	for _, token := range []string{"a loader", ""} {
		d, e := unprefilled(t, cache.LayoutLog, 1)
		worker := exec.Command("sleep", "60")
		if err := worker.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { worker.Process.Kill(); worker.Wait() }()
		number := 0
		if token != "" {
			var err error
			if number, err = e.Join(token); err != nil {
				t.Fatal(err)
			}
		}
		c, _, err := e.Attach(worker.Process.Pid, "")
		if err != nil {
			t.Fatal(err)
		}
		mine := d.drawn(1, 1)[0]
		b, err := c.Get(t.Context(), mine[0], &deliver.Position{Job: number})
		if err != nil {
			t.Fatal(err)
		}
		c.Release(b.Lease)
		e.mu.Lock()
		r := e.jobs[number].rank(0)
		r.pid, r.asked = worker.Process.Pid, time.Now()
		e.mu.Unlock()
		err = e.PushOf(number, schedule.Pusher{Pid: os.Getpid()}, 1, 0, schedule.Cut(mine))
		if refused := errors.As(err, new(*deliver.ArgumentError)); refused != (token == "") {
			t.Errorf("token %q: %v", token, err)
		}
	}
}

// TestFirstEpochIsAllMisses: a sample that was read from the source for an epoch is a miss of that epoch, even if it was read ahead, written to the log, and delivered from
// there.
func TestFirstEpochIsAllMisses(t *testing.T) { inLayouts(t, testFirstEpochIsAllMisses) }

func testFirstEpochIsAllMisses(t *testing.T, layout string) {
	d, e := unprefilled(t, layout, 1)
	s := d.join(t, e, "a")
	defer s.leave()
	r := rand.New(rand.NewPCG(1, 2))
	if err := s.push(r, 0, len(d.bytes)); err != nil {
		t.Fatal(err)
	}
	first, err := s.c.Get(t.Context(), s.orders[0][0], &deliver.Position{Job: s.number})
	if err != nil {
		t.Fatal(err)
	}
	s.c.Release(first.Lease)
	if err := s.push(r, 1, len(d.bytes)); err != nil { // the log is begun when the next order is known; samples that were read ahead before come from it
		t.Fatal(err)
	}
	// The log is read if the mover is ahead of the rank's memory, which it need not be.
	for deadline := time.Now().Add(5 * time.Second); layout == cache.LayoutLog && e.Status().Totals.LogReadBytes < 2<<20 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	if err := errors.Join(s.read(0, 1), s.read(1, 0)); err != nil {
		t.Fatal(err)
	}
	got, all := e.Status().Jobs[0], int64(len(d.bytes))
	if len(got.EpochsDone) != 2 || got.EpochsDone[0].Misses != all || got.EpochsDone[1].Hits != all {
		t.Errorf("epochs %+v; want %d misses in the first one, and as many hits in the second", got.EpochsDone, all)
	}
}
