package homes

import (
	"math/rand/v2"
	"testing"
)

// samples returns n samples with hashes and sizes from a seed.
func samples(seed uint64, n int) []Sample {
	r := rand.New(rand.NewPCG(seed, 1))
	all := make([]Sample, n)
	for i := range all {
		name := r.Uint64()
		all[i] = Sample{Bin: BinOf(name), Name: name, Padded: 4096 * uint64(1+r.IntN(40))}
	}
	return all
}

func largest(ranks []uint16, peers int, all []Sample, room uint64) (Threshold, uint64) {
	return Largest(ranks, peers, len(all), func(i int) Sample { return all[i] }, room)
}

// kept returns the bytes that a threshold keeps, and the sample with the least place that it does not keep.
func kept(ranks []uint16, all []Sample, t Threshold) (bytes uint64, next *Sample) {
	for i, s := range all {
		if t.Keeps(ranks[s.Bin], s.Name) {
			bytes += s.Padded
		} else if next == nil || place(ranks[s.Bin], s.Name) < place(ranks[next.Bin], next.Name) {
			next = &all[i]
		}
	}
	return bytes, next
}

func TestThresholdFillsTheRoom(t *testing.T) {
	all := samples(1, 30_000)
	var total uint64
	for _, s := range all {
		total += s.Padded
	}
	for _, n := range []int{1, 2, 3, 8} {
		h := New(peers(1, same(n, 1)...), make([]uint64, Bins))
		ranks := h.Ranks(n - 1)
		for _, tenths := range []uint64{0, 1, 3, 5, 9, 10, 12} {
			room := total * tenths / 10
			threshold, bytes := largest(ranks, n, all, room)
			got, next := kept(ranks, all, threshold)
			if got != bytes || got > room {
				t.Errorf("%d peers, %d/10 of the room: the threshold keeps %d bytes, %d were announced, %d have room", n, tenths, got, bytes, room)
			}
			if next != nil && got+next.Padded <= room {
				t.Errorf("%d peers, %d/10 of the room: %d bytes are free, and the next sample takes %d", n, tenths, room-got, next.Padded)
			}
			if next == nil && threshold != Threshold(n)*One {
				t.Errorf("%d peers: everything is kept, and the threshold is %#x", n, threshold)
			}
		}
	}
}

// With one peer the fixed set is that of a single machine: the samples with the lowest name hashes.
func TestOnePeerKeepsTheLowestHashes(t *testing.T) {
	all := samples(2, 10_000)
	ranks := New(peers(1, 1), make([]uint64, Bins)).Ranks(0)
	threshold, _ := largest(ranks, 1, all, 100_000_000)
	var highest, lowest uint64 = 0, 1<<64 - 1 // hash that is kept, and hash that is not
	for _, s := range all {
		if threshold.Keeps(0, s.Name) {
			highest = max(highest, s.Name)
		} else {
			lowest = min(lowest, s.Name)
		}
	}
	if highest >= lowest || lowest == 1<<64-1 || highest == 0 {
		t.Errorf("hash %#x is kept and %#x is not", highest, lowest)
	}
}

// A peer with more room than its own share keeps all of it before it keeps a copy.
func TestCopiesComeAfterTheOwnBins(t *testing.T) {
	all := samples(3, 20_000)
	h := New(peers(1, 1, 1, 1), make([]uint64, Bins))
	ranks := h.Ranks(0)
	var own uint64
	for _, s := range all {
		if h.Home(s.Bin) == 0 {
			own += s.Padded
		}
	}
	if threshold, bytes := largest(ranks, 3, all, own); threshold < One || bytes != own {
		t.Errorf("room for its own bins gives threshold %#x and %d bytes of %d", threshold, bytes, own)
	}
	threshold, _ := largest(ranks, 3, all, own*3/2)
	for _, s := range all {
		rank := ranks[s.Bin]
		if keeps := threshold.Keeps(rank, s.Name); keeps != (rank == 0) && rank != 1 {
			t.Fatalf("threshold %#x: a sample of rank %d is kept: %v", threshold, rank, keeps)
		}
	}
	if threshold <= One || threshold >= 2*One {
		t.Errorf("room for 1.5 shares gives threshold %#x", threshold)
	}
}
