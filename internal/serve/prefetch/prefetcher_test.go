package prefetch_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lcache/chunker"
	"lcache/internal/disk/blockio"
	"lcache/internal/serve/fetch"
	"lcache/internal/serve/fetch/fetchtest"
	"lcache/internal/serve/prefetch"
	"lcache/internal/serve/staging"
	"lcache/metaindex"
	"lcache/sample"
)

// readerBed has samples of 3000 bytes. The first logged of them are on disk, in blocks of 64 KiB. orders has the
// order of each rank, the same in each epoch.
type readerBed struct {
	*bed
	t             *testing.T
	r             *prefetch.Prefetcher
	orders        map[int][][]sample.Index
	epochs        atomic.Int64 // number of epochs after the first
	idle          atomic.Int64
	left          func(sample.Index) bool      // samples left to the prefetcher; nil: all
	jobs          bool                         // each rank is a separate job
	passing       bool                         // a scan reads the log for another job
	near          bool                         // neighbours of a sample are read with it
	opportunistic prefetch.OpportunisticMemory // nil: no opportunistic reads
	counts        [4]fetch.Counts              // by job
}

// until waits for a change that staging notifies of.
func (b *bed) until(what func() bool) {
	for {
		changed := b.Staging.Changed()
		if what() {
			return
		}
		<-changed
	}
}

// waitFor waits for a change that staging does not notify of.
func (b *readerBed) waitFor(what string, done func() bool) {
	b.t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatal(what + ": it does not")
		}
	}
}

func newReaderBed(t *testing.T, n, logged, ring int, o fetch.Options, orders map[int][][]sample.Index) *readerBed {
	t.Helper()
	return newReaderBedOn(t, n, logged, ring, fetchtest.Options{Fetch: o}, orders)
}

