package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/internal/serve/status"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/sample"
)

// TestStatusOfTheEpoch: the epoch's hits, misses and source bytes begin at 0 with each epoch, while the job's only grow. Between
// two epochs they show the previous epoch, whose rank is finished.
func TestStatusOfTheEpoch(t *testing.T) {
	d := makeDataset(t, 200, func(*rand.Rand, int) int { return 10_000 })
	j := samplerJob(3, 20, 1, false)
	o, _ := ingested(t, d, ingest.Options{Job: j, Block: 128 << 10, Memory: 24 << 20, NoPrefill: true})
	o.Patience = 20 * time.Second // a request that stops waiting reads samples by index that the scan reads, too
	e := open(t, o)
	defer closeEngine(t, e)
	for epoch := range 3 {
		d.readEpochs(t, e, j, epoch, epoch+1)
		s := e.Status().Jobs[0]
		done := s.EpochsDone[epoch]
		if s.HitsEpoch != done.Hits || s.MissesEpoch != done.Misses || s.SourceBytesEpoch != done.SourceBytes || s.HitsEpoch+s.MissesEpoch != 200 {
			t.Errorf("epoch %d: %d hits, %d misses and %d bytes; the epoch has %+v", epoch, s.HitsEpoch, s.MissesEpoch, s.SourceBytesEpoch, done)
		}
		if s.Hits+s.Misses != int64(200*(epoch+1)) {
			t.Errorf("epoch %d: %d hits and %d misses of the job", epoch, s.Hits, s.Misses)
		}
		if r := s.Ranks[0]; r.Epoch != epoch || !r.Finished {
			t.Errorf("after epoch %d the rank is in %d, finished %v", epoch, r.Epoch, r.Finished)
		}
	}
	if s := e.Status().Jobs[0]; s.SourceBytesEpoch != 0 || s.SourceBytes != d.total {
		t.Errorf("%d bytes of the source in the last epoch, %d in all; want none, and the dataset once", s.SourceBytesEpoch, s.SourceBytes)
	}
}

// TestStatusInTheEpoch looks in the middle of an epoch.
func TestStatusInTheEpoch(t *testing.T) {
	d := makeDataset(t, 200, func(*rand.Rand, int) int { return 10_000 })
	j := samplerJob(2, 20, 1, false)
	o, _ := ingested(t, d, ingest.Options{Job: j, Block: 128 << 10, Memory: 24 << 20})
	e := open(t, o)
	defer closeEngine(t, e)
	d.readEpochs(t, e, j, 0, 1)
	c := attachTo(t, e, os.Getpid())
	for batch := range 3 {
		b, err := c.Chunk(t.Context(), 1, 0, batch)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Release(b.Lease)
	}
	s := e.Status().Jobs[0]
	if s.HitsEpoch != 60 || s.MissesEpoch != 0 || s.Hits != 260 {
		t.Errorf("%d hits and %d misses in the epoch, %d hits in all; want 60, 0 and 260", s.HitsEpoch, s.MissesEpoch, s.Hits)
	}
	waitFor(t, "the mover notes that the rank is in epoch 1", func() bool {
		s = e.Status().Jobs[0]
		return s.Epoch == 1
	})
	if r := s.Ranks[0]; r.Finished || r.Epoch != 1 || r.Position != 3 || r.LeasedBytes < 3*20*10_000 {
		t.Errorf("the rank is %+v; want batch 3 of epoch 1, and what its leases hold", r)
	}
}

// TestRankIsItsConsumers: a worker requests a rank's batches, and another process, which runs the loop, reports. The rank belongs to the loop's process. When that
// process has exited, the rank belongs to the process that sends requests.
func TestRankIsItsConsumers(t *testing.T) {
	d := makeDataset(t, 100, func(*rand.Rand, int) int { return 5_000 })
	j := samplerJob(2, 20, 1, false)
	o, _ := ingested(t, d, ingest.Options{Job: j, Block: 128 << 10, Memory: 24 << 20})
	e := open(t, o)
	defer closeEngine(t, e)
	loop := exec.Command("sleep", "60")
	if err := loop.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { loop.Process.Kill(); loop.Wait() }()
	worker, consumer := attachTo(t, e, os.Getpid()), attachTo(t, e, loop.Process.Pid)
	b, err := worker.Chunk(t.Context(), 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer worker.Release(b.Lease)
	rank := func() status.Rank { return e.Status().Jobs[0].Ranks[0] }
	if got := rank(); got.Pid != os.Getpid() {
		t.Errorf("before a report: process %d, want the one that asks", got.Pid)
	}
	if err := e.Report(Report{Epoch: 0, Rank: 0, Loop: 1, Pid: consumer.Pid}); err != nil {
		t.Fatal(err)
	}
	if got := rank(); got.Pid != loop.Process.Pid || got.LeasedBytes != b.Pinned {
		t.Errorf("with a report: process %d with %d bytes, want the loop's, with the %d of its worker", got.Pid, got.LeasedBytes, b.Pinned)
	}
	consumer.Disconnected()
	if got := rank(); got.Pid != os.Getpid() {
		t.Errorf("the loop's process has gone: process %d, want the one that asks", got.Pid)
	}
}

// jobsNow lists the jobs of the document, the way that people would name them.
func jobsNow(e *Engine) (jobs []string) {
	for _, j := range e.Status().Jobs {
		name := "job " + j.ID
		if j.ID == "" {
			name = "recipe"
		}
		if j.Owner {
			name += " owns"
		}
		if j.Ended {
			name += " ended"
		}
		jobs = append(jobs, name)
	}
	return jobs
}

func waitForJobs(t *testing.T, e *Engine, want ...string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !slices.Equal(jobsNow(e), want); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the document has %q, want %q", jobsNow(e), want)
		}
	}
}

