package reorder_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"lcache/blockio"
	"lcache/reorder"
	"lcache/sample"
)

// packedSizes has samples that cross blocks, and some of several: up to eight, plain.
func packedSizes(n int, seed uint64) []uint32 {
	sizes := randomSizes(n, seed)
	for i := range sizes {
		if i%10 == 3 || i%10 == 4 {
			sizes[i] = 5*block + uint32(i)*64
		}
	}
	return sizes
}

// As TestPassInATightArena, with stored bytes: they are moved as they are, and no more scratch than the largest sample needs is enough.
func TestPackedPass(t *testing.T) {
	const n = 120
	for seed := range uint64(8) {
		workers, slots := 1+int(seed)%4, 1+int(seed)%2
		b := newBed(t, spec{sizes: packedSizes(n, seed), workers: workers, slots: slots, packed: true, scratch: int(seed) % 3 * 4})
		l := b.filled(0, permutation(n, seed), seed)
		for epoch := range uint64(3) {
			next, segment := b.line(1-l.Slot, permutation(n, 100*seed+epoch))
			b.over(l, b.aim(next, segment), slots)
			if !l.Log.Empty() {
				t.Errorf("seed %d: the old Logfile still holds blocks", seed)
			}
			if got := b.pass.Stats.Verified.Load(); got != n*int64(epoch+1) {
				t.Errorf("seed %d: %d samples verified after epoch %d, want each once", seed, got, epoch)
			}
			if err := b.Store.Drop(l.Slot); err != nil {
				t.Fatal(err)
			}
			l = next
		}
		b.inLog(l.Slot, l.Order)
		st := &b.pass.Stats
		if len(b.Source.Reads()) != 0 || st.Dropped.Load()+st.LateBlocks.Load()+st.Supplied.Load() != 0 || len(b.Lost()) != 0 {
			t.Errorf("seed %d: source %v, dropped %d, late %d, supplied %d, lost %v", seed, b.Source.Reads(), st.Dropped.Load(), st.LateBlocks.Load(), st.Supplied.Load(), b.Lost())
		}
		if used := b.Store.Used(); used > blocksOf(b.Sizes)*3/4 {
			t.Errorf("seed %d: %d places are used for %d blocks of plain samples", seed, used, blocksOf(b.Sizes))
		}
	}
}

// Damaged stored bytes cost their samples a read from the source, whether they still unpack or not, and nothing else.
func TestPackedDamage(t *testing.T) {
	const n = 60
	b := newBed(t, spec{sizes: slices.Repeat([]uint32{5500}, n), workers: 2, packed: true})
	l := b.filled(0, permutation(n, 32), 32)
	damaged := 0
	for i := range sample.Index(9) {
		damaged += b.Scramble(i)
	}
	next, segment := b.line(1, permutation(n, 33))
	b.over(l, b.aim(next, segment), 2)
	b.inLog(1, next.Order)
	if got := len(b.Source.Reads()); got != damaged || damaged < 6 || b.Fetcher.Stats.CorruptSamples.Load() != int64(damaged) {
		t.Errorf("%d samples damaged, %d read from the source, %d counted", damaged, got, b.Fetcher.Stats.CorruptSamples.Load())
	}
}

// A segment that lacks samples gets them from the source, and what it writes on is packed.
func TestPackedMissing(t *testing.T) {
	const n = 60
	b := newBed(t, spec{sizes: packedSizes(n, 36), workers: 2, packed: true})
	order := permutation(n, 36)
	l, segment := b.line(0, order)
	for k, i := range order {
		if k%2 == 0 {
			b.Fill(l.Log, int(segment[i]), i)
		}
	}
	next, segment := b.line(1, permutation(n, 37))
	b.over(l, b.aim(next, segment), 1)
	if got := len(b.Source.Reads()); got != n/2 {
		t.Errorf("%d samples read from the source, want %d", got, n/2)
	}
	b.inLog(1, next.Order)
	if used := b.Store.Used(); used > blocksOf(b.Sizes)*3/4 {
		t.Errorf("%d places are used for %d blocks of plain samples", used, blocksOf(b.Sizes))
	}
}

// A block that comes late lands in scratch memory: what was published in the slot meanwhile stays right, and the memory comes back.
func TestPackedLateBlock(t *testing.T) {
	const n = 40
	for nth := range int64(6) {
		b := newBed(t, spec{sizes: packedSizes(n, 40), workers: 2, slots: 1, packed: true, scratch: 8, pass: reorder.Options{BlockTimeout: soon}})
		l := b.filled(0, permutation(n, 40), 40)
		next, segment := b.line(1, permutation(n, 41))
		target := b.aim(next, segment)
		held := make(chan struct{})
		release := sync.OnceFunc(func() { close(held) })
		t.Cleanup(release)
		b.inject(false, func(k int64, op *blockio.Op) blockio.Fault {
			if k != nth {
				return blockio.Fault{}
			}
			return blockio.Fault{Hold: held, Flip: 1 + 8*100}
		})
		_, done := b.load(l, 0, target, false)
		b.wait(done)
		members := slices.Clone(l.Order[l.Starts[0]:l.Starts[1]])
		b.holds(slices.DeleteFunc(slices.Clone(members), func(i sample.Index) bool { return !b.Staging.Present(i) }))
		release()
		blockio.Inject(b.io, nil)
		for b.reclaim(l) == 0 {
		}
		for seg := 1; seg < len(l.Starts)-1; seg++ { // needs all of scratch in the end
			_, done := b.load(l, seg, target, false)
			b.wait(done)
		}
		b.inLog(1, next.Order)
	}
}

// A disk that does not answer at all ends neither the load nor, once it does, the pass: samples come from the source meanwhile.
func TestPackedDiskHangs(t *testing.T) {
	const n = 60
	b := newBed(t, spec{sizes: packedSizes(n, 44), workers: 2, slots: 1, packed: true, pass: reorder.Options{BlockTimeout: soon}})
	l := b.filled(0, permutation(n, 44), 44)
	next, segment := b.line(1, permutation(n, 45))
	target := b.aim(next, segment)
	held := make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	t.Cleanup(release)
	var hangs atomic.Bool
	hangs.Store(true)
	b.inject(false, func(int64, *blockio.Op) blockio.Fault {
		if hangs.Load() {
			return blockio.Fault{Hold: held}
		}
		return blockio.Fault{}
	})
	_, done := b.load(l, 0, target, false)
	b.wait(done)
	members := slices.Clone(l.Order[l.Starts[0]:l.Starts[1]])
	b.holds(slices.DeleteFunc(slices.Clone(members), func(i sample.Index) bool { return !b.Staging.Present(i) }))
	hangs.Store(false)
	release()
	before := len(b.Source.Reads())
	if before == 0 || before > n/2 {
		t.Errorf("%d samples came from the source while the disk hung", before)
	}
	for seg := 1; seg < len(l.Starts)-1; seg++ {
		for b.reclaim(l) == 0 {
		}
		_, done := b.load(l, seg, target, false)
		b.wait(done)
	}
	b.inLog(1, next.Order)
}
