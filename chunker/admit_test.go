package chunker_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"lcache/chunker"
	"lcache/internal/testenv"
	"lcache/sample"
)

func names(n int) (hashes []uint64) {
	for i := range n {
		hashes = append(hashes, sample.NameHash(fmt.Sprintf("class-%d/image-%06d.jpg", i%10, i)))
	}
	return hashes
}

func randomSizes(n int, seed uint64) (sizes []uint32) {
	r := rand.New(rand.NewPCG(seed, 9))
	for range n {
		sizes = append(sizes, uint32(1+r.ExpFloat64()*100_000))
	}
	return sizes
}

func total(sizes []uint32, keep func(i int) bool) (sum uint64) {
	for i, n := range sizes {
		if keep(i) {
			sum += chunker.Padded(n, 64)
		}
	}
	return sum
}

func all(int) bool { return true }

func TestAdmitFillsTheRoom(t *testing.T) {
	testenv.WithoutRace(t)
	const n = 100_000
	hashes, sizes := names(n), randomSizes(n, 1)
	everything := total(sizes, all)
	for _, c := range []float64{0, 0.001, 0.1, 0.5, 0.9, 0.999} {
		room := uint64(c * float64(everything))
		threshold, bytes := chunker.Admit(hashes, sizes, 64, room)
		if got := total(sizes, func(i int) bool { return chunker.Admitted(hashes[i], threshold) }); got != bytes {
			t.Errorf("room %.3f: the set has %d bytes, Admit says %d", c, got, bytes)
		}
		if bytes > room || float64(bytes) < 0.98*float64(room) {
			t.Errorf("room %.3f: %d of %d bytes are used, want between 0.98 and 1 of them", c, bytes, room)
		}
	}
	for _, room := range []uint64{everything, everything + 1, math.MaxUint64} {
		if threshold, bytes := chunker.Admit(hashes, sizes, 64, room); threshold != math.MaxUint64 || bytes != everything {
			t.Errorf("room for all: threshold %d, %d bytes, want all %d", threshold, bytes, everything)
		}
	}
}

// Kept samples are spread evenly over any order: the share of misses in a segment of 2,500 samples hardly varies.
func TestAdmitSpreadsMisses(t *testing.T) {
	testenv.WithoutRace(t)
	const n, segment = 100_000, 2_500
	hashes, sizes := names(n), slices.Repeat([]uint32{1000}, n)
	for _, c := range []float64{0.25, 0.5, 0.8} {
		threshold, _ := chunker.Admit(hashes, sizes, 64, uint64(c*float64(total(sizes, all))))
		order := rand.New(rand.NewPCG(4, 4)).Perm(n)
		var sum, squares float64
		for from := 0; from < n; from += segment {
			kept := 0
			for _, i := range order[from : from+segment] {
				if chunker.Admitted(hashes[i], threshold) {
					kept++
				}
			}
			share := float64(kept) / segment
			sum, squares = sum+share, squares+share*share
		}
		mean := sum / (n / segment)
		sd := math.Sqrt(squares/(n/segment) - mean*mean)
		if math.Abs(mean-c) > 0.001 || sd > 0.012 {
			t.Errorf("room %.2f: share per segment %.4f, sd %.4f, want at most 0.012", c, mean, sd)
		}
	}
}

// An added file takes the room of the samples at the edge of the set, and of no others.
func TestAdmitIsStable(t *testing.T) {
	const n = 20_000
	hashes, sizes := names(n+1), randomSizes(n+1, 2)
	room := total(sizes, all) * 2 / 3
	before, _ := chunker.Admit(hashes[:n], sizes[:n], 64, room)
	after, _ := chunker.Admit(hashes, sizes, 64, room)
	left := uint64(0)
	for i := range n {
		was, is := chunker.Admitted(hashes[i], before), chunker.Admitted(hashes[i], after)
		if is && !was {
			t.Errorf("sample %d came in because another was added", i)
		}
		if was && !is {
			left += uint64(sizes[i])
		}
	}
	if most := uint64(sizes[n]) + 1<<20; left > most {
		t.Errorf("%d bytes left the set for a file of %d", left, sizes[n])
	}
}

