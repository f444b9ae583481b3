package reorder_test

import (
	"context"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lcache/chunker"
	"lcache/internal/compress"
	"lcache/internal/disk/blockio"
	"lcache/internal/disk/offheap"
	"lcache/internal/serve/fetch"
	"lcache/internal/serve/fetch/fetchtest"
	"lcache/internal/serve/staging"
	"lcache/internal/testenv"
	"lcache/logfile"
	"lcache/reorder"
	"lcache/sample"
)

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(m, testenv.Count{What: "bytes outside the heap", Now: offheap.Mapped}, testenv.Count{What: "registered bytes", Now: blockio.Registered}))
}

const (
	block    = 4096
	capacity = 12 * block // of a segment
	slack    = 32         // blocks: the least that an arena has beyond its samples
	spare    = 4          // write buffers of a Logfile beyond one a segment
	soon     = 20 * time.Millisecond
)

// bed is a cache with a scan.
type bed struct {
	*fetchtest.Bed
	t     *testing.T
	io    *blockio.IO
	scan  *reorder.Scan
	lines uint64
	lossy bool    // samples of lost blocks may find no room in their slot
	under []begun // loads that the test has still to look at, oldest first
}

type begun struct {
	seg  int
	done chan struct{}
}

// spec has the differences between tests.
type spec struct {
	sizes   []uint32
	slots   int // 0: 2
	workers int
	packed  bool
	scratch int    // with packed: blocks more than the largest sample needs
	most    uint32 // with packed: larger samples are stored as they are; 0: none
	room    int    // bytes of a slot beyond a segment and a block
	scan    reorder.Options
	fetch   fetch.Options
}

func newBed(t *testing.T, s spec) *bed {
	t.Helper()
	direct := os.Getenv("LCACHE_DIRECT")
	io, err := blockio.Open(blockio.Options{Engine: os.Getenv("LCACHE_IO"), Direct: direct})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { io.Close() })
	if s.slots == 0 {
		s.slots = 2
	}
	b := &bed{t: t, io: io, Bed: fetchtest.New(t, fetchtest.Options{Sizes: s.sizes, Block: block, Places: s.blocks() + slack, Packed: s.packed, MostPacked: s.most, Fetch: s.fetch,
		Log:     logfile.Options{IO: io, Spare: spare, AsideErrors: 1 << 30, Deadline: time.Hour},
		Staging: staging.Options{Slots: s.slots, SlotBytes: capacity + block + s.room, SideBytes: 1 << 20}})}
	o := s.scan
	o.Store, o.Staging, o.Fetcher, o.Locations, o.Sums, o.Sizes, o.Logger = b.Store, b.Staging, b.Fetcher, b.Locations, b.Sums, s.sizes, b.Logger
	o.Align, o.Block, o.Workers = fetchtest.Align, block, s.workers
	if s.packed {
		o.Form = b.Form
		if o.Scratch, err = blockio.Alloc((s.leastScratch() + s.scratch) * block); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { blockio.Free(o.Scratch) })
	}
	b.scan = reorder.New(o)
	t.Cleanup(func() {
		blockio.Inject(io, nil)
		b.closePass()
	})
	return b
}

// blocks that the samples take in the log.
func (s spec) blocks() int {
	if !s.packed {
		return blocksOf(s.sizes)
	}
	total, huge, t := 0, 0, compress.Trial{Align: fetchtest.Align}
	for i, n := range s.sizes {
		total += padded(n)
		if s.most > 0 && n > s.most {
			huge += padded(n)
			continue
		}
		t.Add(fetchtest.Content(sample.Index(i), n, i%3 != 0))
	}
	return (int(t.Stored(uint64(total-huge), len(s.sizes)))+huge)/block + 1
}

// leastScratch is the number of blocks of scratch memory that the scan needs, by the rule in Options.
func (s spec) leastScratch() int {
	largest := uint32(0)
	for _, n := range s.sizes {
		if s.most == 0 || n <= s.most {
			largest = max(largest, n)
		}
	}
	return max(3, int(largest+block-1)/block+1)
}

