package reorder_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"lcache/chunker"
	"lcache/internal/testenv"
	"lcache/reorder"
	"lcache/sample"
)

// The log is reordered and reordered back, in an arena with only the minimum slack. Every sample is verified, published and routed exactly once, blocks
// are freed meanwhile, and no load hangs. Compressed bytes are moved as they are, and scratch memory for the largest sample is
// enough.
func TestScanInATightArena(t *testing.T) {
	testenv.Long(t)
	for seed := range uint64(16) {
		s := spec{sizes: randomSizes(150, seed), workers: 1 + int(seed)%8, slots: 1 + int(seed)%2}
		s.passes(t, seed, blocksOf(s.sizes))
	}
	for seed := range uint64(8) {
		s := spec{sizes: packedSizes(120, seed), workers: 1 + int(seed)%4, slots: 1 + int(seed)%2, packed: true, scratch: int(seed) % 3 * 4}
		s.passes(t, seed, blocksOf(s.sizes)*3/4)
	}
}

// passes reorders the log three times: there, back, and there again. At the end at most this many places are used.
func (s spec) passes(t *testing.T, seed uint64, most int) {
	t.Helper()
	n := len(s.sizes)
	b := newBed(t, s)
	l := b.filled(0, permutation(n, seed), seed)
	for epoch := range uint64(3) {
		next, segment := b.line(1-l.Log.Num(), permutation(n, 100*seed+epoch))
		b.over(l, b.aim(next, segment), s.slots)
		if !l.Log.Empty() {
			t.Errorf("seed %d, packed %v: the old Logfile still holds blocks", seed, s.packed)
		}
		if got := b.scan.Stats.Verified.Load(); got != int64(n)*int64(epoch+1) {
			t.Errorf("seed %d, packed %v: %d samples verified after epoch %d, want each once", seed, s.packed, got, epoch)
		}
		if err := b.Store.Drop(l.Log.Num()); err != nil {
			t.Fatal(err)
		}
		l = next
	}
	b.inLog(l.Log.Num(), l.Layout.Order)
	st := &b.scan.Stats
	if len(b.Source.Reads()) != 0 || st.Dropped.Load()+st.LateBlocks.Load()+st.Supplied.Load() != 0 || len(b.Lost()) != 0 {
		t.Errorf("seed %d, packed %v: source %v, dropped %d, late %d, supplied %d, lost %v", seed, s.packed, b.Source.Reads(), st.Dropped.Load(), st.LateBlocks.Load(), st.Supplied.Load(), b.Lost())
	}
	if used := b.Store.Used(); used > most {
		t.Errorf("seed %d, packed %v: %d places are used, want at most %d for %d blocks of plain samples", seed, s.packed, used, most, blocksOf(s.sizes))
	}
	arrivals := map[sample.Index]int{}
	for seg := range int(l.Log.Header().Segments) {
		l.Log.Arrivals(seg, func(_ int, i sample.Index, _ uint64) bool { arrivals[i]++; return true })
	}
	for i := range sample.Index(n) {
		if arrivals[i] != 1 {
			t.Errorf("seed %d, packed %v: sample %d is %d times in the log", seed, s.packed, i, arrivals[i])
		}
	}
}

// Without a target samples are published and stay where they are.
func TestScanWithoutTarget(t *testing.T) {
	b := newBed(t, spec{sizes: randomSizes(60, 3), workers: 2})
	l := b.filled(0, permutation(60, 3), 3)
	b.over(l, nil, 1)
	b.over(l, nil, 2)
	b.inLog(0, l.Layout.Order)
}

// The order of a Logfile need not be known to sort it.
func TestUnknownOrderIsSorted(t *testing.T) {
	const n = 80
	b := newBed(t, spec{sizes: randomSizes(n, 4), workers: 3})
	l := b.filled(0, permutation(n, 4), 4)
	l.Layout = nil
	next, segment := b.line(1, permutation(n, 5))
	b.over(l, b.aim(next, segment), 2)
	// Regression: a segment's members are unknown once its blocks are free, so addresses outlived their slots.
	for i := range sample.Index(n) {
		if b.Staging.Present(i) {
			t.Errorf("sample %d has an address in a slot that was taken back", i)
		}
	}
	b.inLog(1, next.Layout.Order)
	if !l.Log.Empty() {
		t.Error("the old Logfile still holds blocks")
	}
}

