package engine

import (
	"context"
	"maps"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/internal/serve/status"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/reorder"
	"lcache/sample"
)

// Jobs in the order of the log, which one of them owns, get their samples from its window.
func TestJobsFollow(t *testing.T) {
	d, o := secondRun(t, ingest.Options{})
	o.Patience = 10 * time.Second
	r := rand.New(rand.NewPCG(4, 4))
	const epochs = 4
	var orders [epochs][][]sample.Index
	readBytes := func(jobs ...string) uint64 {
		e := open(t, o)
		defer closeEngine(t, e)
		var seats []*seat
		for _, token := range jobs {
			s := d.join(t, e, token)
			defer s.leave()
			for epoch := range orders {
				if orders[epoch] == nil {
					if err := s.push(r, epoch, len(d.bytes)); err != nil {
						t.Fatal(err)
					}
					orders[epoch] = s.orders[epoch]
				} else if err := e.PushOf(s.number, schedule.Pusher{Pid: os.Getpid(), Session: s.c.Token}, epoch, 0, schedule.Cut(orders[epoch])); err != nil {
					t.Fatal(err)
				}
			}
			seats = append(seats, s)
		}
		var before uint64
		for epoch, order := range orders {
			for batch := range order {
				for _, s := range seats {
					b, err := s.c.ChunkAt(context.Background(), deliver.Position{Job: s.number, Epoch: epoch, Batch: batch})
					if err == nil {
						err = d.check(e, b)
						s.c.Release(b.Lease)
					}
					if err != nil {
						t.Fatalf("epoch %d batch %d: %v", epoch, batch, err)
					}
				}
			}
			if epoch == 0 { // it began over a log in another order
				logsBecome(t, e, "the log is in the order of epoch 1", isAt(1)) // otherwise a busy machine begins it with random reads, separately for each job
				before = e.cache.Store.Stats().ReadBytes
			}
		}
		noSource(t, e)
		return e.cache.Store.Stats().ReadBytes - before
	}
	alone, all := readBytes("first"), readBytes("first", "second", "third")
	if all > alone*13/10 {
		t.Errorf("three jobs in the same order read %d bytes, one reads %d", all, alone)
	}
}

// companions is an engine with jobs that have pushed the same orders.
func companions(t *testing.T, o Options, d *dataset, epochs int, tokens ...string) (*Engine, []*seat) {
	t.Helper()
	e := open(t, o)
	t.Cleanup(func() { closeEngine(t, e) })
	r := rand.New(rand.NewPCG(5, 5))
	var seats []*seat
	for _, token := range tokens {
		s := d.join(t, e, token)
		for epoch := range epochs {
			if len(seats) == 0 {
				if err := s.push(r, epoch, len(d.bytes)); err != nil {
					t.Fatal(err)
				}
				continue
			}
			s.orders[epoch] = seats[0].orders[epoch]
			if err := e.PushOf(s.number, schedule.Pusher{Pid: os.Getpid(), Session: s.c.Token}, epoch, 0, schedule.Cut(s.orders[epoch])); err != nil {
				t.Fatal(err)
			}
		}
		seats = append(seats, s)
	}
	return e, seats
}

// batch reads one batch, and releases it.
func (s *seat) batch(t *testing.T, epoch, batch int) {
	t.Helper()
	b, err := s.c.ChunkAt(t.Context(), deliver.Position{Job: s.number, Epoch: epoch, Batch: batch})
	if err == nil {
		err = s.d.check(s.e, b)
		s.c.Release(b.Lease)
	}
	if err != nil {
		t.Fatalf("job %d epoch %d batch %d: %v", s.number, epoch, batch, err)
	}
}

// rank returns the status of a job's only rank.
func (s *seat) rank(t *testing.T) status.Rank {
	t.Helper()
	return statusOfJob(t, s.e, s.token).Ranks[0]
}