func (b *bed) closePass() { b.closeWaiting(func() {}) }

// waiting is a context that reports when a caller waits for its end.
type waiting struct {
	context.Context
	report func()
}

func (c waiting) Done() <-chan struct{} {
	c.report()
	return c.Context.Done()
}

// closeWaiting closes the scan. It calls a function when Close has begun and waits for samples.
func (b *bed) closeWaiting(waits func()) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := b.scan.Close(waiting{ctx, waits}); err != nil {
		b.t.Errorf("close the pass: %v", err)
	}
}

func padded(n uint32) int { return (int(n) + fetchtest.Align - 1) / fetchtest.Align * fetchtest.Align }

func blocksOf(sizes []uint32) int {
	total := 0
	for _, n := range sizes {
		total += padded(n)
	}
	return (total + block - 1) / block
}

func randomSizes(n int, seed uint64) []uint32 {
	r := rand.New(rand.NewPCG(seed, 1))
	sizes := make([]uint32, n)
	for i := range sizes {
		sizes[i] = uint32(1 + r.IntN([]int{64, 700, block + 2, 3 * block}[r.IntN(4)]))
	}
	return sizes
}

func permutation(n int, seed uint64) (order []sample.Index) {
	for _, i := range rand.New(rand.NewPCG(seed, 2)).Perm(n) {
		order = append(order, sample.Index(i))
	}
	return order
}

// line begins the Logfile of an order.
func (b *bed) line(slot int, order []sample.Index) (*reorder.EpochLog, []uint32) {
	b.t.Helper()
	segment := make([]uint32, len(b.Sizes))
	for i := range segment {
		segment[i] = chunker.None
	}
	starts, fill := []uint64{0}, 0
	for k, i := range order {
		if fill+padded(b.Sizes[i]) > capacity {
			starts, fill = append(starts, uint64(k)), 0
		}
		fill += padded(b.Sizes[i])
		segment[i] = uint32(len(starts) - 1)
	}
	starts = append(starts, uint64(len(order)))
	b.lines++
	return &reorder.EpochLog{ID: b.lines, Log: b.Begin(slot, starts, capacity/block+1), Layout: &chunker.EpochLayout{Order: order, Used: len(order), Starts: starts}}, segment
}

// filled is a log whose Logfile holds all samples of its layout, in another order.
func (b *bed) filled(slot int, order []sample.Index, seed uint64) *reorder.EpochLog {
	b.t.Helper()
	l, segment := b.line(slot, order)
	for _, k := range rand.New(rand.NewPCG(seed, 3)).Perm(len(order)) {
		b.Fill(l.Log, int(segment[order[k]]), order[k])
	}
	if err := l.Log.Flush(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	return l
}

// twoLogs returns a log that holds all samples, the next log, which has another order and is empty, and the next log as a target.
func (b *bed) twoLogs(seed uint64) (l, next *reorder.EpochLog, target *reorder.EpochLog) {
	b.t.Helper()
	l = b.filled(0, permutation(len(b.Sizes), seed), seed)
	next, segment := b.line(1, permutation(len(b.Sizes), seed+1))
	return l, next, b.aim(next, segment)
}

// gate blocks a test's operations until it is opened, at the latest at the end of the test.
func gate(t *testing.T) (held chan struct{}, open func()) {
	held = make(chan struct{})
	open = sync.OnceFunc(func() { close(held) })
	t.Cleanup(open)
	return held, open
}

func (b *bed) aim(l *reorder.EpochLog, segment []uint32) *reorder.EpochLog {
	b.t.Helper()
	r, err := reorder.NewRouter(segment)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(r.Free)
	return &reorder.EpochLog{Log: l.Log, Router: r}
}

// load begins one segment, when a slot is free, and returns its slot and a channel that is closed when it is done.
func (b *bed) load(l *reorder.EpochLog, seg int, target *reorder.EpochLog, use reorder.Use) (slot int, done chan struct{}) {
	b.t.Helper()
	for end := time.After(20 * time.Second); ; {
		changed := b.Staging.Changed()
		if slot, ok := b.Staging.Acquire(l.Owner(seg)); ok {
			done = make(chan struct{})
			b.scan.Load(slot, l, seg, target, use, func() { close(done) })
			return slot, done
		}
		b.reclaim(l)
		select {
		case <-changed:
		case <-end:
			b.t.Fatalf("segment %d gets no slot", seg)
		}
	}
}

// reclaim takes back the slots that the test has looked at.
func (b *bed) reclaim(l *reorder.EpochLog) int {
	passed := func(o staging.Segment) bool {
		return !slices.ContainsFunc(b.under, func(u begun) bool { return u.seg == o.Segment })
	}
	return b.Staging.Reclaim(passed, func(o staging.Segment, f func(sample.Index)) { l.Members(o.Segment, f) })
}

func (b *bed) wait(done chan struct{}) {
	b.t.Helper()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		b.t.Fatal("the segment is never done")
	}
}

