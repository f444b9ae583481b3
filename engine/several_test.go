package engine

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"lcache/internal/plan"
	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/internal/serve/status"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/sample"
)

// seat is a job in a test.
type seat struct {
	d      *dataset
	e      *Engine
	token  string
	number int
	c      *deliver.Client
	orders map[int][][]sample.Index // by epoch: the pushed order
}

func (d *dataset) join(t testing.TB, e *Engine, token string) *seat {
	t.Helper()
	n, err := e.Join(token)
	if err != nil {
		t.Fatal(err)
	}
	return &seat{d: d, e: e, token: token, number: n, c: attach(t, e), orders: map[int][][]sample.Index{}}
}

func (s *seat) leave() {
	s.c.Disconnected()
	s.e.Leave(s.number)
}

// push pushes a random order of some samples for an epoch.
func (s *seat) push(r *rand.Rand, epoch, samples int) error {
	var order [][]sample.Index
	for batch := range slices.Chunk(r.Perm(len(s.d.bytes))[:samples], 16) {
		var indices []sample.Index
		for _, i := range batch {
			indices = append(indices, sample.Index(i))
		}
		order = append(order, indices)
	}
	s.orders[epoch] = order
	return s.e.PushOf(s.number, schedule.Pusher{Pid: os.Getpid(), Session: s.c.Token}, epoch, 0, schedule.Cut(order))
}

// read reads batches of a pushed epoch, up to its end, and compares indices and bytes.
func (s *seat) read(epoch, from int) error {
	for b := from; ; b++ {
		got, err := s.c.ChunkAt(context.Background(), deliver.Position{Job: s.number, Epoch: epoch, Batch: b})
		if errors.Is(err, io.EOF) && b == len(s.orders[epoch]) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("job %d epoch %d batch %d: %w", s.number, epoch, b, err)
		}
		if !slices.Equal(got.Indices, s.orders[epoch][b]) {
			return fmt.Errorf("job %d epoch %d batch %d: %v, pushed were %v", s.number, epoch, b, got.Indices, s.orders[epoch][b])
		}
		if err := s.d.check(s.e, got); err != nil {
			return fmt.Errorf("job %d epoch %d batch %d: %w", s.number, epoch, b, err)
		}
		s.c.Release(got.Lease)
	}
}