// Regression: with the largest hash refused, its threshold meant that everything is admitted.
func TestAdmitLargestHash(t *testing.T) {
	for _, hashes := range [][]uint64{{1, math.MaxUint64}, {1, math.MaxUint64 - 1}, {1, math.MaxUint64 - 1, math.MaxUint64}} {
		sizes := slices.Repeat([]uint32{64}, len(hashes))
		threshold, bytes := chunker.Admit(hashes, sizes, 64, 64)
		for i, h := range hashes {
			if got, want := chunker.Admitted(h, threshold), i == 0; got != want || bytes != 64 {
				t.Errorf("hashes %x: %x is admitted: %v, want %v (threshold %x, %d bytes)", hashes, h, got, want, threshold, bytes)
			}
		}
		if threshold, _ := chunker.Admit(hashes, sizes, 64, 1<<20); !chunker.Admitted(hashes[len(hashes)-1], threshold) {
			t.Errorf("hashes %x: with room for all the last one is not admitted", hashes)
		}
	}
}

func FuzzAdmit(f *testing.F) {
	f.Add(uint64(1), 10, uint64(1000))
	f.Add(uint64(2), 3, uint64(0))
	f.Add(uint64(3), 300, uint64(1<<20))
	f.Fuzz(func(t *testing.T, seed uint64, n int, room uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		n = n & 0x1ff
		hashes, sizes := make([]uint64, n), make([]uint32, n)
		for i := range n {
			hashes[i], sizes[i] = r.Uint64()>>(r.IntN(64)), uint32(r.IntN(9000))
			if r.IntN(2) == 0 {
				hashes[i] = ^hashes[i]
			}
		}
		threshold, bytes := chunker.Admit(hashes, sizes, 64, room)
		got := total(sizes, func(i int) bool { return chunker.Admitted(hashes[i], threshold) })
		if got != bytes || got > room {
			t.Fatalf("%d bytes admitted, Admit says %d, room %d", got, bytes, room)
		}
		// The set is the largest one: with one more hash it has no room.
		next, rest := uint64(math.MaxUint64), false
		for _, h := range hashes {
			if !chunker.Admitted(h, threshold) {
				next, rest = min(next, h), true
			}
		}
		more := total(sizes, func(i int) bool {
			return chunker.Admitted(hashes[i], threshold) || hashes[i] == next || next >= math.MaxUint64-1
		})
		if rest && more <= room {
			t.Fatalf("hash %x would fit as well: %d of %d bytes", next, more, room)
		}
	})
}

// TestMost: large samples are left out only if they displace more bytes than they have.
func TestMost(t *testing.T) {
	const w = 128 << 10
	sizes := func(small int, size uint32, large int, each uint32) (all []uint32, kept uint64) {
		for range small {
			all = append(all, size)
		}
		for range large {
			all = append(all, each)
		}
		for _, s := range all {
			kept += chunker.Padded(s, 64)
		}
		return all, kept
	}
	for _, c := range []struct {
		name   string
		small  int
		size   uint32
		large  int
		each   uint32
		budget uint64
		out    bool // the large ones are left out
	}{
		{"a few large ones in a little cache", 10_000, 10_000, 10, 3 << 20, 64e6, true},
		{"no budget", 10_000, 10_000, 10, 3 << 20, 0, false},
		{"a budget for all", 10_000, 10_000, 10, 3 << 20, 300e6, false},
		{"all are large", 0, 0, 60, 3 << 20, 64e6, false},
		{"too few are small", 2000, 10_000, 40, 3 << 20, 64e6, false},
		{"all are small", 10_000, 10_000, 0, 0, 64e6, false},
	} {
		all, kept := sizes(c.small, c.size, c.large, c.each)
		f := chunker.Facts{Kept: kept, Samples: len(all), Largest: uint64(max(c.size, c.each)), Batch: 4e6, BatchSamples: 64, Ranks: 1, Devices: 1, Metadata: 1e6, Budget: c.budget, Block: w}
		most := f.Most(all, 64)
		if out := most > 0 && most < uint64(c.each); out != c.out || most > 0 && most < uint64(c.size) {
			t.Errorf("%s: at most %d bytes a sample", c.name, most)
		}
		before, err := chunker.Size(f)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if most > 0 {
			f.LargestKept = uint64(c.size) // the largest below it
		}
		if after, err := chunker.Size(f); err != nil || c.out && after.Room < before.Room+4<<20 || !c.out && after.Room != before.Room {
			t.Errorf("%s: room for %d bytes, before %d (%v)", c.name, after.Room, before.Room, err)
		}
	}
}