// holds checks that samples are in staging, with their bytes, and returns their addresses. The Hold is released at once.
func (b *bed) holds(members []sample.Index) []staging.Address {
	b.t.Helper()
	var h staging.Hold
	there, out := make([]bool, len(members)), make([]staging.Address, len(members))
	if n := b.Staging.Take(&h, members, make([]bool, len(members)), there, out); n > 0 {
		b.t.Errorf("%d of %d samples were not published: %v", n, len(members), there)
		return out
	}
	for k, i := range members {
		b.Is(i, b.Staging.Slice(out[k].Offset, int(b.Sizes[i])))
	}
	b.Staging.Release(&h)
	return out
}

// over runs the scan over a whole log, as many segments at a time as there are slots, and checks each.
func (b *bed) over(l *reorder.EpochLog, target *reorder.EpochLog, slots int) {
	b.t.Helper()
	finish := func() {
		u := b.under[0]
		b.wait(u.done)
		if l.Layout != nil {
			members := slices.Clone(l.Layout.Members(u.seg))
			if b.lossy {
				members = slices.DeleteFunc(members, func(i sample.Index) bool { return !b.Staging.Present(i) })
			}
			b.holds(members)
		}
		b.under = b.under[1:]
	}
	for seg := range int(l.Log.Header().Segments) {
		if len(b.under) == slots {
			finish()
		}
		_, done := b.load(l, seg, target, reorder.Deliver)
		b.under = append(b.under, begun{seg, done})
	}
	for len(b.under) > 0 {
		finish()
	}
	for b.reclaim(l) > 0 {
	}
}

// inLog checks that every sample is in the Logfile of a slot, with its bytes.
func (b *bed) inLog(slot int, order []sample.Index) {
	b.t.Helper()
	for _, i := range order {
		if !b.Locations.In(i, slot) {
			b.t.Errorf("sample %d is not in slot %d", i, slot)
			continue
		}
		extents, got, err := b.Fetcher.FetchAll(b.t.Context(), []sample.Index{i})
		if err != nil {
			b.t.Fatal(err)
		}
		if b.Is(i, got[0].Data); got[0].From == sample.FromSource {
			b.t.Errorf("sample %d had to be read from the source", i)
		}
		for _, x := range extents {
			b.Staging.Drop(x)
		}
	}
}

// hold makes matching reads of blocks, or writes, hang until release is called.
func (b *bed) inject(write bool, match func(n int64, op *blockio.Op) blockio.Fault) {
	var n atomic.Int64
	blockio.Inject(b.io, func(_ int64, op *blockio.Op) blockio.Fault {
		if op.Buf == nil || op.Write != write {
			return blockio.Fault{}
		}
		return match(n.Add(1)-1, op)
	})
}

// hangDisk lets no read be answered until answer is called.
func (b *bed) hangDisk(t *testing.T) (answer func()) {
	held, release := gate(t)
	var hangs atomic.Bool
	hangs.Store(true)
	b.inject(false, func(int64, *blockio.Op) blockio.Fault {
		if hangs.Load() {
			return blockio.Fault{Hold: held}
		}
		return blockio.Fault{}
	})
	return func() {
		hangs.Store(false)
		release()
	}
}