// areServed waits until the window serves the owner and all companions in epoch 0.
func areServed(t *testing.T, e *Engine, seats []*seat) {
	t.Helper()
	logsBecome(t, e, "the window serves the companions", func(l logfiles) bool { return l.read == 0 && l.served == len(seats) })
}

// Jobs with one order that begin one after the other read the disk as one job does in later epochs.
func TestCompanionsCatchUp(t *testing.T) {
	d, o := secondRun(t, ingest.Options{})
	o.sortAtOnce = true
	const epochs = 4
	readBytes := func(t *testing.T, tokens ...string) uint64 {
		e, seats := companions(t, o, d, epochs, tokens...)
		var before uint64
		at := make([]chan struct{}, len(seats)+1)
		for k := range at {
			at[k] = make(chan struct{})
		}
		close(at[0])
		var first sync.WaitGroup // epochs
		var once sync.Once
		first.Add(len(seats))
		done := make(chan error, len(seats))
		for k, s := range seats {
			go func() {
				<-at[k]
				for batch := range 20 {
					b, err := s.c.ChunkAt(t.Context(), deliver.Position{Job: s.number, Batch: batch})
					if err != nil {
						t.Error(err)
						break
					}
					s.c.Release(b.Lease)
				}
				close(at[k+1])
				err := s.read(0, 20)
				first.Done()
				first.Wait()
				once.Do(func() { before = e.cache.Store.Stats().ReadBytes })
				for epoch := 1; epoch < epochs && err == nil; epoch++ {
					err = s.read(epoch, 0)
				}
				done <- err
			}()
		}
		for range seats {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		noSource(t, e)
		return e.cache.Store.Stats().ReadBytes - before
	}
	var alone, all uint64
	t.Run("one job", func(t *testing.T) { alone = readBytes(t, "first") })
	t.Run("four jobs", func(t *testing.T) { all = readBytes(t, "first", "second", "third", "fourth") })
	if all > alone*14/10 {
		t.Errorf("four jobs with one order read %d bytes after the first epoch, one reads %d", all, alone)
	}
}

// A companion that stops reading holds up the owner until the owner's patience is over, once in an epoch. It still gets the remainder of its epoch.
func TestStoppedCompanionIsLeft(t *testing.T) {
	d, o := secondRun(t, ingest.Options{})
	o.Patience, o.sortAtOnce = 300*time.Millisecond, true
	e, seats := companions(t, o, d, 2, "owner", "stops")
	owner, stops := seats[0], seats[1]
	last := len(owner.orders[0]) - 1
	owner.batch(t, 0, 0)
	stops.batch(t, 0, 0)
	waitFor(t, "the log is read", func() bool { return e.Status().Jobs[0].Layout == cache.LayoutLog })
	areServed(t, e, seats)
	if err := owner.read(0, 1); err != nil {
		t.Fatal(err)
	}
	if r := stops.rank(t); !r.Late || r.Position != 1 {
		t.Errorf("the companion is at batch %d of %d, and late: %v; want 1, and true: else nothing has shown that it is left", r.Position, last, r.Late)
	}
	if err := owner.read(1, 0); err != nil {
		t.Fatal(err)
	}
	if err := stops.read(0, 1); err != nil {
		t.Fatal(err)
	}
	noSource(t, e)
}

// A slower companion that makes progress stays in the window, as long as that costs the owner only a small part of the epoch's time.
func TestCompanionWithProgressIsWaitedFor(t *testing.T) {
	d, o := secondRun(t, ingest.Options{})
	var later atomic.Int64 // nanoseconds that the clock is ahead
	o.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	o.Patience, o.sortAtOnce = 100*time.Millisecond, true
	e, seats := companions(t, o, d, 1, "owner", "slow")
	owner, slow := seats[0], seats[1]
	owner.batch(t, 0, 0)
	slow.batch(t, 0, 0)
	areServed(t, e, seats)
	const begins = 6
	for batch := 1; batch < begins; batch++ { // they take 45 s
		later.Add(int64(9 * time.Second))
		owner.batch(t, 0, batch)
		slow.batch(t, 0, batch)
	}
	before := e.cache.Store.Stats().ReadBytes
	read := make(chan error, 1)
	go func() { read <- owner.read(0, begins) }()
	n := len(owner.orders[0])
	last, pause := time.Now(), time.Duration(0) // the longest time in which the companion received nothing
	for batch := begins; batch < n; batch++ {
		time.Sleep(3 * time.Second / time.Duration(n)) // the model computes: the companion is slower than the owner for many times the patience
		slow.batch(t, 0, batch)
		pause, last = max(pause, time.Since(last)), time.Now()
	}
	if err := <-read; err != nil {
		t.Fatal(err)
	}
	noSource(t, e)
	switch read := e.cache.Store.Stats().ReadBytes - before; {
	case read <= uint64(d.total)*11/10:
	case pause >= o.Patience:
		t.Skipf("the machine is busy: the companion received nothing for %v, and is left after %v without progress", pause, o.Patience)
	default:
		t.Errorf("%d bytes are read for two jobs in one order, which have %d; the companion received nothing for %v at most", read, d.total, pause)
	}
}

// TestGrace: requests that wait at the same time count once. All waits together take at most 1/8 of the time in which the owner receives samples, in this epoch or the previous one.
func TestGrace(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	var g grace
	receive := func(from, to float64) {
		for ; from <= to; from++ {
			g.received(at(from), 10*time.Second)
		}
	}
	receive(0, 7)
	if g.has(at(7), time.Second) {
		t.Error("a second is more than 1/8 of 7 s")
	}
	if receive(8, 8); !g.has(at(8), time.Second) {
		t.Error("a second is 1/8 of 8 s")
	}
	g.take(at(8), time.Second)
	g.take(at(8.5), time.Second) // until 9.5 s
	if g.given != 1500*time.Millisecond {
		t.Errorf("%v were given, want 1.5 s", g.given)
	}
	receive(9, 19)
	if g.has(at(19.9), time.Second) {
		t.Error("2.5 s are more than 1/8 of 19 s")
	}
	if receive(20, 20); !g.has(at(20), time.Second) {
		t.Error("2.5 s are 1/8 of 20 s")
	}
	receive(21, 40)
	g.begin()
	if !g.has(at(40), 5*time.Second) || g.has(at(40), 6*time.Second) {
		t.Error("an epoch that has just begun has 1/8 of the 40 s that the one before took")
	}
	receive(40+3600, 40+3600) // a pause: it counts as 10 s
	receive(40, 40)           // the clock jumps back
	g.begin()
	if g.has(at(3640), 2*time.Second) || !g.has(at(3640), time.Second) {
		t.Error("an hour without a request counts as more than 10 s")
	}
}

// hasGrace reports whether the window would wait for a companion.
func (e *Engine) hasGrace(wait time.Duration) bool {
	e.mu.Lock() // the status document shows no grace, and a companion that shows it would need seconds for each case
	defer e.mu.Unlock()
	return e.grace.has(e.now(), wait)
}

// The owner's pauses, in an epoch or before it, do not change how long the window waits for companions.
func TestPauseGivesNoGrace(t *testing.T) {
	d, o := secondRun(t, ingest.Options{})
	var later atomic.Int64 // nanoseconds that the clock is ahead
	o.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	o.sortAtOnce = true
	e, seats := companions(t, o, d, 2, "owner")
	owner := seats[0]
	for epoch := range 2 {
		for batch := range owner.orders[epoch] {
			if batch == 1 {
				later.Add(int64(time.Hour))
			}
			if owner.batch(t, epoch, batch); e.hasGrace(time.Minute) {
				t.Fatalf("epoch %d, batch %d: the window would wait for a minute, because the owner has paused for an hour", epoch, batch)
			}
		}
		later.Add(int64(time.Hour))
	}
	noSource(t, e)
}

// A job that becomes the owner is not delayed because the previous owner's epochs were long.
func TestNewOwnerGivesItsOwnGrace(t *testing.T) {
	d, o := secondRun(t, ingest.Options{})
	var later atomic.Int64 // nanoseconds that the clock is ahead
	o.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	o.sortAtOnce = true
	e, seats := companions(t, o, d, 1, "before", "next")
	before, next := seats[0], seats[1]
	for batch := range 12 {
		before.batch(t, 0, batch)
		later.Add(int64(9 * time.Second))
	}
	if !e.hasGrace(5 * time.Second) {
		t.Fatal("the owner gives no grace, so nothing is shown")
	}
	before.leave()
	next.batch(t, 0, 0)
	waitFor(t, "another job owns the log", func() bool {
		e.nudge()
		return statusOfJob(t, e, "next").Owner
	})
	if e.hasGrace(5 * time.Second) {
		t.Error("the window would wait as long as the owner before would have")
	}
}

// A companion that was left behind in an epoch without a next one is not waited for when it continues: its segments were evicted, and would be read for it alone.
func TestLateCompanionStaysLate(t *testing.T) {
	d, o := secondRun(t, ingest.Options{})
	o.Patience, o.sortAtOnce = 300*time.Millisecond, true
	e, seats := companions(t, o, d, 1, "owner", "slow")
	owner, slow := seats[0], seats[1]
	owner.batch(t, 0, 0)
	slow.batch(t, 0, 0)
	areServed(t, e, seats)
	for batch := 1; batch < len(owner.orders[0])-1; batch++ {
		owner.batch(t, 0, batch)
	}
	if !slow.rank(t).Late {
		t.Fatal("the companion is not late, so nothing is shown")
	}
	for batch := 1; batch < 20; batch++ {
		slow.batch(t, 0, batch)
		if !slow.rank(t).Late {
			t.Fatalf("the companion is at batch %d, the owner at %d, and the window waits for it", batch, owner.rank(t).Position)
		}
	}
	noSource(t, e)
}

// A companion that stops, and has no order for the next epoch, does not keep slots of the previous epoch forever.
func TestCompanionWithoutNextOrder(t *testing.T) {
	d, o := secondRun(t, ingest.Options{})
	o.Patience, o.sortAtOnce = 300*time.Millisecond, true
	e, seats := companions(t, o, d, 1, "owner", "stops")
	owner, stops := seats[0], seats[1]
	r := rand.New(rand.NewPCG(7, 7))
	const last = 4
	for epoch := 1; epoch <= last; epoch++ {
		if err := owner.push(r, epoch, len(d.bytes)); err != nil {
			t.Fatal(err)
		}
	}
	owner.batch(t, 0, 0)
	stops.batch(t, 0, 0)
	areServed(t, e, seats)
	n := len(owner.orders[0])
	for batch := 1; batch < n; batch++ {
		owner.batch(t, 0, batch)
		if batch < n-20 {
			stops.batch(t, 0, batch)
		}
	}
	for epoch := 1; epoch <= last; epoch++ {
		if err := owner.read(epoch, 0); err != nil {
			t.Fatal(err)
		}
	}
	logsBecome(t, e, "the log is in the order of the epoch that the owner has read", isAt(last))
	if !stops.rank(t).Late {
		t.Error("the companion that has stopped is not late")
	}
	noSource(t, e)
}

// Nothing is read for a rank that has finished its last epoch.
func TestNothingIsReadAfterTheLastEpoch(t *testing.T) {
	d, o := secondRun(t, ingest.Options{})
	o.sortAtOnce = true
	var looks atomic.Int64 // at the clock
	o.Now = func() time.Time { looks.Add(1); return time.Now() }
	e, seats := companions(t, o, d, 1, "alone")
	e.lookUp(seats[0].number).schedule.SetEpochs(1)
	seats[0].batch(t, 0, 0)
	logsBecome(t, e, "the log is in the order of epoch 0", isAt(0))
	if err := seats[0].read(0, 1); err != nil {
		t.Fatal(err)
	}
	logsBecome(t, e, "the mover waits", func(l logfiles) bool { return l.waits })
	before := e.cache.Store.Stats().ReadBytes
	looked := looks.Load()
	waitFor(t, "the mover takes turns", func() bool {
		e.nudge()
		return looks.Load() > looked+1000
	})
	if after := e.cache.Store.Stats().ReadBytes; after != before {
		t.Errorf("%d bytes were read after the last epoch", after-before)
	}
	if before > uint64(d.total)*23/10 { // once for the sort, and once for the epoch
		t.Errorf("%d bytes were read in all, of a dataset of %d", before, d.total)
	}
}

// The comparisons of both Logfiles' epochs are kept, however far apart the epochs are.
func TestOrdersAreComparedOnce(t *testing.T) {
	order := [][]sample.Index{{2, 1}, {0}}
	jobWith := func(number int) *job {
		s, err := schedule.New(schedule.Job{}, 3)
		if err == nil {
			err = s.Claim(1, 0, 0, func(int) bool { return false })
		}
		for _, epoch := range []int{1, 5} {
			if err == nil {
				_, _, err = s.Push(t.Context(), schedule.Pusher{Pid: 1}, epoch, 0, schedule.Cut(order), func(int, int) bool { return false })
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		j := &job{number: number, token: "job", users: 1, schedule: s, ranks: map[int]*rank{}, alike: map[int]bool{}}
		j.rank(0).asked = time.Now()
		return j
	}
	owner, other := jobWith(1), jobWith(2)
	e := &Engine{owner: owner, jobs: map[int]*job{1: owner, 2: other}}
	e.cur, e.tgt = &reorder.EpochLog{Epoch: 5}, &reorder.EpochLog{Epoch: 1}
	e.compareOrders()
	if want := map[int]bool{1: true, 5: true}; !maps.Equal(other.alike, want) {
		t.Errorf("compared: %v, want %v", other.alike, want)
	}
}

// A faster companion makes no rank of the owner late, and does not make another companion late that waits for the owner. The prefetcher reads ahead for it with random reads.
func TestCompanionLeavesTheOwnerInTime(t *testing.T) {
	d, o := secondRun(t, ingest.Options{})
	o.Patience, o.sortAtOnce = 300*time.Millisecond, true
	e, seats := companions(t, o, d, 2, "owner", "faster", "mate")
	owner, faster, mate := seats[0], seats[1], seats[2]
	for _, s := range seats {
		s.batch(t, 0, 0)
	}
	areServed(t, e, seats)
	if err := faster.read(0, 1); err != nil {
		t.Fatal(err)
	}
	if owner.rank(t).Late {
		t.Error("the owner is late, because a companion was faster")
	}
	if mate.rank(t).Late {
		t.Error("a companion that keeps up with the owner is late, because another one was faster")
	}
	if err := owner.read(0, 1); err != nil {
		t.Fatal(err)
	}
	noSource(t, e)
}

// A job whose order changes stops being a companion, and gets the order that it pushed.
func TestChangedOrderEndsTheSharing(t *testing.T) {
	d, o := secondRun(t, ingest.Options{})
	o.sortAtOnce = true
	e, seats := companions(t, o, d, 2, "owner", "changes")
	owner, changes := seats[0], seats[1]
	owner.batch(t, 0, 0)
	changes.batch(t, 0, 0)
	isLike := func() bool {
		e.nudge()
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.jobs[changes.number].alike[0]
	}
	waitFor(t, "both jobs have one order", isLike)
	if err := changes.push(rand.New(rand.NewPCG(6, 6)), 0, len(d.bytes)); err != nil {
		t.Fatal(err)
	}
	if isLike() {
		t.Error("a job with another order is a companion still")
	}
	done := make(chan error, 1)
	go func() { done <- changes.read(0, 0) }()
	if err := owner.read(0, 1); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	noSource(t, e)
}
