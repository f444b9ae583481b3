package chunker_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"lcache/chunker"
	"lcache/sample"
)

// TestRestoreEpochLayout: a layout is rebuilt from its starts, its kept samples and its unused samples. Arguments that can't come from a layout of this order give none.
func TestRestoreEpochLayout(t *testing.T) {
	refused := 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 10))
		n := 1 + r.IntN(200)
		sizes := make([]uint32, n)
		kept := make([]bool, n)
		for i := range sizes {
			sizes[i] = uint32(1 + r.IntN(5000))
			kept[i] = r.IntN(5) > 0
		}
		keep := func(i sample.Index) bool { return kept[i] }
		c := randomChunks(t, r, n, 1+r.IntN(3))
		apart := r.IntN(4)
		layout, err := chunker.NewEpochLayoutWith(c, []int{0}, chunker.Cut{Sizes: sizes, Align: 8, Capacity: 5000 + uint64(r.IntN(40_000)), Keep: keep},
			chunker.Unused{Apart: func(i sample.Index) bool { return int(i)%4 < apart }})
		if err != nil {
			t.Fatal(err)
		}
		unused := slices.Clone(layout.Order[layout.Used:])
		again, err := chunker.RestoreEpochLayout(c, []int{0}, n, layout.Starts, keep, unused)
		if err != nil || again == nil || !slices.Equal(again.Order, layout.Order) || !slices.Equal(again.Segment, layout.Segment) || !slices.Equal(again.Starts, layout.Starts) || again.Used != layout.Used || again.Repeats != layout.Repeats {
			t.Fatalf("seed %d: another line, or %v", seed, err)
		}
		again.Free()
		if len(unused) > 1 {
			wrong := slices.Clone(unused)
			switch r.IntN(3) {
			case 0:
				wrong[0] = wrong[1]
			case 1:
				wrong[0] = sample.Index(n + r.IntN(9))
			default:
				wrong = wrong[1:]
			}
			if again, err = chunker.RestoreEpochLayout(c, []int{0}, n, layout.Starts, keep, wrong); again != nil || err != nil {
				t.Fatalf("seed %d: a line with a wrong rest, or %v", seed, err)
			}
			refused++
		}
		layout.Free()
	}
	if refused < 100 {
		t.Errorf("%d wrong lines were tried, want most of 400", refused)
	}
}

// TestEpochLayoutWith: a layout that follows another one has every kept sample once. Delivered samples come first, as in any layout; then the excluded and undelivered ones in
// the given order; carried samples are together in segments at the end.
func TestEpochLayoutWith(t *testing.T) {
	carriedSegments := 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 9))
		n, world := 1+r.IntN(200), 1+r.IntN(3)
		ranks := []int{0}
		sizes := make([]uint32, n)
		kept := make([]bool, n)
		for i := range sizes {
			sizes[i] = uint32(r.IntN(5000))
			kept[i] = sizes[i] > 0 && r.IntN(5) > 0
		}
		cut := chunker.Cut{Sizes: sizes, Align: 8, Capacity: chunker.Padded(5000, 8) + uint64(r.IntN(40_000)), Keep: func(i sample.Index) bool { return kept[i] }}
		before, err := chunker.NewEpochLayout(randomChunks(t, r, n, world), ranks, cut)
		if err != nil {
			t.Fatal(err)
		}
		unused := chunker.Unused{Before: before, Members: before.Members}
		where := map[sample.Index]int{} // the earlier segment of each carried sample
		for k := range before.Segments() {
			if before.IsUnused(k) && r.IntN(2) == 0 && len(before.Members(k)) > 0 {
				unused.Carry = append(unused.Carry, k)
				for _, i := range before.Members(k) {
					where[i] = k
				}
			}
		}
		carriedSegments += len(unused.Carry)
		apart := map[sample.Index]bool{}
		for i := range n {
			if r.IntN(4) == 0 {
				apart[sample.Index(i)] = true
			}
		}
		unused.Apart = func(i sample.Index) bool { return apart[i] }
		for _, i := range r.Perm(n)[:r.IntN(n+1)] {
			unused.Order = append(unused.Order, sample.Index(i))
		}
		c := randomChunks(t, r, n, world)
		layout, err := chunker.NewEpochLayoutWith(c, ranks, cut, unused)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		var used, others []sample.Index
		plain := naiveOrder(c, ranks, kept)
		for _, i := range plain.order[:plain.used] {
			if _, is := where[i]; !is && !apart[i] {
				used = append(used, i)
			}
		}
		for _, i := range slices.Concat(unused.Order, slices.Sorted(slices.Values(plain.order))) {
			if _, is := where[i]; !is && kept[i] && !slices.Contains(used, i) && !slices.Contains(others, i) {
				others = append(others, i)
			}
		}
		if got := layout.Order[:layout.Used]; !slices.Equal(got, used) {
			t.Errorf("seed %d: delivers %v, want %v", seed, got, used)
		}
		if got := layout.Order[layout.Used : len(layout.Order)-len(where)]; !slices.Equal(got, others) {
			t.Errorf("seed %d: the rest is %v, want %v", seed, got, others)
		}
		if len(layout.Carried) != len(unused.Carry) || layout.OfOrder || len(unused.Carry) > 0 && layout.Before != before {
			t.Errorf("seed %d: %d segments are carried, of %d", seed, len(layout.Carried), len(unused.Carry))
		}
		for _, k := range unused.Carry {
			to, ok := layout.CarriedTo(k)
			if !ok || !slices.Equal(layout.Members(to), before.Members(k)) || !layout.IsUnused(to) {
				t.Errorf("seed %d: segment %d is carried to %d, %v", seed, k, to, ok)
			}
		}
		for k := range layout.Segments() {
			bytes := uint64(0)
			for _, i := range layout.Members(k) {
				bytes += chunker.Padded(sizes[i], 8)
				if layout.Segment[i] != uint32(k) {
					t.Errorf("seed %d: sample %d is in segment %d, and its entry says %d", seed, i, k, layout.Segment[i])
				}
			}
			if bytes > cut.Capacity || layout.IsUnused(k) != (layout.Starts[k] >= uint64(layout.Used)) || layout.Starts[k] < uint64(layout.Used) && layout.Starts[k+1] > uint64(layout.Used) {
				t.Errorf("seed %d: segment %d has %d bytes of %d, from %d to %d, and %d are used", seed, k, bytes, cut.Capacity, layout.Starts[k], layout.Starts[k+1], layout.Used)
			}
		}
		layout.Free()
		before.Free()
	}
	if carriedSegments < 100 {
		t.Errorf("only %d segments were carried", carriedSegments)
	}
}