// TestJobsOfTheStatus follows the list of jobs while two of them arrive and one ends. The server's own work is listed once, and no delivery is forgotten.
func TestJobsOfTheStatus(t *testing.T) {
	testenv.AnyIO(t)
	d, o := small(t, samplerJob(3, 16, 1, false))
	o.LateEpoch = 400 * time.Millisecond // a job sleeps after that time, and the owner is one of the others
	e := open(t, o)
	defer closeEngine(t, e)
	waitForJobs(t, e, "recipe owns") // alone it is listed, asked or not
	few, most := d.join(t, e, "few"), d.join(t, e, "most")
	waitForJobs(t, e, "job few", "job most")
	r := rand.New(rand.NewPCG(4, 4))
	if err := errors.Join(few.push(r, 0, 160), few.read(0, 0)); err != nil {
		t.Fatal(err)
	}
	waitForJobs(t, e, "job few owns", "job most")
	if err := errors.Join(most.push(r, 0, len(d.bytes)), most.read(0, 0)); err != nil {
		t.Fatal(err)
	}
	waitForJobs(t, e, "job most owns", "job few")
	plain := attach(t, e)
	b, err := plain.Get(t.Context(), []sample.Index{1, 2, 3}, nil)
	if err != nil {
		t.Fatal(err)
	}
	plain.Release(b.Lease)
	waitForJobs(t, e, "job most owns", "recipe", "job few")
	few.leave()
	waitForJobs(t, e, "job most owns", "recipe", "job few ended")
	most.leave()
	waitForJobs(t, e, "recipe owns", "job few ended", "job most ended")

	s := e.Status()
	var sum status.Totals
	for k, j := range s.Jobs {
		sum.ChunksDelivered, sum.SamplesDelivered, sum.BytesDelivered = sum.ChunksDelivered+j.ChunksDelivered, sum.SamplesDelivered+j.SamplesDelivered, sum.BytesDelivered+j.BytesDelivered
		sum.Hits, sum.PrefetchedSamples = sum.Hits+j.Hits, sum.PrefetchedSamples+j.PrefetchedSamples
		if j.KeptBytes == 0 || j.KeptBytes != s.Jobs[0].KeptBytes || j.Name == "" || (j.SegmentBytes > 0) != (k == 0) || (j.LogReadBytes > 0) != (k == 0) {
			t.Errorf("entry %d: %+v; want the dataset's figures in each entry, and the server's only in the first", k, j)
		}
	}
	if got := s.Totals; got.SamplesDelivered != int64(160+len(d.bytes)+3) || got.SamplesDelivered != sum.SamplesDelivered || got.ChunksDelivered != sum.ChunksDelivered ||
		got.BytesDelivered != sum.BytesDelivered || got.Hits != sum.Hits || got.PrefetchedSamples != sum.PrefetchedSamples || got.LogReadBytes != s.Jobs[0].LogReadBytes {
		t.Errorf("totals %+v, the jobs' sums %+v", got, sum)
	}
}

// TestSourceOfJobs: a read of the source counts for the job that it is for.
func TestSourceOfJobs(t *testing.T) {
	d := makeDataset(t, 400, func(*rand.Rand, int) int { return 5_000 })
	o, _ := ingested(t, d, ingest.Options{Job: samplerJob(1, 20, 1, false), Block: 128 << 10, Memory: 24 << 20, NoPrefill: true}) // one epoch: nothing after it is read ahead
	o.Layout = "static"
	e := open(t, o)
	defer closeEngine(t, e)
	half := func(from int) (indices []sample.Index) {
		for i := range 200 {
			indices = append(indices, sample.Index(from+i))
		}
		return indices
	}
	read := map[string]int64{}
	for from, token := range map[int]string{0: "a", 200: "b"} {
		s := d.join(t, e, token)
		defer s.leave()
		for batch := range slices.Chunk(half(from), 20) {
			s.orders[0] = append(s.orders[0], batch)
		}
		if err := errors.Join(e.PushOf(s.number, schedule.Pusher{Pid: os.Getpid(), Session: s.c.Token}, 0, 0, schedule.Cut(s.orders[0])), s.read(0, 0)); err != nil {
			t.Fatal(err)
		}
		got := statusOfJob(t, e, token)
		if read[token] = got.SourceBytes; got.SourceBytes != 200*5_000 || got.SourceReads != 200 || got.Misses != 200 || got.EpochsDone[0].SourceBytes != 200*5_000 {
			t.Errorf("job %s: %d bytes in %d reads, %d misses, %+v; want its half of the dataset", token, got.SourceBytes, got.SourceReads, got.Misses, got.EpochsDone)
		}
	}
	if s := e.Status(); s.Totals.SourceBytes != d.total || s.Totals.Misses != 400 {
		t.Errorf("%d bytes and %d misses in all, want the dataset once", s.Totals.SourceBytes, s.Totals.Misses)
	}
}

