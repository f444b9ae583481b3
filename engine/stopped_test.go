package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"lcache/internal/serve/deliver"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/sample"
	"lcache/source"
)

// TestCleanStops stops a server again and again, at random moments: in the middle of epochs and of a reorder, between two epochs, before the first request,
// while requests wait. It is started again, and the job continues at its position. No sample that the log holds comes from the source, for any data,
// devices and budget. LCACHE_SEED replays a run.
func TestCleanStops(t *testing.T) {
	runs := testenv.Pick(6, 2)
	if n, err := strconv.Atoi(os.Getenv("LCACHE_STOP_RUNS")); err == nil {
		runs = n
	}
	first, replay := drawSeed(t)
	if replay {
		runs = 1
	}
	for i := range runs {
		seed := first + uint64(i)
		t.Run(fmt.Sprintf("LCACHE_SEED=%d", seed), func(t *testing.T) { newStops(t, seed).run() })
	}
}

// TestEpochAfterStop stops a server when the first segments of the next epoch are loaded, and in the middle of an epoch. After the next start those segments are in the
// log of the epoch after that. They are read from there many at once, and not one by one.
func TestEpochAfterStop(t *testing.T) {
	j := samplerJob(4, 16, 1, false)
	d, o := small(t, j)
	e := open(t, o)
	c := attach(t, e)
	d.readOne(t, e, c, j, 0, 0, 0)
	c.Disconnected()
	waitFor(t, "the pass begins with epoch 1", func() bool { return e.scan.Stats.Verified.Load() > int64(len(d.bytes)*21/20) })
	closeEngine(t, e)

	e = open(t, o)
	c = attach(t, e)
	half := len(d.bytes) / j.BatchSize / 2
	for batch := range half {
		d.readChunk(t, e, c, 1, 0, batch)
	}
	c.Disconnected()
	most := int64(0) // samples read one by one
	if !testenv.Timed() {
		most = int64(len(d.bytes)) / 10 // on a busy machine a request may lose its patience
	}
	if s := noSource(t, e); s.RandomReads > most {
		t.Errorf("between epochs: %d samples were read one by one", s.RandomReads)
	}
	closeEngine(t, e)

	e = open(t, o)
	defer closeEngine(t, e)
	c = attach(t, e)
	defer c.Disconnected()
	d.readOne(t, e, c, j, 1, 0, half)
	d.readOne(t, e, c, j, 2, 0, 0)
	s := noSource(t, e)
	if s.RandomReads > most || e.scan.Stats.Supplied.Load() == 0 {
		t.Errorf("in an epoch: %d samples were read one by one, %d supplied", s.RandomReads, e.scan.Stats.Supplied.Load())
	}
	if ops := s.LogReadBytes / int64(e.cache.Format.Block) * 3 / 2; s.LogReadOps > ops+20+most {
		t.Errorf("%d reads for %d bytes, want at most %d", s.LogReadOps, s.LogReadBytes, ops)
	}
}

func waitFor(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what + ": it does not")
		}
	}
}

// stops is one run of TestCleanStops.
type stops struct {
	*dataset
	t    *testing.T
	r    *rand.Rand
	what string
	o    Options
	job  jobOfStops
	once bool // the log was not filled by ingest: each sample may be read once
	e    *Engine

	mu    sync.Mutex // guards the fields that follow
	reads map[string]int
	at    [][2]int // by rank: epoch and batch
}

type jobOfStops struct {
	epochs, batch, world int
	drop                 bool
}

func newStops(t *testing.T, seed uint64) *stops {
	r := rand.New(rand.NewPCG(seed, 1))
	s := &stops{t: t, r: r, reads: map[string]int{}}
	compress, content := "", noisy
	if r.IntN(3) == 0 {
		compress, content = "lz4", mostlyWords
	}
	most := []int{3_000, 20_000, 60_000, 300_000}[r.IntN(4)]
	n := min(3000, 30_000_000/most)
	s.dataset = makeDatasetOf(t, n, func(r *rand.Rand, i int) int { return r.IntN(most) }, content)
	s.job = jobOfStops{epochs: 6, batch: max(1, n/[]int{20, 60, 200}[r.IntN(3)]), world: []int{1, 1, 2}[r.IntN(3)], drop: r.IntN(3) == 0}
	j := samplerJob(s.job.epochs, s.job.batch, s.job.world, s.job.drop)
	in := ingest.Options{Job: j, Block: 128 << 10, Memory: []int64{64 << 20, 100 << 20, 0}[r.IntN(3)], Compress: compress, NoPrefill: r.IntN(4) == 0}
	if r.IntN(2) == 0 {
		in.Dirs = twoDirs(t)
	}
	part := []float64{0, 0, 0.5}[r.IntN(3)]
	if part > 0 {
		in.Budget = int64(part*float64(s.total)) + 6<<20
	}
	s.once = in.NoPrefill
	s.o, _ = ingested(t, s.dataset, in)
	s.o.Patience, s.o.Timeout = 0, 0
	s.at = make([][2]int, s.job.world)
	s.what = fmt.Sprintf("%d samples up to %d, compress %q, %d dirs, batches of %d, %d ranks, budget %v, memory %d, prefill %v", n, most, compress, len(s.o.Dirs), s.job.batch, s.job.world, part,
		in.Memory, !in.NoPrefill)
	s.o.Source = func(from source.Source) source.Source { return &notedSource{from, s} }
	return s
}