// newReaderBedOn is newReaderBed with options for the bed.
func newReaderBedOn(t *testing.T, n, logged, ring int, o fetchtest.Options, orders map[int][][]sample.Index) *readerBed {
	t.Helper()
	io := fetchtest.OpenIO(t)
	o.Sizes, o.Block, o.Log.IO = slices.Repeat([]uint32{3000}, n), 64<<10, io
	o.Staging = staging.Options{Slots: 1, SlotBytes: 4096, SideBytes: 1 << 20, MissBytes: ring}
	b := &readerBed{t: t, orders: orders, bed: &bed{io: io, Bed: fetchtest.New(t, o)}}
	t.Cleanup(func() { blockio.Inject(io, nil) })
	l := b.Begin(0, []uint64{0, uint64(n) + 1}, n/16+8)
	for i := range logged {
		b.Fill(l, 0, sample.Index(i))
	}
	if err := l.WriteTails(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.r = prefetch.New(b.Fetcher, prefetch.Options{Chunk: b.chunk, Count: func(job int) *fetch.Counts { return &b.counts[job] }, Idle: func(idle bool) {
		if idle {
			b.idle.Add(1)
		}
	}})
	t.Cleanup(b.r.Stop)
	return b
}

// rank returns a rank. It is the only rank of its job if each rank is a separate job.
func (b *readerBed) rank(n int) chunker.JobRank {
	if b.jobs {
		return chunker.JobRank{Job: n, Rank: n}
	}
	return chunker.JobRank{Rank: n}
}

func (b *readerBed) chunk(at chunker.Position) (prefetch.Upcoming, bool) {
	order := b.orders[at.Rank]
	if at.Epoch > int(b.epochs.Load()) || at.Batch >= len(order) {
		return prefetch.Upcoming{}, false
	}
	next := at.JobRank().At(at.Epoch, at.Batch+1)
	if next.Batch == len(order) {
		next = at.JobRank().At(at.Epoch+1, 0)
	}
	return prefetch.Upcoming{CM: metaindex.CM{Content: order[at.Batch]}, Next: next, Left: b.left, Scanning: b.passing, Near: b.near, Opportunistic: b.opportunistic}, true
}

// ask waits for a chunk of the first epoch, releases it, and notifies the prefetcher. It returns which of its samples
// came from the source.
func (b *readerBed) ask(rank, batch int) (fromSource []bool) {
	b.t.Helper()
	return b.askAt(b.rank(rank).At(0, batch))
}

func (b *readerBed) askAt(at chunker.Position) (fromSource []bool) {
	b.t.Helper()
	for _, from := range b.originsAt(at) {
		fromSource = append(fromSource, from == sample.FromSource)
	}
	return fromSource
}

// originsAt waits for a chunk, releases it, and notifies the prefetcher. It returns the origins of its samples.
func (b *readerBed) originsAt(at chunker.Position) (from []sample.Origin) {
	b.t.Helper()
	want := b.orders[at.Rank][at.Batch]
	b.r.Asked(at)
	h, out := &staging.Hold{}, make([]staging.Address, len(want))
	b.until(func() bool {
		if k, ok := b.r.Miscounted(); ok {
			b.t.Fatalf("%+v: todoBytes are wrong", k)
		}
		if b.Staging.Take(h, want, make([]bool, len(want)), make([]bool, len(want)), out) == 0 {
			return true
		}
		for _, i := range want {
			if reading, queued := b.r.Look(at, i); !reading && !queued && !b.Staging.Present(i) {
				b.t.Fatalf("%+v: sample %d is neither there nor coming", at, i)
			}
		}
		return false
	})
	for k, i := range want {
		b.Is(i, b.Staging.Slice(out[k].Offset, 3000))
		from = append(from, out[k].From)
	}
	b.Staging.Release(h)
	b.r.Delivered(at)
	return from
}

func (b *readerBed) reads() uint64 { return b.Store.Stats().BlockReads }

// shuffled splits a permutation into chunks of a size.
func shuffled(n, size int, seed uint64) (order [][]sample.Index) {
	perm := rand.New(rand.NewPCG(seed, 1)).Perm(n)
	for chunk := range slices.Chunk(perm, size) {
		var indices []sample.Index
		for _, i := range chunk {
			indices = append(indices, sample.Index(i))
		}
		order = append(order, indices)
	}
	return order
}

// Every chunk arrives, in order. Samples in the log come from the log, the others from the source, each once, however
// small the ring is.
func TestReaderGoesThroughAnEpoch(t *testing.T) {
	const n, logged = 400, 300
	for _, ring := range []int{96 << 10, 256 << 10, 8 << 20} {
		b := newReaderBed(t, n, logged, ring, fetch.Options{Jobs: 3}, map[int][][]sample.Index{0: shuffled(n, 7, 3)})
		for batch, chunk := range b.orders[0] {
			for k, src := range b.ask(0, batch) {
				if src != (chunk[k] >= logged) {
					t.Errorf("ring of %d: sample %d from the source: %v", ring, chunk[k], src)
				}
			}
		}
		// Small rings have room for one chunk or a few, in any pieces. Later chunks yield their room, with the samples read
		// for them.
		most := n - logged
		if ring < 8<<20 {
			most += most / 10
		}
		if got := b.Fetcher.Stats.Reads[sample.FromSource].Reads.Load(); got < n-logged || got > int64(most) {
			t.Errorf("ring of %d: %d reads from the source, want %d, at most %d", ring, got, n-logged, most)
		}
		if got := b.reads(); got > logged*3/2 || ring < 8<<20 && got < logged/20 {
			t.Errorf("ring of %d: %d reads of the log for %d samples", ring, got, logged)
		}
		if (b.idle.Load() == 0) != (ring == 8<<20) {
			t.Errorf("ring of %d: %d notifications that it is full", ring, b.idle.Load())
		}
		if st := &b.Fetcher.Stats; st.Reads[sample.FromLog].Reads.Load()+st.CorruptSamples.Load()+st.Timeouts.Load() != 0 {
			t.Error("some samples came by another path")
		}
	}
}

// Reads ahead count as reads in order, also if the samples are compressed, so that each is a separate read.
// Regression: they counted as random reads.
func TestReaderCountsNoPackedSampleAsRandom(t *testing.T) {
	const n = 60
	b := newReaderBedOn(t, n, n, 8<<20, fetchtest.Options{Packed: true, Fetch: fetch.Options{PackedBytes: 1 << 20}}, map[int][][]sample.Index{0: shuffled(n, 7, 3)})
	for batch := range b.orders[0] {
		for k, src := range b.ask(0, batch) {
			if src {
				t.Errorf("batch %d, number %d, came from the source", batch, k)
			}
		}
	}
	if st := &b.Fetcher.Stats; st.Reads[sample.FromLog].Reads.Load()+st.Reads[sample.FromLog].Bytes.Load() != 0 {
		t.Errorf("%d samples of %d bytes count as read at random, want none", st.Reads[sample.FromLog].Reads.Load(), st.Reads[sample.FromLog].Bytes.Load())
	}
}

// Neighbours that are needed soon are one read. Samples further apart are separate reads.
func TestReaderMergesNeighbours(t *testing.T) {
	var near, far []sample.Index
	for i := range sample.Index(20) {
		near = append(near, (i*7)%20)  // 20 adjacent samples, in any order
		far = append(far, 40+(i%4)*20) // 60 KB apart, and each five times
	}
	for _, c := range []struct {
		name  string
		chunk []sample.Index
		want  uint64
	}{{"near", near, 1}, {"far", far, 4}, {"both", slices.Concat(far, near), 5}} {
		b := newReaderBed(t, 200, 200, 4<<20, fetch.Options{}, map[int][][]sample.Index{0: {c.chunk}})
		b.ask(0, 0)
		if got := b.reads(); got != c.want {
			t.Errorf("%s: %d reads, want %d", c.name, got, c.want)
		}
	}
}

// In sampling with replacement, a sample is requested again soon. It is read once for all listed chunks, and stays
// for each of them.
func TestReaderKeepsForEveryChunk(t *testing.T) {
	order := [][]sample.Index{{1, 2, 2}, {2, 3}, {3, 1}, {2}, {4, 4, 1}}
	b := newReaderBed(t, 8, 8, 1<<20, fetch.Options{}, map[int][][]sample.Index{0: order, 1: {{2, 3}, {1}}})
	b.r.Asked(chunker.Position{Rank: 1})
	b.r.Asked(chunker.Position{})
	b.until(func() bool {
		return b.r.Ready(chunker.JobRank{}) == len(order)-1 && b.r.Ready(chunker.JobRank{Rank: 1}) == 1
	})
	for batch := range order {
		b.ask(0, batch)
	}
	b.ask(1, 0)
	b.ask(1, 1)
	if got := b.reads(); got > 4 {
		t.Errorf("%d reads of 4 samples", got)
	}
}

// Workers of one rank don't request in order, a loop may stop and start elsewhere, and a connection may repeat
// requests.
func TestReaderFollowsItsRank(t *testing.T) {
	const n = 900
	order := shuffled(n, 3, 9)
	b := newReaderBed(t, n, n, 256<<10, fetch.Options{}, map[int][][]sample.Index{0: order})
	b.ask(0, 0)
	for batch := 1; batch < 40; batch += 2 {
		b.ask(0, batch+1)
		b.ask(0, batch)
	}
	before := b.Store.Stats().BlockReadBytes
	b.ask(0, 250) // far ahead
	b.ask(0, 251)
	b.r.Asked(chunker.Position{Batch: 250})
	if reading, queued := b.r.Look(chunker.Position{Batch: 250}, order[250][0]); reading || queued {
		t.Error("Look reports a delivered sample as coming: one request for it must not turn the rank back")
	}
	b.r.Delivered(chunker.Position{Batch: 250})
	b.ask(0, 252)
	b.r.Asked(chunker.Position{Batch: 10}) // back; the second request shows that the rank stays there
	for batch := 11; batch < 30; batch++ {
		b.ask(0, batch)
	}
	if got := b.Store.Stats().BlockReadBytes - before; got > 3*256<<10+30*3*8192 {
		t.Errorf("%d bytes read for 22 chunks and two jumps, with a ring of 256 KiB", got)
	}
}

// A loop may stop and start in the next epoch, whose first chunks are listed. The rest of the old epoch holds the
// rank's whole share of the ring.
func TestReaderLeavesAnEpoch(t *testing.T) {
	const n = 32
	b := newReaderBed(t, n, n, 64<<10, fetch.Options{}, map[int][][]sample.Index{0: shuffled(n, 2, 3)})
	b.epochs.Store(1)
	for batch := range 14 {
		b.ask(0, batch)
	}
	b.until(func() bool { return b.r.Ready(chunker.JobRank{}) > 2 }) // more than the rest of the epoch
	for batch := 2; batch < 16; batch++ {
		b.askAt(chunker.Position{Epoch: 1, Batch: batch})
	}
	if got := b.Fetcher.Stats.Reads[sample.FromSource].Reads.Load(); got != 0 {
		t.Errorf("%d reads from the source", got)
	}
}

// A rank that makes no requests takes only its share of the ring.
func TestReaderRanksDoNotWait(t *testing.T) {
	const n = 600
	b := newReaderBed(t, n, n, 256<<10, fetch.Options{}, map[int][][]sample.Index{0: shuffled(n, 4, 1), 1: shuffled(n, 4, 2)})
	b.r.Asked(chunker.Position{Rank: 1})
	for batch := range b.orders[0] {
		b.ask(0, batch)
	}
	for batch := range b.orders[1] {
		b.ask(1, batch)
	}
	if got := b.Fetcher.Stats.Reads[sample.FromSource].Reads.Load(); got != 0 {
		t.Errorf("%d reads from the source", got)
	}
}

// If a location returns wrong bytes, it is read twice, as by index, and then the source is read. Its neighbours in
// the same read are fine.
func TestReaderMeetsDamage(t *testing.T) {
	for _, how := range []string{"corrupt", "EIO once", "EIO"} {
		b := newReaderBed(t, 40, 40, 1<<20, fetch.Options{}, map[int][][]sample.Index{0: {{1, 2, 3}, {4, 30}}})
		var reads atomic.Int64
		want := []bool{false, true, false}
		switch how {
		case "corrupt":
			if b.Scramble(2) != 1 {
				t.Fatal("the sample is not on disk once")
			}
		default:
			blockio.Inject(b.io, func(_ int64, op *blockio.Op) blockio.Fault {
				if n := reads.Add(1); how == "EIO" || n == 1 {
					return blockio.Fault{Err: errBroken}
				}
				return blockio.Fault{}
			})
			want = slices.Repeat([]bool{how == "EIO"}, 3)
		}
		if got := b.ask(0, 0); !slices.Equal(got, want) {
			t.Errorf("%s: from the source %v, want %v", how, got, want)
		}
		blockio.Inject(b.io, nil)
		b.ask(0, 1)
		if got := b.Fetcher.Stats.CorruptSamples.Load(); how == "corrupt" && got != 1 || how == "EIO once" && got != 0 {
			t.Errorf("%s: %d samples count as corrupt", how, got)
		}
	}
}

var errBroken = blockio.ErrClosed // any error will do

// If the disk hangs, waiting requests are woken to read elsewhere, and the memory is not reused before the late
// answer. Stop does not wait for the disk; Fetcher.Close does.
func TestReaderMeetsAHungDisk(t *testing.T) {
	b := newReaderBed(t, 40, 39, 1<<20, fetch.Options{LogTimeout: soon}, map[int][][]sample.Index{0: {{1, 39}, {20}}})
	release := fetchtest.HoldReads(t, b.io, func(int64) bool { return true })
	at := chunker.Position{}
	b.r.Asked(at)
	b.until(func() bool {
		reading, queued := b.r.Look(at, 1)
		return !reading && !queued && b.Staging.Present(39)
	})
	if b.Fetcher.Stats.Timeouts.Load() == 0 {
		t.Error("no timeout was counted")
	}
	if x, ok := b.Staging.Alloc(staging.Miss, 0, 1<<20-4096); ok {
		b.Staging.Drop(x)
		t.Error("memory that the disk may still write to was given back")
	}
	b.r.Stop()
	release()
}

func TestReaderStopsInTheMiddle(t *testing.T) {
	const n = 300
	b := newReaderBed(t, n, n/2, 512<<10, fetch.Options{Jobs: 2}, map[int][][]sample.Index{0: shuffled(n, 5, 4)})
	release := fetchtest.HoldReads(t, b.io, func(k int64) bool { return k%3 == 2 })
	defer release()
	b.r.Asked(chunker.Position{})
	b.until(func() bool {
		return slices.ContainsFunc(b.orders[0][0], func(i sample.Index) bool { return b.Staging.Present(i) })
	})
	b.r.Stop()
	for i := range sample.Index(n) {
		if b.Staging.Present(i) {
			t.Errorf("sample %d is still there after Stop", i)
		}
	}
}

// Samples from the source are offered to be kept, samples from the log are not.
func TestReaderOffersMisses(t *testing.T) {
	var mu sync.Mutex
	kept := map[sample.Index]int{}
	var b *readerBed
	o := fetch.Options{OnRead: func(_ sample.Origin, i sample.Index, data []byte) {
		mu.Lock()
		defer mu.Unlock()
		kept[i]++
		b.Is(i, data)
	}}
	b = newReaderBed(t, 20, 15, 1<<20, o, map[int][][]sample.Index{0: shuffled(20, 4, 4)})
	for batch := range b.orders[0] {
		b.ask(0, batch)
	}
	mu.Lock()
	defer mu.Unlock()
	for i := range sample.Index(20) {
		if want := map[bool]int{true: 1}[i >= 15]; kept[i] != want {
			t.Errorf("sample %d was offered %d times, want %d", i, kept[i], want)
		}
	}
}

// An order that is pushed late, or again, replaces the order before.
func TestReaderFollowsPushedOrders(t *testing.T) {
	b := newReaderBed(t, 60, 60, 1<<20, fetch.Options{}, map[int][][]sample.Index{0: {}})
	var mu sync.Mutex
	orders := [][]sample.Index(nil)
	r := prefetch.New(b.Fetcher, prefetch.Options{Chunk: func(at chunker.Position) (prefetch.Upcoming, bool) {
		mu.Lock()
		defer mu.Unlock()
		if at.Batch >= len(orders) {
			return prefetch.Upcoming{}, false
		}
		return prefetch.Upcoming{CM: metaindex.CM{Content: orders[at.Batch]}, Next: chunker.Position{Batch: at.Batch + 1}}, true
	}})
	defer r.Stop()
	push := func(order [][]sample.Index) {
		mu.Lock()
		orders = order
		mu.Unlock()
		r.Changed(chunker.JobRank{}, 0)
	}
	r.Asked(chunker.Position{})
	push([][]sample.Index{{1, 2}, {3}})
	b.until(func() bool { return b.Staging.Present(1) && b.Staging.Present(2) && b.Staging.Present(3) })
	if got := r.Ready(chunker.JobRank{}); got != 1 {
		t.Errorf("%d chunks are ready after the requested one, want 1", got)
	}
	push([][]sample.Index{{1, 50}, {51}})
	b.until(func() bool { return b.Staging.Present(50) && b.Staging.Present(51) })
	if b.Staging.Present(2) || b.Staging.Present(3) {
		t.Error("samples that only the previous order needed are still kept")
	}
}

// A sample larger than the ring is left to requests by index, and delays no other sample.
func TestTooLargeSampleDelaysNoOther(t *testing.T) {
	b := newReaderBed(t, 20, 19, 4096, fetch.Options{}, map[int][][]sample.Index{0: {{1}, {0}}}) // sample 1 crosses pages, 0 does not
	at := chunker.Position{}
	b.r.Asked(at)
	b.until(func() bool {
		reading, queued := b.r.Look(at, 1)
		return !reading && !queued
	})
	b.r.Delivered(at)
	b.until(func() bool { return b.Staging.Present(0) })
	if b.Staging.Present(1) || b.Fetcher.Stats.Reads[sample.FromSource].Reads.Load() != 0 {
		t.Error("the sample that never fits was read")
	}
}

// TestGatheredFromASlot: a sample that is in a slot while its neighbours are read is not read with them. It is read
// once after it has left the slot. Nothing is held afterwards.
func TestGatheredFromASlot(t *testing.T) {
	const n, listed, lent = 40, 16, 10 // the ring has room for listed samples; the lent one is in its later half, whose neighbours are only read opportunistically
	var order [][]sample.Index
	for i := range sample.Index(n) {
		order = append(order, []sample.Index{i})
	}
	b := newReaderBed(t, n, n, listed*room, fetch.Options{}, map[int][][]sample.Index{0: order})
	b.near = true
	slot, ok := b.Staging.Acquire(staging.Segment{Log: 7})
	if !ok {
		t.Fatal("no slot is free")
	}
	b.Staging.Publish(lent, b.Staging.OffsetOf(b.Staging.Slot(slot)), sample.FromLog)
	b.Staging.Ready(slot)
	b.r.Asked(chunker.Position{})
	b.until(func() bool { return b.r.Ready(chunker.JobRank{}) >= lent })
	b.Staging.Reclaim(func(staging.Segment) bool { return true }, func(_ staging.Segment, gone func(sample.Index)) { gone(lent) })
	b.r.LeftSlot(lent)
	for batch := range n {
		b.ask(0, batch)
	}
	b.r.Stop()
	if err := b.Staging.CheckReleased(); err != nil {
		t.Error(err)
	}
	if place, _ := b.r.Work(prefetch.AllJobs); place.Bytes != n*3000 {
		t.Errorf("%d bytes were read of %d samples, want each once", place.Bytes, n)
	}
}
