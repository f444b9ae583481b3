package packing

import (
	"fmt"
	"slices"
	"testing"

	"lcache/internal/store/cache"
	"lcache/logfile"
	"lcache/sample"
)

// TestPacker: delivered L-samples end up in packages. Sparse segments are emptied for that, and all samples stay in
// the log.
func TestPacker(t *testing.T) {
	for _, compress := range []string{"", cache.LZ4} {
		t.Run(compress, func(t *testing.T) {
			b := newBed(t, 400, compress)
			p := b.packer()
			p.Begin(b.high())
			b.until(p, "all L-samples get into packages", func() bool { low, _, _ := b.packed(); return low == 360 })
			b.changing(p, "pieces are emptied", func() bool {
				_, _, absent := b.packed()
				if absent > 0 {
					t.Fatalf("the log lacks %d samples", absent)
				}
				_, cleaned := p.Counts()
				return cleaned > 0
			})
			p.Begin(b.high())
			b.until(p, "all L-samples get into packages again", func() bool { low, _, _ := b.packed(); return low == 360 })
			if p.Memory() <= p.Buffers() || p.Buffers() < 1<<20 {
				t.Errorf("%d bytes of memory, %d of buffers", p.Memory(), p.Buffers())
			}
			if _, _, absent := b.packed(); absent > 0 {
				t.Errorf("the log lacks %d samples", absent)
			}
		})
	}
}

// TestPackerWithFewPlaces: with hardly more free arena blocks than open packages, samples are moved out of segments
// one by one, until all L-samples are in packages.
func TestPackerWithFewPlaces(t *testing.T) {
	for _, free := range []int{6, 7, 9} {
		t.Run(fmt.Sprint(free), func(t *testing.T) {
			b := newBed(t, 1300, "")
			b.spread(free)
			p := b.packer()
			p.Begin(b.high())
			b.until(p, "all L-samples get into packages", func() bool { low, _, _ := b.packed(); return low == 1170 })
			if _, _, absent := b.packed(); absent > 0 {
				t.Errorf("the log lacks %d samples", absent)
			}
		})
	}
}

// TestPackerWithALargeSample: a sample that is too large for the free arena blocks, or for packing, does not prevent
// others from being packed.
func TestPackerWithALargeSample(t *testing.T) {
	for n, more := range map[int]int{1300: 4 << 20, 2600: mostPacked} {
		t.Run(fmt.Sprint(more), func(t *testing.T) {
			b := newBedWith(t, n, "", more)
			b.spread(9)
			at := func(i sample.Index) (num, seg int) {
				num, seg, _, _ = b.cache.Locations.Split(b.cache.Locations.Get(i))
				return num, seg
			}
			num, seg := at(b.all[n-1])
			beside := 0 // L-samples in its segment
			for _, i := range b.all {
				if h, s := at(i); h == num && s == seg && !isHigh(i) {
					beside++
				}
			}
			p := b.packer()
			p.Begin(b.high())
			b.until(p, "all L-samples of other segments get into packages", func() bool { low, _, _ := b.packed(); return low >= n*9/10-beside })
		})
	}
}

// TestPackerMakesRoomForALargeSample: pieces are emptied until a large sample fits too.
func TestPackerMakesRoomForALargeSample(t *testing.T) {
	for _, free := range []int{17, 25} {
		t.Run(fmt.Sprint(free), func(t *testing.T) {
			b := newBedWith(t, 1300, "", 1<<20)
			b.spread(free)
			p := b.packer()
			p.Begin(b.high())
			b.until(p, "all L-samples get into packages", func() bool { low, _, _ := b.packed(); return low == 1170 })
		})
	}
}

// TestPackerFreesEmptySegments: a segment without live samples is freed, however few arena blocks are free. Its blocks
// are then free for other samples.
func TestPackerFreesEmptySegments(t *testing.T) {
	b := newBed(t, 1300, "")
	b.spread(3)
	low := 1170
	b.cache.Logfile(0).Arrivals(0, func(_ int, i sample.Index, off uint64) bool {
		if b.cache.Locations.Clear(i, b.cache.Locations.At(0, 0, off)) && !isHigh(i) {
			low--
		}
		return true
	})
	p := b.packer()
	p.Begin(b.high())
	b.until(p, "all L-samples get into packages", func() bool { n, _, _ := b.packed(); return n == low })
}

// TestPackerWaitsForItsTurn: nothing is written without the turn, and waiting copies are dropped.
func TestPackerWaitsForItsTurn(t *testing.T) {
	b := newBed(t, 60, "")
	b.allowed.Store(false)
	p := b.packer()
	p.Begin(b.high())
	b.deliver(p)
	b.idles()
	if b.cache.Store.Packages() != nil || b.registers.Load() > 0 {
		t.Error("packages are begun without the turn")
	}
	b.allowed.Store(true)
	b.until(p, "samples are packed in turn", func() bool { low, _, _ := b.packed(); return low == 54 })
	b.allowed.Store(false)
	b.idles()
	places := make([]uint64, len(b.all))
	for i := range places {
		places[i] = uint64(b.cache.Locations.Get(sample.Index(i)))
	}
	p.Begin(nil)
	b.deliver(p)
	b.idles()
	for i, was := range places {
		if now := uint64(b.cache.Locations.Get(sample.Index(i))); now != was {
			t.Errorf("sample %d was moved without the turn", i)
		}
	}
}