// digest returns the digest of a whole epoch.
func (s *seat) digest(epoch int) string {
	h := sha256.New()
	for _, batch := range s.orders[epoch] {
		for _, index := range batch {
			h.Write(binary.LittleEndian.AppendUint32(nil, index))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// statusOfJob returns a job's entry in the status document.
func statusOfJob(t testing.TB, e *Engine, token string) status.Job {
	t.Helper()
	for _, j := range e.Status().Jobs {
		if j.ID == token {
			return j
		}
	}
	t.Fatalf("the status document has no job %q", token)
	return status.Job{}
}

// Concurrent jobs get their pushed orders, are counted separately, and read nothing from the source: training and validation, searches, and the server's own recipe.
func TestSeveralJobs(t *testing.T) { inLayouts(t, testSeveralJobs) }

func testSeveralJobs(t *testing.T, layout string) {
	j := samplerJob(3, 16, 1, false)
	d, o := small(t, j)
	o.Layout, o.Patience = layout, 5*time.Second // samples that a slow disk delivers late count as read by index
	e := open(t, o)
	defer closeEngine(t, e)
	const epochs = 3
	samples := map[string]int{"train": len(d.bytes), "validation": 200, "search": 700}
	seats := map[string]*seat{}
	var readers sync.WaitGroup
	for token, n := range samples {
		s := d.join(t, e, token)
		seats[token] = s
		r := rand.New(rand.NewPCG(uint64(n), 3))
		readers.Go(func() {
			defer s.leave()
			for epoch := range epochs {
				for _, ahead := range []int{epoch, epoch + 1} {
					if s.orders[ahead] == nil && ahead < epochs {
						if err := s.push(r, ahead, n); err != nil {
							t.Error(err)
							return
						}
					}
				}
				if err := s.read(epoch, 0); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	readers.Go(func() { d.readEpochs(t, e, j, 0, epochs) })
	readers.Wait()
	for token, n := range samples {
		s := statusOfJob(t, e, token)
		if s.SamplesDelivered != int64(epochs*n) || s.Misses != 0 || s.Divergences != 0 || len(s.EpochsDone) != epochs {
			t.Errorf("%s: %d samples, %d misses, %d divergences, %d epochs; want %d samples and %d epochs alone", token, s.SamplesDelivered, s.Misses, s.Divergences,
				len(s.EpochsDone), epochs*n, epochs)
			continue
		}
		for k, done := range s.EpochsDone {
			if want := seats[token].digest(k); done.OrderDigest == nil || *done.OrderDigest != want {
				t.Errorf("%s epoch %d: digest %v, want %s", token, k, done.OrderDigest, want)
			}
		}
	}
	noSource(t, e)
	if s := statusOfJob(t, e, ""); s.SamplesDelivered != int64(epochs*len(d.bytes)) {
		t.Errorf("the recipe's job has %d samples, want %d", s.SamplesDelivered, epochs*len(d.bytes))
	}
}

// Jobs that begin, go back, change their orders, sleep and leave at any time get the right bytes, and the source is not read.
func TestJobsComeAndGo(t *testing.T) { inLayouts(t, testJobsComeAndGo) }

func testJobsComeAndGo(t *testing.T, layout string) {
	d, o := small(t, samplerJob(4, 16, 1, false))
	o.Layout, o.LateEpoch = layout, 200*time.Millisecond
	e := open(t, o)
	defer closeEngine(t, e)
	seed, _ := drawSeed(t)
	var readers sync.WaitGroup
	lives := testenv.Pick(3, 2)
	for k := range 4 {
		r := rand.New(rand.NewPCG(seed, uint64(k)))
		readers.Go(func() {
			for life := range lives {
				token := fmt.Sprintf("job-%d-%d", k, life)
				n, err := e.Join(token)
				if err != nil {
					t.Error(err)
					return
				}
				s := &seat{d: d, e: e, token: token, number: n, c: attach(t, e), orders: map[int][][]sample.Index{}}
				for range 4 {
					epoch := r.IntN(3)
					if s.orders[epoch] == nil || r.IntN(2) == 0 {
						err = s.push(r, epoch, 16+r.IntN(len(d.bytes)-16))
					}
					if err == nil {
						err = s.read(epoch, r.IntN(len(s.orders[epoch])))
					}
					if err != nil {
						t.Errorf("seed %d: %v", seed, err)
						break
					}
					if r.IntN(3) == 0 {
						time.Sleep(2 * o.LateEpoch) // the job sleeps until others may own the log
					}
				}
				s.leave()
			}
		})
	}
	readers.Wait()
	noSource(t, e)
	waitFor(t, "all jobs are over, except the recipe's", func() bool {
		jobs := e.Status().Jobs
		over := slices.DeleteFunc(slices.Clone(jobs), func(j status.Job) bool { return !j.Ended })
		return len(jobs) == len(over)+1 && len(over) == 4*lives
	})
}

// The job that reads most owns the log, whichever connected first, and reads it in order.
func TestLargestJobOwns(t *testing.T) {
	d, o := small(t, samplerJob(8, 16, 1, false))
	o.LateEpoch = 300 * time.Millisecond
	e := open(t, o)
	defer closeEngine(t, e)
	check, train := d.join(t, e, "sanity check"), d.join(t, e, "train")
	defer check.leave()
	defer train.leave()
	r := rand.New(rand.NewPCG(1, 1))
	if err := errors.Join(check.push(r, 0, 160), check.read(0, 0)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the only job that reads owns the log", func() bool { return statusOfJob(t, e, "sanity check").Owner })
	for epoch := range 8 {
		if train.orders[epoch] == nil {
			if err := train.push(r, epoch, len(d.bytes)); err != nil {
				t.Fatal(err)
			}
		}
		if epoch+1 < 8 {
			if err := train.push(r, epoch+1, len(d.bytes)); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(train.read(epoch, 0), check.push(r, epoch, 160), check.read(epoch, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if !statusOfJob(t, e, "train").Owner || statusOfJob(t, e, "sanity check").Owner {
		t.Error("the job that reads 1,200 samples an epoch does not own the log, but the one that reads 160")
	}
	if s := noSource(t, e); s.LogWriteBytes == 0 {
		t.Error("nothing was reordered for the job that owns the log")
	}
	last := func(token string) status.Epoch { done := statusOfJob(t, e, token).EpochsDone; return done[len(done)-1] }
	if own, other := last("train"), last("sanity check"); own.LogReadBytes == 0 || other.LogReadBytes != 0 || other.LogWriteBytes != 0 {
		t.Errorf("the log's figures do not stand with its owner's epochs: %+v, and %+v", own, other)
	}
}

func TestChooseOwner(t *testing.T) {
	train := contender{number: 1, samples: 1000, active: true}
	between := contender{number: 1, samples: 1000, active: true, between: true}
	tests := []struct {
		name  string
		jobs  []contender
		owner int
		want  int
	}{
		{"no job reads", []contender{{number: 0}, {number: 1}}, 0, 0},
		{"the first that reads", []contender{{number: 0}, train}, 0, 1},
		{"a check before training", []contender{{number: 1, samples: 10, active: true, between: true}, {number: 2, samples: 1000, active: true}}, 1, 2},
		{"a check in the middle of its epoch", []contender{{number: 1, samples: 10, active: true}, {number: 2, samples: 1000, active: true}}, 1, 1},
		{"an additional smaller one", []contender{between, {number: 2, samples: 999, active: true}}, 1, 1},
		{"an equal one: the owner stays", []contender{between, {number: 2, samples: 1000, active: true}}, 2, 2},
		{"equal ones: the first", []contender{train, {number: 2, samples: 1000, active: true}, {number: 3}}, 3, 1},
		{"no order is known", []contender{{number: 0}, {number: 2, active: true}}, 0, 0},
		{"the owner sleeps", []contender{{number: 1, samples: 1000}, {number: 2, samples: 10, active: true}}, 1, 2},
		{"a look, and training after it", []contender{{number: 1, samples: 10, active: true, sleeps: true}, {number: 2, samples: 1000, active: true}}, 1, 2},
		{"training that waits for a check", []contender{{number: 1, samples: 1000, active: true, sleeps: true}, {number: 2, samples: 10, active: true}}, 1, 1},
		{"after a restart: the one whose order the log is in", []contender{train, {number: 2, samples: 10, active: true, fits: true}}, 1, 2},
		{"after a restart: it does not read yet", []contender{train, {number: 2, samples: 1000, fits: true}}, 1, 1},
		{"all sleep", []contender{{number: 1, samples: 1000}, {number: 2, samples: 10}}, 1, 1},
	}
	for _, tt := range tests {
		if got := chooseOwner(tt.jobs, tt.owner); got != tt.want {
			t.Errorf("%s: job %d, want %d", tt.name, got, tt.want)
		}
	}
}

// Beyond --jobs-max a job still gets its batches, and is read ahead for when another one is over.
func TestJobsMax(t *testing.T) {
	d, o := small(t, samplerJob(2, 16, 1, false))
	o.JobsMax, o.LateEpoch = 1, 100*time.Millisecond
	e := open(t, o)
	defer closeEngine(t, e)
	first, second := d.join(t, e, "first"), d.join(t, e, "second")
	defer second.leave()
	r := rand.New(rand.NewPCG(2, 2))
	for _, s := range []*seat{first, second} {
		if err := errors.Join(s.push(r, 0, 300), s.read(0, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if f, s := statusOfJob(t, e, "first"), statusOfJob(t, e, "second"); f.OnDemand || !s.OnDemand || s.SamplesDelivered != 300 {
		t.Errorf("on demand: %v, %v (%d samples)", f.OnDemand, s.OnDemand, s.SamplesDelivered)
	}
	first.leave()
	waitFor(t, "a job is read ahead for when the other one is over", func() bool { return !statusOfJob(t, e, "second").OnDemand })
	if err := errors.Join(second.push(r, 1, 300), second.read(1, 0)); err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"", string(make([]byte, mostToken+1))} {
		if _, err := e.Join(token); err == nil {
			t.Errorf("a token of %d bytes was taken", len(token))
		}
	}
	if same, err := e.Join("second"); err != nil || same != second.number {
		t.Errorf("the same token is job %d (%v), want %d", same, err, second.number)
	}
	e.Leave(second.number)
}

// A server that starts under running jobs gives the log to the job that owned it, although another job sends a request first.
func TestOwnsAfterRestart(t *testing.T) {
	d := makeDataset(t, 1200, func(r *rand.Rand, _ int) int { return r.IntN(30_000) })
	o, _ := ingested(t, d, ingest.Options{Block: 128 << 10, Memory: 24 << 20})
	o.sortAtOnce = true // epochs may be shorter than the time that a choice takes
	e := open(t, o)
	train, search := d.join(t, e, "train"), d.join(t, e, "search")
	r := rand.New(rand.NewPCG(3, 1))
	for epoch := range 2 {
		if err := errors.Join(train.push(r, epoch, len(d.bytes)), train.push(r, epoch+1, len(d.bytes)), train.read(epoch, 0)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(search.push(r, epoch, len(d.bytes)), search.read(epoch, 0)); err != nil {
			t.Fatal(err)
		}
	}
	logsBecome(t, e, "the log is in the order of the next epoch", func(l logfiles) bool {
		return statusOfJob(t, e, "train").Owner && l.read == 2 || l.target == 2
	})
	train.leave()
	search.leave()
	closeEngine(t, e)

	o.sortAtOnce = false
	o.Begin = func(plan.Beginning) plan.Choice { return plan.Wait } // nothing is begun before the owner is there
	e = open(t, o)
	defer closeEngine(t, e)
	again := d.join(t, e, "search")
	defer again.leave()
	if err := again.push(r, 2, len(d.bytes)); err != nil {
		t.Fatal(err)
	}
	if b, err := again.c.ChunkAt(context.Background(), deliver.Position{Job: again.number, Epoch: 2}); err != nil {
		t.Fatal(err)
	} else {
		again.c.Release(b.Lease)
	}
	waitFor(t, "the job that is there owns the log", func() bool { return statusOfJob(t, e, "search").Owner })
	late := d.join(t, e, "train")
	defer late.leave()
	late.orders[2] = train.orders[2]
	if err := e.PushOf(late.number, schedule.Pusher{Pid: os.Getpid(), Session: late.c.Token}, 2, 0, schedule.Cut(late.orders[2])); err != nil {
		t.Fatal(err)
	}
	if b, err := late.c.ChunkAt(context.Background(), deliver.Position{Job: late.number, Epoch: 2}); err != nil {
		t.Fatal(err)
	} else {
		late.c.Release(b.Lease)
	}
	waitFor(t, "the job whose order the log is in owns it", func() bool { return statusOfJob(t, e, "train").Owner })
	logsBecome(t, e, "the log is in the order of epoch 2", isAt(2))
	if err := late.read(2, 1); err != nil {
		t.Fatal(err)
	}
	noSource(t, e)
}

// Jobs that request the same samples at about the same time cause one read: a search over the same order, a few batches behind.
func TestJobsShareReads(t *testing.T) {
	d, o := small(t, samplerJob(2, 16, 1, false))
	o.Layout, o.Patience = cache.LayoutStatic, 5*time.Second
	readBytes := func(jobs ...string) int64 {
		e := open(t, o)
		defer closeEngine(t, e)
		var order [][]sample.Index
		var seats []*seat
		for _, token := range jobs {
			s := d.join(t, e, token)
			defer s.leave()
			if order == nil {
				if err := s.push(rand.New(rand.NewPCG(4, 4)), 0, len(d.bytes)); err != nil {
					t.Fatal(err)
				}
				order = s.orders[0]
			} else if err := e.PushOf(s.number, schedule.Pusher{Pid: os.Getpid(), Session: s.c.Token}, 0, 0, schedule.Cut(order)); err != nil {
				t.Fatal(err)
			}
			seats = append(seats, s)
		}
		for n, s := range seats { // each has batches read ahead before the first goes on
			s.take(t, 0)
			waitFor(t, "batches that are ready", func() bool { return statusOfJob(t, e, jobs[n]).ReadyBatches > 2 })
		}
		for batch := 1; batch < len(order); batch++ {
			for _, s := range seats {
				s.take(t, batch)
			}
		}
		return noSource(t, e).LogReadBytes
	}
	alone, both := readBytes("first"), readBytes("first", "second", "third")
	if both > alone*3/2 { // three times without sharing
		t.Errorf("three jobs in the same order read %d bytes, one reads %d", both, alone)
	}
}

// take reads one batch of epoch 0.
func (s *seat) take(t *testing.T, batch int) {
	t.Helper()
	b, err := s.c.ChunkAt(context.Background(), deliver.Position{Job: s.number, Batch: batch})
	if err == nil {
		err = s.d.check(s.e, b)
		s.c.Release(b.Lease)
	}
	if err != nil {
		t.Fatalf("batch %d: %v", batch, err)
	}
}

// A job without connections does not count towards the jobs that are read ahead for, although it is not over yet.
func TestJobsMaxCountsConnected(t *testing.T) {
	d, o := small(t, samplerJob(2, 16, 1, false))
	o.JobsMax, o.LateEpoch = 1, time.Hour
	e := open(t, o)
	defer closeEngine(t, e)
	for _, token := range []string{"a", "b", "a"} {
		s := d.join(t, e, token)
		if statusOfJob(t, e, token).OnDemand {
			t.Errorf("%s is served on demand, want read ahead: it is the only connected job", token)
		}
		s.leave()
	}
	a, b := d.join(t, e, "a"), d.join(t, e, "b")
	if !statusOfJob(t, e, "b").OnDemand {
		t.Error("both are read ahead for")
	}
	a.leave()
	if statusOfJob(t, e, "b").OnDemand {
		t.Error("nothing is read ahead although the other job has left")
	}
	b.leave()
}

// An owner that leaves in the middle of an epoch is replaced at once: a restarted program, or a notebook's cell, is a job of its own.
func TestOwnerLeaves(t *testing.T) {
	d, o := small(t, samplerJob(3, 16, 1, false))
	o.LateEpoch = time.Hour
	e := open(t, o)
	defer closeEngine(t, e)
	before, after := d.join(t, e, "before"), d.join(t, e, "after")
	defer after.leave()
	r := rand.New(rand.NewPCG(5, 5))
	if err := before.push(r, 0, len(d.bytes)); err != nil {
		t.Fatal(err)
	}
	before.take(t, 0)
	waitFor(t, "the only job that reads owns the log", func() bool { return statusOfJob(t, e, "before").Owner })
	if err := after.push(r, 0, len(d.bytes)); err != nil {
		t.Fatal(err)
	}
	after.take(t, 0)
	before.leave()
	after.take(t, 1)
	waitFor(t, "the job that is left owns the log", func() bool { return statusOfJob(t, e, "after").Owner })
}