// Samples that a segment should hold and lacks come from the source, and are appended like the others; compressed, if the log is.
func TestMissingSamplesAreSupplied(t *testing.T) {
	for _, c := range []struct {
		s     spec
		every int // of the samples, one is missing
		slots int // used at a time
		most  int // places
	}{
		{spec{sizes: randomSizes(80, 6), workers: 3}, 3, 2, blocksOf(randomSizes(80, 6))},
		{spec{sizes: packedSizes(60, 36), workers: 2, packed: true}, 2, 1, blocksOf(packedSizes(60, 36)) * 3 / 4},
	} {
		n := len(c.s.sizes)
		b := newBed(t, c.s)
		order := permutation(n, 6)
		l, segment := b.line(0, order)
		for k, i := range order {
			if k%c.every > 0 {
				b.Fill(l.Log, int(segment[i]), i)
			}
		}
		next, segment := b.line(1, permutation(n, 7))
		b.over(l, b.aim(next, segment), c.slots)
		b.inLog(1, next.Layout.Order)
		for k, i := range order {
			if got := b.Source.Reads()[b.Name(i)]; (got == 1) != (k%c.every == 0) || got > 1 {
				t.Errorf("packed %v: sample %d was read %d times from the source", c.s.packed, i, got)
			}
		}
		if got := b.scan.Stats.Supplied.Load(); got != int64((n+c.every-1)/c.every) {
			t.Errorf("packed %v: %d samples supplied, want each %d-th of %d", c.s.packed, got, c.every, n)
		}
		if used := b.Store.Used(); used > c.most {
			t.Errorf("packed %v: %d places are used, want at most %d", c.s.packed, used, c.most)
		}
	}
}

// Regression: after a restart, some samples have their location in the target already, and their bytes still in the old Logfile. They were loaded twice: with
// their block, and with a random read.
func TestSamplesOfBothLogfilesComeOnce(t *testing.T) {
	const n = 40
	b := newBed(t, spec{sizes: randomSizes(n, 8), workers: 2})
	l := b.filled(0, permutation(n, 8), 8)
	next, segment := b.line(1, permutation(n, 9))
	target := b.aim(next, segment)
	for _, i := range l.Layout.Order[:10] {
		b.Fill(next.Log, int(segment[i]), i)
		target.Router.Claim(i)
	}
	b.over(l, target, 1)
	if got := b.scan.Stats.Supplied.Load() + b.Fetcher.Stats.Reads[sample.FromLog].Reads.Load(); got != 0 {
		t.Errorf("%d samples were read with random reads although their blocks were loaded", got)
	}
	b.inLog(1, next.Layout.Order)
}

// After a restart, segments that were loaded and not delivered are in the target already. They are spread over it, but adjacent to each other, because they were appended one
// after the other. They are read with few reads.
func TestSegmentsThatWereMovedComeTogether(t *testing.T) {
	for _, s := range []spec{{sizes: slices.Repeat([]uint32{300}, 800), workers: 2}, {sizes: packedSizes(150, 12), workers: 2, packed: true}} {
		n := len(s.sizes)
		b := newBed(t, s)
		l, next, target := b.twoLogs(12)
		const moved = 2
		for seg := range moved {
			_, done := b.load(l, seg, target, reorder.Deliver)
			b.wait(done)
			for b.reclaim(l) > 0 {
			}
		}
		if err := next.Log.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := b.Store.Stats()
		again := &reorder.EpochLog{ID: 99, Log: l.Log, Layout: l.Layout}
		lacking := 0
		for seg := range moved {
			_, done := b.load(again, seg, target, reorder.Deliver)
			b.wait(done)
			b.holds(l.Layout.Members(seg))
			lacking += len(l.Layout.Members(seg))
		}
		if got := b.scan.Stats.Supplied.Load(); got != int64(lacking) {
			t.Errorf("packed %v: %d samples supplied, want %d", s.packed, got, lacking)
		}
		segments := int(next.Log.Header().Segments)
		if reads, most := b.Store.Stats().Reads-before.Reads, uint64(moved*(capacity/block+2*segments)); reads > most { // each block once, and blocks at the borders twice
			t.Errorf("packed %v: %d reads for %d samples in %d segments, want at most %d", s.packed, reads, lacking, segments, most)
		}
		if got := b.Fetcher.Stats.Reads[sample.FromLog].Reads.Load(); got != 0 || len(b.Source.Reads()) != 0 {
			t.Errorf("packed %v: %d samples were read one by one, %v from the source; want none", s.packed, got, b.Source.Reads())
		}
		for b.reclaim(again) > 0 {
		}
		b.over(l, target, 2)
		b.inLog(1, next.Layout.Order)
		if dropped := b.scan.Stats.Dropped.Load(); dropped != 0 || n != len(next.Layout.Order) {
			t.Errorf("packed %v: %d samples dropped", s.packed, dropped)
		}
	}
}

// A drained segment loads only samples that must be appended, and so does a moved one. A moved segment's slot is free at once, so no request finds a sample in it.
func TestDrain(t *testing.T) {
	for name, use := range map[string]reorder.Use{"drained": reorder.Drain, "moved": reorder.Move} {
		t.Run(name, func(t *testing.T) { testDrain(t, use) })
	}
}