// TestPackerHoldsTheTurn: no sample moves while another goroutine has the turn, and deliveries do not wait for it.
func TestPackerHoldsTheTurn(t *testing.T) {
	b := newBed(t, 60, "")
	p := b.packer()
	p.Begin(b.high())
	b.mu.Lock()
	b.deliver(p)
	if low, high, _ := b.packed(); low+high > 0 {
		t.Errorf("%d samples were packed", low+high)
	}
	b.mu.Unlock()
	b.until(p, "samples are packed in turn", func() bool { low, _, _ := b.packed(); return low == 54 })
}

// TestPackerPauses: if packages can't be created, the next attempt is after 30 seconds of the clock.
func TestPackerPauses(t *testing.T) {
	b := newBed(t, 60, "")
	b.broken.Store(true)
	p := b.packer()
	p.Begin(b.high())
	b.deliver(p)
	b.idles()
	tries := b.tries.Load()
	b.deliver(p)
	b.idles()
	if n := b.registers.Load(); n != 1 || b.tries.Load() != tries {
		t.Errorf("packages are begun %d times, and the turn is taken %d times after it failed", n, b.tries.Load()-tries)
	}
	b.broken.Store(false)
	b.later.Store(int64(2 * retryAfter))
	b.until(p, "samples are packed after the pause", func() bool { low, _, _ := b.packed(); return low == 54 })
}

// TestPackerStoresMisses: from the first drawn epoch on, a sample that is not in the log is packed after its read
// from the source, even an H-sample.
func TestPackerStoresMisses(t *testing.T) {
	b := newBed(t, 60, "")
	p := b.packer()
	if p.Missed(3, b.bytes[3]) {
		t.Error("a sample is taken before it is known which are H-samples")
	}
	p.Begin(b.high())
	b.until(p, "samples are packed", func() bool { low, _, _ := b.packed(); return low == 54 })
	lost := []sample.Index{10, 20, 33}
	for _, i := range lost {
		b.cache.Locations.Clear(i, b.cache.Locations.Get(i))
		if !p.Missed(i, b.bytes[i]) {
			t.Errorf("sample %d is not taken", i)
		}
	}
	b.until(p, "samples read from the source are packed", func() bool {
		return !slices.ContainsFunc(lost, func(i sample.Index) bool { return !b.cache.Locations.In(i, logfile.PackagesNum) })
	})
}

// TestPackerMeetsBadBytes: a stored sample with a wrong checksum becomes a miss when its segment is emptied, and is
// not copied. A delivered sample is not copied either if its memory had another use.
func TestPackerMeetsBadBytes(t *testing.T) {
	b := newBed(t, 400, "")
	p := b.packer()
	p.Begin(b.high())
	wrong := func(i sample.Index) bool { return i%10 == 7 }
	for _, i := range b.all {
		if sum, _ := b.cache.Sums.Get(i); wrong(i) {
			b.cache.Sums.Set(i, sum+1)
			defer b.cache.Sums.Set(i, sum)
		}
	}
	b.changing(p, "a wrong sample is found", func() bool {
		for _, i := range b.all {
			if wrong(i) && b.cache.Locations.In(i, logfile.PackagesNum) {
				t.Fatal("a wrong sample was packed")
			}
		}
		return len(b.bad) > 0
	})
	for len(b.bad) > 0 {
		if i := <-b.bad; !wrong(i) {
			t.Errorf("sample %d is bad", i)
		}
	}
}

// TestNilPacker: a nil Packer packs nothing.
func TestNilPacker(t *testing.T) {
	b := newBed(t, 20, "")
	p, err := New(Options{Cache: b.cache, Logger: b.cache.Logger, Memory: 1 << 20})
	if p != nil || err != nil {
		t.Fatalf("%v, %v with a memory of 1 MiB", p, err)
	}
	p.Begin(b.high())
	b.deliver(p)
	written, cleaned := p.Counts()
	if _, known := p.IsHigh(0); known || p.Missed(1, b.bytes[1]) || p.Memory()+p.Buffers()+written+cleaned != 0 {
		t.Error("a nil Packer has an effect")
	}
	p.Close()
}

// TestUnits: a unit is a package, or a part of a Logfile of the same size. Each L-sample is in one unit, and no
// H-sample is.
func TestUnits(t *testing.T) {
	b := newBed(t, 300, "")
	check := func(when string) {
		t.Helper()
		high := b.high()
		defer high.Close()
		seen := map[sample.Index]bool{}
		units := Units(b.cache, high, 3, 5)
		for _, unit := range units {
			bytes := int64(0)
			for _, i := range unit {
				if seen[i] || isHigh(i) {
					t.Errorf("%s: sample %d is in two units, or an H-sample", when, i)
				}
				seen[i] = true
				bytes += b.cache.Padded(i)
			}
			if g, _ := chooseGeometry(factsOf(b.cache), 0); len(unit) == 0 || bytes > int64(g.blocks)*int64(b.cache.Format.Block)+16<<10 {
				t.Errorf("%s: a unit has %d samples, %d bytes", when, len(unit), bytes)
			}
		}
		if len(seen) != 270 || len(units) < 4 {
			t.Errorf("%s: %d samples in %d units, want 270 in some", when, len(seen), len(units))
		}
	}
	check("in a Logfile")
	p := b.packer()
	p.Begin(b.high())
	b.until(p, "some samples are packed", func() bool { low, _, _ := b.packed(); return low > 50 })
	b.mu.Lock() // no sample moves
	defer b.mu.Unlock()
	check("partly packed")
}