// TestReadiness: a batch that is in memory when its rank requests it is ready; an unplanned one is not.
func TestReadiness(t *testing.T) {
	d := makeDataset(t, 200, func(*rand.Rand, int) int { return 5_000 })
	o, _ := ingested(t, d, ingest.Options{Job: samplerJob(1, 20, 1, false), Block: 128 << 10, Memory: 24 << 20})
	o.Layout = "static"
	e := open(t, o)
	defer closeEngine(t, e)
	if s := e.Status().Jobs[0]; s.Readiness != nil || s.PrefetchedSamples != 0 {
		t.Errorf("before the first batch: %v, %d samples", s.Readiness, s.PrefetchedSamples)
	}
	c := attach(t, e)
	for batch := range 10 {
		b, err := c.Chunk(t.Context(), 0, 0, batch)
		if err != nil {
			t.Fatal(err)
		}
		c.Release(b.Lease)
		waitFor(t, fmt.Sprintf("batch %d is read ahead", batch+1), func() bool { return batch == 9 || e.Status().Jobs[0].ReadyBatches > 0 })
	}
	s := e.Status().Jobs[0]
	if s.Readiness == nil || *s.Readiness < 0.9 || *s.Ranks[0].Readiness != *s.Readiness || s.PrefetchedSamples < 180 || s.PrefetchedSamples > 200 {
		t.Errorf("%v ready, of the rank %v, %d samples were there; want all but the first batch", s.Readiness, s.Ranks[0].Readiness, s.PrefetchedSamples)
	}
	ready := *s.Readiness
	b, err := c.Get(t.Context(), []sample.Index{7}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Release(b.Lease)
	if s := e.Status().Jobs[0]; *s.Readiness >= ready || *s.Ranks[0].Readiness != ready {
		t.Errorf("after an unpredicted sample %v ready, of the rank %v; want less than %v, and of the rank as much", *s.Readiness, *s.Ranks[0].Readiness, ready)
	}
}

// TestMemoryWithinItsLimit: at every moment the memory in use is within its limit, and both are sums of named parts.
func TestMemoryWithinItsLimit(t *testing.T) {
	d := makeDataset(t, 3_000, func(*rand.Rand, int) int { return 64 })
	j := samplerJob(3, 100, 1, false)
	o, _ := ingested(t, d, ingest.Options{Job: j, Block: 128 << 10, Memory: 24 << 20})
	e := open(t, o)
	defer closeEngine(t, e)
	over := make(chan struct{})
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		for {
			s := e.Status()
			if s.MemoryBytes > s.MemoryLimitBytes || s.MemoryLimitBytes > 24<<20 {
				t.Errorf("%d bytes of memory are taken, the limit is %d of the %d given", s.MemoryBytes, s.MemoryLimitBytes, 24<<20)
			}
			if sum := s.Shared + s.Buffers + s.Scratch + s.Index; sum != s.MemoryBytes || s.Shared == 0 || s.Index == 0 {
				t.Errorf("parts of %+v make %d, not %d", s.Memory, sum, s.MemoryBytes)
			}
			if n := int64(len(d.bytes)); s.Index > n*int64(e.cache.Facts().TableBytes) {
				t.Errorf("tables of %d bytes, %d a sample", s.Index, s.Index/n)
			}
			if s.RSS != s.RSSShared+s.RSSFiles+s.RSSPrivate || s.RSS <= 0 {
				t.Errorf("resident: %+v", s.Memory)
			}
			select {
			case <-over:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	d.readEpochs(t, e, j, 0, 3)
	close(over)
	<-looked
}

func TestResident(t *testing.T) {
	for text, want := range map[string]status.Memory{
		"Name:\tlcache\nVmRSS:\t     600 kB\nRssAnon:\t     100 kB\nRssFile:\t     200 kB\nRssShmem:\t     300 kB\n": {RSS: 600 << 10, RSSPrivate: 100 << 10, RSSFiles: 200 << 10, RSSShared: 300 << 10},
		"Name:\tRssAnon:\nRssAnon:\tmany kB\nRssFile:\t7 MB\nRssShmem:":                                              {},
		"": {},
	} {
		var m status.Memory
		if fillResident(&m, []byte(text)); m != want {
			t.Errorf("%q: got %+v, want %+v", text, m, want)
		}
	}
}

func attachTo(t *testing.T, e *Engine, pid int) *deliver.Client {
	t.Helper()
	c, _, err := e.Attach(pid, "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}