func testDrain(t *testing.T, use reorder.Use) {
	const n = 60
	b := newBed(t, spec{sizes: randomSizes(n, 10), workers: 2})
	order := permutation(n, 10)
	l, segment := b.line(0, order)
	next, nextSegment := b.line(1, permutation(n, 11))
	target := b.aim(next, nextSegment)
	for k, i := range order {
		switch k % 3 {
		case 0:
			b.Fill(l.Log, int(segment[i]), i)
		case 1: // placed already
			b.Fill(next.Log, int(nextSegment[i]), i)
			target.Router.Claim(i)
		}
	}
	for seg := range int(l.Log.Header().Segments) {
		_, done := b.load(l, seg, target, use)
		b.wait(done)
		found := 0
		l.Members(seg, func(i sample.Index) {
			if b.Staging.Present(i) {
				found++
			}
		})
		if freed := b.reclaim(l); (found > 0) != (use == reorder.Drain) || freed != 1 {
			t.Errorf("segment %d: %d samples are found in its slot, %d slots are free again", seg, found, freed)
		}
	}
	b.inLog(1, next.Layout.Order)
	for k, i := range order {
		if got := b.Source.Reads()[b.Name(i)]; (got == 1) != (k%3 == 2) {
			t.Errorf("sample %d (case %d) was read %d times from the source", i, k%3, got)
		}
	}
}

// A sample that the next layout leaves out has no location once its block is free. That is not damage.
func TestLeftOutByTheNextLayout(t *testing.T) {
	const n = 40
	b := newBed(t, spec{sizes: randomSizes(n, 12), workers: 2})
	l := b.filled(0, permutation(n, 12), 12)
	order := permutation(n, 13)
	next, segment := b.line(1, order[:30])
	b.over(l, b.aim(next, segment), 1)
	b.inLog(1, order[:30])
	for _, i := range order[30:] {
		if b.Locations.Get(i) != 0 {
			t.Errorf("sample %d still has a place in a Logfile without blocks", i)
		}
	}
}

// A sample that the source can't return is left out of the window. The others of its segment arrive.
func TestSourceErrorLeavesTheOthersAlone(t *testing.T) {
	const n = 40
	b := newBed(t, spec{sizes: randomSizes(n, 14), workers: 2, slots: 1})
	order := permutation(n, 14)
	l, _ := b.line(0, order)
	bad := order[3]
	b.Source.Before(func(_ context.Context, e sample.Entry, _ []byte) error {
		if e.Name == b.Name(bad) {
			return unix.EIO
		}
		return nil
	})
	next, segment := b.line(1, permutation(n, 15))
	target := b.aim(next, segment)
	_, done := b.load(l, 0, target, reorder.Deliver)
	b.wait(done)
	var others []sample.Index
	l.Members(0, func(i sample.Index) {
		if i != bad {
			others = append(others, i)
		}
	})
	b.holds(others)
	if b.Staging.Present(bad) || b.Locations.Get(bad) != 0 || target.Router.Placed(bad) {
		t.Error("the unreadable sample has a location")
	}
	b.inLog(1, others)
}

// Close in the middle ends the scan at the next sample. Every sample still has a location with its bytes, in one Logfile or the other.
func TestCloseInTheMiddle(t *testing.T) {
	const n = 120
	for at := int64(0); at < 30; at += 4 {
		b := newBed(t, spec{sizes: randomSizes(n, 16), workers: 4})
		l, _, target := b.twoLogs(16)
		_, first := b.load(l, 0, target, reorder.Deliver)
		_, second := b.load(l, 1, target, reorder.Deliver)
		for b.scan.Stats.Verified.Load() < at && (!isDone(first) || !isDone(second)) {
			runtime.Gosched()
		}
		b.closePass()
		b.wait(first)
		b.wait(second)
		for i := range sample.Index(n) {
			if b.Locations.Get(i) == 0 {
				t.Errorf("at %d: sample %d was lost", at, i)
			}
			extents, got, err := b.Fetcher.FetchAll(t.Context(), []sample.Index{i})
			if err != nil {
				t.Fatal(err)
			}
			if b.Is(i, got[0].Data); got[0].From == sample.FromSource {
				t.Errorf("at %d: sample %d had to be read from the source", at, i)
			}
			for _, x := range extents {
				b.Staging.Drop(x)
			}
		}
		if b.Fetcher.Stats.CorruptSamples.Load() != 0 {
			t.Errorf("at %d: a location has other bytes than its sample", at)
		}
	}
}

func isDone(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestRouterClaims(t *testing.T) {
	r, err := reorder.NewRouter([]uint32{4, chunker.None, 0})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Free()
	if seg, ok := r.Route(0); seg != 4 || !ok {
		t.Errorf("sample 0 goes to %d, %v", seg, ok)
	}
	if _, ok := r.Route(1); ok {
		t.Error("a sample outside the layout was routed")
	}
	var wins atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				if r.Claim(2) {
					wins.Add(1)
					if _, ok := r.Route(2); ok {
						t.Error("a claimed sample was routed")
					}
					r.Unclaim(2)
				}
			}
		})
	}
	wg.Wait()
	if wins.Load() == 0 || r.Placed(2) || r.Placed(0) || !r.Claim(0) || r.Claim(0) {
		t.Errorf("%d claims won; placed %v %v", wins.Load(), r.Placed(2), r.Placed(0))
	}
}