// notedSource counts the samples that come from a source.
type notedSource struct {
	source.Source
	s *stops
}

func (n *notedSource) Read(ctx context.Context, entry sample.Entry, dst []byte) error {
	err := n.Source.Read(ctx, entry, dst)
	if err == nil {
		n.s.mu.Lock()
		n.s.reads[entry.Name]++
		n.s.mu.Unlock()
	}
	return err
}

// unneeded lists the samples that were read from the source although the log holds them.
func (s *stops) unneeded() (list []sample.Index) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.e.cache.Manifest.Len() {
		name, err := s.e.cache.Manifest.Name(sample.Index(i))
		if err != nil {
			s.t.Fatal(err)
		}
		n := s.reads[name]
		if s.once {
			n--
		}
		if n > 0 && s.e.cache.Keeps(sample.Index(i)) {
			list = append(list, sample.Index(i))
		}
	}
	return list
}

func (s *stops) run() {
	s.t.Log(s.what)
	var history []string
	for stop := 0; !s.isOver(); stop++ {
		s.e = open(s.t, s.o)
		from := fmt.Sprint(s.at)
		batches := s.r.IntN(1 + len(s.bytes)*3/2/s.job.batch/s.job.world)
		if stop > 15 {
			batches = 1 << 30
		}
		wait := time.Duration(s.r.IntN(4)) * time.Duration(s.r.IntN(20)) * time.Millisecond
		abrupt := s.r.IntN(3) == 0
		s.read(batches, abrupt, wait)
		status := s.e.Status().Jobs[0]
		history = append(history, fmt.Sprintf("from %s: %d batches, abrupt %v, wait %v, to %v: %d source reads, dropped %d, lost %d", from, batches, abrupt, wait, s.at,
			status.SourceReads, status.ReorderDropped, s.e.cache.Store.Stats().LostSamples))
		if list := s.unneeded(); len(list) > 0 || status.ReorderDropped > 0 || status.CorruptSamples+status.StaleSamples > 0 {
			for _, line := range history {
				s.t.Log(line)
			}
			s.t.Errorf("%d samples came from the source (%v), %d dropped, %d corrupt, %d stale", len(list), list[:min(10, len(list))], status.ReorderDropped,
				status.CorruptSamples, status.StaleSamples)
			s.close()
			return
		}
		s.close()
	}
}

func (s *stops) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s.e.Close(ctx); err != nil {
		s.t.Fatalf("close: %v", err)
	}
}

func (s *stops) isOver() bool {
	return !slices.ContainsFunc(s.at, func(at [2]int) bool { return at[0] < s.job.epochs })
}

// read makes each rank read some batches. If abrupt is set, a request is in progress when it returns.
func (s *stops) read(batches int, abrupt bool, wait time.Duration) {
	var ranks sync.WaitGroup
	p := newPace(s.job.world)
	for rank := range s.at {
		c := attach(s.t, s.e)
		ranks.Go(func() {
			defer p.leave(rank)
			for n := range batches {
				p.turn(rank, n)
				if !s.next(c, rank) {
					break
				}
			}
			if abrupt {
				at := s.at[rank]
				go func() {
					if b, err := c.Chunk(context.Background(), at[0], rank, at[1]); err == nil {
						c.Release(b.Lease)
					}
				}()
				return
			}
			c.Disconnected()
		})
	}
	ranks.Wait()
	time.Sleep(wait)
}

// next takes a rank's next batch. It reports whether there was one.
func (s *stops) next(c *deliver.Client, rank int) bool {
	at := &s.at[rank]
	if at[0] >= s.job.epochs {
		return false
	}
	b, err := c.Chunk(context.Background(), at[0], rank, at[1])
	if errors.Is(err, io.EOF) {
		at[0], at[1] = at[0]+1, 0
		return at[0] < s.job.epochs
	}
	if err == nil {
		err = s.check(s.e, b)
		c.Release(b.Lease)
	}
	if err != nil {
		s.t.Errorf("rank %d at %v: %v", rank, *at, err)
		return false
	}
	at[1]++
	return true
}
