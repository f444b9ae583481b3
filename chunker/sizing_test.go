package chunker_test

import (
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"testing"

	"lcache/chunker"
	"lcache/internal/testenv"
	"lcache/sample"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// imageNet is 1.28 million samples of 138 GB for one rank with batches of 256.
func imageNet(block uint64) chunker.Facts {
	return chunker.Facts{Kept: 138e9, Samples: 1_281_167, Largest: 16 * mib, Batch: 256 * 108_000, BatchSamples: 256, Ranks: 1, Devices: 1, Metadata: 60e6, Block: block}
}

// The figures of the design, plus the memory for clients and for the tables of samples.
func TestSizeOfTheDesign(t *testing.T) {
	large := imageNet(1 * mib)
	large.Kept, large.Samples = 1.3e12, 14_197_122
	tests := []struct {
		name            string
		facts           chunker.Facts
		segment, memory [2]float64
		segments        [2]int
	}{
		{"138 GB, 1 MiB", imageNet(1 * mib), [2]float64{378e6, 384e6}, [2]float64{1.45e9, 1.75e9}, [2]int{360, 370}},
		{"138 GB, 256 KiB", imageNet(256 << 10), [2]float64{188e6, 193e6}, [2]float64{0.75e9, 1.0e9}, [2]int{720, 735}},
		{"1.3 TB, 1 MiB", large, [2]float64{1.16e9, 1.18e9}, [2]float64{4.6e9, 5.3e9}, [2]int{1110, 1125}},
	}
	for _, tt := range tests {
		z, err := chunker.Size(tt.facts)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if s := float64(z.Segment); s < tt.segment[0] || s > tt.segment[1] {
			t.Errorf("%s: segments of %.0f bytes, want %.0f", tt.name, s, tt.segment)
		}
		if z.Segments < tt.segments[0] || z.Segments > tt.segments[1] {
			t.Errorf("%s: %d segments, want %d", tt.name, z.Segments, tt.segments)
		}
		if m := float64(z.Memory); m < tt.memory[0] || m > tt.memory[1] {
			t.Errorf("%s: %.2f GB of memory, want %.2f", tt.name, m/1e9, tt.memory)
		}
		// The arena is about one dataset: not more than 1.5 % beyond it.
		if ratio := float64(z.Arena) / float64(tt.facts.Kept); ratio < 1 || ratio > 1.015 {
			t.Errorf("%s: the arena is %.3f of the samples", tt.name, ratio)
		}
	}
}

// With compression, disk space depends on compressed bytes and memory on plain ones. The memory for unpacking comes on top.
func TestSizePacked(t *testing.T) {
	plain := imageNet(1 * mib)
	packed := plain
	packed.Packed, packed.Stored = true, plain.Kept/10*7
	z, err := chunker.Size(packed)
	if err != nil {
		t.Fatal(err)
	}
	p, err := chunker.Size(plain)
	if err != nil {
		t.Fatal(err)
	}
	if z.Segment != p.Segment || z.Segments != p.Segments || z.Miss != 0 {
		t.Errorf("%d segments of %d, misses %d; plain %d of %d", z.Segments, z.Segment, z.Miss, p.Segments, p.Segment)
	}
	if z.Room != packed.Stored || z.Arena < packed.Stored || float64(z.Arena) > 1.015*float64(packed.Stored) {
		t.Errorf("an arena of %d with room for %d, for %d stored bytes", z.Arena, z.Room, packed.Stored)
	}
	if want := uint64(32*mib + 16*mib + 1*mib); z.Scratch != want || p.Scratch != 0 {
		t.Errorf("scratch of %d, want %d; %d without compression, want none", z.Scratch, want, p.Scratch)
	}
	// Blocks in scratch; for reads by index 16 MiB and the largest sample; that sample where it is put together and where it is packed.
	if more := z.Memory - p.Memory; more < z.Scratch+4*16*mib || more > z.Scratch+5*16*mib {
		t.Errorf("%d bytes of memory more than without compression", more)
	}
	packed.Budget = 50e9
	half, err := chunker.Size(packed)
	if err != nil {
		t.Fatal(err)
	}
	if half.Arena > packed.Budget || half.Miss == 0 {
		t.Errorf("an arena of %d for a budget of %d, %d for misses", half.Arena, packed.Budget, half.Miss)
	}
	if got, want := float64(packed.Plain(half.Room)), float64(half.Room)/0.7; math.Abs(got/want-1) > 0.001 {
		t.Errorf("%d bytes on disk hold %.0f, want %.0f", half.Room, got, want)
	}
	if packed.Plain(packed.Stored) != packed.Kept || plain.Plain(5) != 5 {
		t.Error("what holds all holds all, and without compression bytes are bytes")
	}
	small := chunker.Facts{Kept: 10e6, Packed: true, Stored: 4e6, Samples: 1000, Largest: 1e6, Batch: 1e6, BatchSamples: 10, Ranks: 1, Devices: 1, Block: 128 << 10}
	if z, err := chunker.Size(small); err != nil || z.Scratch > 7e6 {
		t.Errorf("scratch of %d for a log of 4 MB, %v", z.Scratch, err)
	}
}

// K is an estimate from means: layouts of usual sizes must not have more segments than memory was planned for.
func TestSizeCoversTheCut(t *testing.T) {
	testenv.WithoutRace(t)
	for seed := range uint64(8) {
		const n = 60_000
		r := rand.New(rand.NewPCG(seed, 1))
		sizes := make([]uint32, n)
		global := make([]sample.Index, n)
		f := chunker.Facts{Samples: n, Ranks: 1, Devices: 1, Batch: 64 * 40_000}
		for i, p := range r.Perm(n) {
			global[i] = sample.Index(p)
			sizes[i] = uint32(math.Exp(r.NormFloat64()) * 20_000)
			f.Kept += chunker.Padded(sizes[i], 64)
			f.Largest = max(f.Largest, chunker.Padded(sizes[i], 64))
		}
		z, err := chunker.Size(f)
		if err != nil {
			t.Fatal(err)
		}
		used := make([]uint64, n*9/10) // the other samples have segments of their own
		for i := range used {
			used[i] = uint64(i)
		}
		layout, err := chunker.NewEpochLayout(&chunker.Chunks{Global: global, Split: dealt{{used}}}, []int{0},
			chunker.Cut{Sizes: sizes, Align: 64, Capacity: z.Segment, Keep: func(i sample.Index) bool { return sizes[i] > 0 }})
		if err != nil {
			t.Fatal(err)
		}
		if layout.Segments() > z.Segments {
			t.Errorf("seed %d: the line has %d segments, memory was planned for %d", seed, layout.Segments(), z.Segments)
		}
		layout.Free()
	}
}

func randomFacts(r *rand.Rand) chunker.Facts {
	power := func(from, to float64) uint64 { return uint64(math.Exp2(from + r.Float64()*(to-from))) }
	f := chunker.Facts{Kept: power(16, 41), Ranks: 1 + r.IntN(8), Devices: 1 + r.IntN(4), BatchSamples: 1 + r.IntN(512)}
	mean := min(power(10, 22), f.Kept)
	f.Samples = int(f.Kept / mean)
	f.Largest = min(mean*uint64(1+r.IntN(20)), f.Kept)
	f.Batch = max(uint64(f.BatchSamples)*mean, f.Largest)
	f.Metadata = uint64(f.Samples)*60 + 1<<16
	if r.IntN(2) == 0 {
		f.Budget = power(14, 41)
	}
	if r.IntN(2) == 0 {
		f.Memory = power(20, 36)
	} else {
		f.MemoryCap = power(26, 36)
	}
	if r.IntN(4) == 0 {
		f.Block = 128 << 10 << r.IntN(4)
	}
	if r.IntN(4) == 0 {
		f.SourceRate = power(20, 31)
	}
	return f
}

var give = regexp.MustCompile(`give --(memory|budget) (\d+)MiB or more`)

// raised follows the advice of an error.
func raised(t *testing.T, f chunker.Facts, refusal error) chunker.Facts {
	t.Helper()
	m := give.FindStringSubmatch(refusal.Error())
	if m == nil {
		t.Fatalf("%+v: the refusal names no number: %v", f, refusal)
	}
	n, err := strconv.ParseUint(m[2], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if m[1] == "memory" {
		f.Memory = n * mib
	} else {
		f.Budget = n * mib
	}
	return f
}

// For all facts: limits hold, and an error names a number that then works.
func TestSizeKeepsLimits(t *testing.T) {
	testenv.WithoutRace(t)
	refused := map[string]int{}
	for seed := range uint64(20_000) {
		f := randomFacts(rand.New(rand.NewPCG(seed, 2)))
		z, err := chunker.Size(f)
		for range 4 { // a larger budget keeps more and so may need more memory, but none is refused twice in a row
			if err == nil {
				break
			}
			what := give.FindStringSubmatch(err.Error())[1]
			refused[what]++
			f = raised(t, f, err)
			if z, err = chunker.Size(f); err != nil && give.FindStringSubmatch(err.Error())[1] == what {
				t.Fatalf("seed %d: %+v: refused again with the number that was asked for: %v", seed, f, err)
			}
		}
		if err != nil {
			t.Fatalf("seed %d: %+v: %v", seed, f, err)
		}
		checkSizing(t, seed, f, z)
	}
	if refused["memory"] == 0 || refused["budget"] == 0 {
		t.Errorf("the facts drawn do not show both refusals: %v", refused)
	}
}

func checkSizing(t *testing.T, seed uint64, f chunker.Facts, z chunker.Sizing) {
	t.Helper()
	bad := func(what string) { t.Errorf("seed %d: %s: %+v gives %+v", seed, what, f, z) }
	limit := f.Memory
	if limit == 0 {
		limit = f.MemoryCap
	}
	least := 2
	if f.Ranks > 1 {
		least = 3
	}
	switch {
	case z.Memory > limit:
		bad("memory over its limit")
	case z.Slots < least:
		bad("too few slots")
	case z.Memory < uint64(z.Slots)*z.Slot+uint64(2*z.Segments)*z.Block+z.Side+z.Spare+z.Miss:
		bad("memory does not cover its terms")
	case z.Segment < f.Largest || z.Segment%z.Block != 0 || z.Slot < z.Segment+z.Block:
		bad("a segment that does not hold the largest sample in whole blocks")
	case z.Spare < f.Largest+8190 || z.Side < z.Credit+f.Batch:
		bad("no room for the largest sample in addition to held leases")
	case z.Block < 64<<10 || z.Block == 64<<10 && f.Budget >= 84e6 || z.Block > mib || z.Block&(z.Block-1) != 0 || f.Block != 0 && z.Block != f.Block:
		bad("a block out of range")
	case f.Budget > 0 && z.Arena+f.Metadata > f.Budget || z.Arena+f.Metadata > z.Budget:
		bad("arena over the budget")
	case z.Slack < 32*z.Block || z.Room > z.Arena || z.Arena-z.Room < 32*z.Block:
		bad("under 32 blocks of slack")
	case z.Room < f.Kept && f.Budget == 0:
		bad("no budget, and yet not everything is kept")
	case z.Room < f.Kept && z.Miss == 0:
		bad("misses without a ring for them")
	case z.Credit < uint64(f.Ranks)*f.Batch:
		bad("less than a batch for each rank")
	case uint64(z.Slots) < 2+z.Credit/z.Slot:
		bad("fewer slots than clients may hold")
	}
}

// TestThirdSlot: there is one more slot if the given memory has room for two more. The default memory of the machine does not count.
func TestThirdSlot(t *testing.T) {
	f := chunker.Facts{Samples: 250_000, Kept: 4e9, Largest: 16_000, LargestKept: 16_000, Batch: 4_096_000, BatchSamples: 256, Ranks: 1, Devices: 1, MemoryCap: 8e9}
	two, err := chunker.Size(f)
	if err != nil || two.Slots != 2 {
		t.Fatalf("%d slots, %v", two.Slots, err)
	}
	for _, tt := range []struct {
		beside uint64
		want   int
	}{{0, 2}, {2*two.Slot - 1, 2}, {2 * two.Slot, 3}, {64 * two.Slot, 3}} {
		f.Memory = two.Memory + tt.beside
		z, err := chunker.Size(f)
		if err != nil || z.Slots != tt.want || z.Credit != two.Credit || z.Memory > f.Memory {
			t.Errorf("%d slots in %d bytes of %d, %v: want %d", z.Slots, z.Memory, f.Memory, err, tt.want)
		}
	}
}

// A larger limit never reduces anything.
func TestSizeIsMonotone(t *testing.T) {
	for seed := range uint64(3_000) {
		r := rand.New(rand.NewPCG(seed, 5))
		f := randomFacts(r)
		f.Block = 128 << 10 << r.IntN(4) // of one cache: it was fixed at ingest
		z, err := chunker.Size(f)
		if err != nil {
			continue
		}
		more := f
		more.Memory = max(f.Memory, f.MemoryCap) * uint64(2+r.IntN(3))
		if y, err := chunker.Size(more); err != nil || y.Credit < z.Credit || y.Slots < z.Slots || y.Room != z.Room {
			t.Errorf("seed %d: with more memory %v: %+v, before %+v", seed, err, y, z)
		}
		if f.Budget == 0 {
			continue
		}
		more = f
		more.Memory, more.Budget = 1<<50, f.Budget+uint64(r.IntN(1<<30))
		if y, err := chunker.Size(more); err != nil || y.Room < min(z.Room, f.Kept) || y.Arena < min(z.Arena, f.Kept) {
			t.Errorf("seed %d: with a budget larger by %d %v: %+v, before %+v", seed, more.Budget-f.Budget, err, y, z)
		}
	}
}

// In the static layout the ring has the slots' memory, and at least two steps with the pages that each read touches.
func TestSizeOfTheStaticLayout(t *testing.T) {
	f := imageNet(1 * mib)
	log, err := chunker.Size(f)
	if err != nil {
		t.Fatal(err)
	}
	f.Static = true
	z, err := chunker.Size(f)
	if err != nil {
		t.Fatal(err)
	}
	least := uint64(2 * f.BatchSamples * 8 << 10)
	if !z.Lent || z.Slots != log.Slots || z.Ring() != uint64(log.Slots)*log.Slot+least || log.Lent || log.Ring() != 0 || z.Memory != log.Memory+least || z.Segment != log.Segment {
		t.Errorf("a ring of %d bytes and %d slots in %d bytes of memory; with slots of %d bytes %d in %d", z.Ring(), z.Slots, z.Memory, log.Slot, log.Slots, log.Memory)
	}
	f.Memory = log.Memory - log.Memory/10
	if z, err = chunker.Size(f); err == nil && z.Memory > f.Memory {
		t.Errorf("%d bytes of memory, the limit is %d", z.Memory, f.Memory)
	}
}

// With compression, too, where the huge sample is stored as it is: all else that compression takes is in the 256 MB.
func TestSizeOfAHugeSamplePacked(t *testing.T) {
	for _, kept := range []uint64{480e6, 5e9} {
		for _, saved := range []uint64{0, 60e6, 170e6} {
			for _, packed := range []uint64{120_000, 16 * mib} {
				for _, ranks := range []int{1, 4} {
					f := chunker.Facts{Kept: kept, Packed: true, Stored: kept - saved, Samples: int(kept / 120_000), TableBytes: 64, Largest: 300e6, LargestPacked: packed,
						Batch: 8e6, BatchSamples: 64, Ranks: ranks, Devices: 1, Metadata: 1e6, MemoryCap: 6e9}
					z, err := chunker.Size(f)
					if err != nil {
						t.Fatalf("%+v: %v", f, err)
					}
					if most := 4*f.Largest + 256e6; ranks == 1 && z.Memory > most {
						t.Errorf("%+v: %d MB of memory, want at most %d: %+v", f, z.Memory/1e6, most/1e6, z)
					}
					if z.Scratch < packed+3*z.Block || f.PackedReads() < packed || z.Slots < 3 || z.Segment < f.Largest || z.Spare < f.Largest {
						t.Errorf("%+v: a sample has no room: %+v", f, z)
					}
					all := f
					all.LargestPacked = 0 // a cache of an earlier lcache has it compressed
					y, err := chunker.Size(all)
					if err != nil || y.Scratch < f.Largest+y.Block || all.PackedReads() < f.Largest || y.Memory < z.Memory+2*f.Largest {
						t.Errorf("%+v: the huge sample, compressed, has no room: %+v, %v", f, y, err)
					}
				}
			}
		}
	}
}

// One huge sample among small ones. If the other samples need little, a rank's memory is at most four times the huge sample and 256 MB; otherwise it is the others' need and that. Yet
// the huge sample fits wherever it may be needed, in each layout and at any budget.
func TestSizeOfAHugeSample(t *testing.T) {
	for _, kept := range []uint64{600e6, 5e9, 60e9} {
		for _, batch := range []uint64{2e6, 13e6, 36e6} {
			for _, budget := range []uint64{0, kept * 2, kept*2/3 + 800e6} {
				for _, static := range []bool{false, true} {
					f := chunker.Facts{Kept: kept, Samples: int(kept / 100_000), Largest: 300e6, Batch: batch, BatchSamples: int(batch/100_000) + 1, Ranks: 1, Devices: 1,
						Metadata: 1e6, Budget: budget, MemoryCap: 6e9, Static: static}
					z, err := chunker.Size(f)
					if err != nil {
						t.Fatalf("%+v: %v", f, err)
					}
					most := 4*f.Largest + 256e6
					if kept > 10e9 {
						usual := f
						usual.Largest = f.Batch
						others, err := chunker.Size(usual)
						if err != nil {
							t.Fatal(err)
						}
						most += others.Memory
					}
					if z.Memory > most {
						t.Errorf("%+v: %d MB of memory, want at most %d: %+v", f, z.Memory/1e6, most/1e6, z)
					}
					ring := z.Ring() >= f.Largest+8192
					if z.Segment < f.Largest+min(f.Batch, 16<<20) || static && !ring || !static && z.Slots < 3 {
						t.Errorf("%+v: %d slots for segments of %d, a ring of %d", f, z.Slots, z.Segment, z.Ring())
					}
					if z.Spare < f.Largest+8190 || z.Side < z.Credit+f.Batch || z.Credit < f.Batch || z.Request < 4*f.Largest {
						t.Errorf("%+v: samples requested by index have no room: %+v", f, z)
					}
					f.Memory = 3e9
					if roomy, err := chunker.Size(f); err != nil || roomy.Side < z.Side+f.Largest || roomy.Memory > f.Memory {
						t.Errorf("%+v: with memory to spare side memory has %d, before %d (%v)", f, roomy.Side, z.Side, err)
					}
				}
			}
		}
	}
}
