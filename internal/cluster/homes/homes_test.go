package homes

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"lcache/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Run(m)) }

// peers returns peers with IDs from a seed, and the given weights.
func peers(seed uint64, weights ...uint64) []Peer {
	r := rand.New(rand.NewPCG(seed, 0))
	ps := make([]Peer, len(weights))
	for i, w := range weights {
		binary.LittleEndian.PutUint64(ps[i].ID[:], r.Uint64())
		binary.LittleEndian.PutUint64(ps[i].ID[8:], r.Uint64())
		ps[i].Weight = w
	}
	return ps
}

func same(n int, weight uint64) []uint64 { return slices.Repeat([]uint64{weight}, n) }

// loads returns the bytes of each bin for samples with a mean of 100 KB.
func loads(samples int) []uint64 {
	r := rand.New(rand.NewPCG(7, 7))
	loads := make([]uint64, Bins)
	for range samples {
		loads[r.IntN(Bins)] += 4096 * uint64(1+r.IntN(48))
	}
	return loads
}

// bytesOf returns the bytes of the bins whose home each peer is.
func bytesOf(h *Homes, loads []uint64) []uint64 {
	sums := make([]uint64, len(h.peers))
	for bin, n := range loads {
		sums[h.Home(uint16(bin))] += n
	}
	return sums
}

func sum(n []uint64) (total uint64) {
	for _, n := range n {
		total += n
	}
	return total
}

func TestEachPeerGetsItsShareOfTheBytes(t *testing.T) {
	loads := loads(400_000)
	for _, weights := range [][]uint64{{5}, same(2, 9), same(3, 100), same(8, 1<<40), {1, 1, 1, 1, 2, 2, 4, 4}, {1000, 1}, testenv.Pick(same(64, 7), same(16, 7))} {
		h := New(peers(1, weights...), loads)
		var most uint64
		for _, n := range loads {
			most = max(most, n)
		}
		for p, n := range bytesOf(h, loads) {
			fair := float64(sum(loads)) * float64(weights[p]) / float64(sum(weights))
			// The cap bounds each share from above, and so the sum of all others bounds it from below.
			if over := 0.01*fair + float64(most); float64(n) > fair+over || float64(n) < fair-0.01*float64(sum(loads)) {
				t.Errorf("peer %d of %d with weight %d keeps %d bytes, and %.0f would be fair", p, len(weights), weights[p], n, fair)
			}
		}
	}
}

func TestFewBytesMoveWhenAPeerLeaves(t *testing.T) {
	loads := loads(400_000)
	for _, weights := range [][]uint64{same(3, 10), same(8, 10), {1, 1, 1, 1, 2, 2, 4, 4}} {
		before := peers(2, weights...)
		h := New(before, loads)
		for gone := range before {
			after := slices.Delete(slices.Clone(before), gone, gone+1)
			g := New(after, loads)
			var least, moved uint64
			for bin := range Bins {
				a, b := before[h.Home(uint16(bin))], after[g.Home(uint16(bin))]
				if a == before[gone] {
					least += loads[bin]
				}
				if a != b {
					moved += loads[bin]
				}
			}
			if float64(moved) > 1.4*float64(least) {
				t.Errorf("without peer %d of weights %v, %.2f of the least bytes move", gone, weights, float64(moved)/float64(least))
			}
		}
	}
}

func TestOrderOfPeersMakesNoDifference(t *testing.T) {
	loads := loads(50_000)
	ps := peers(3, 1, 2, 3, 3, 5)
	want := New(ps, loads)
	shuffled := []Peer{ps[3], ps[0], ps[4], ps[2], ps[1]}
	got := New(shuffled, loads)
	ranks := got.Ranks(1)
	for bin, rank := range want.Ranks(0) {
		bin := uint16(bin)
		second, _ := want.Second(bin)
		gotSecond, ok := got.Second(bin)
		if !ok || ps[want.Home(bin)] != shuffled[got.Home(bin)] || ps[second] != shuffled[gotSecond] || rank != ranks[bin] {
			t.Fatalf("bin %d has another home, second peer or rank if the peers are listed in another order", bin)
		}
	}
}

// Every bin has each rank once: its home is first, and the peers after it are in the order of their scores.
func TestRanksOfABinAreAllDifferent(t *testing.T) {
	h := New(peers(4, 3, 1, 4, 1, 5), loads(1000))
	all := make([][]uint16, 5)
	for p := range all {
		all[p] = h.Ranks(p)
	}
	for bin := range Bins {
		var seen [5]bool
		for p := range all {
			rank := all[p][bin]
			seen[rank] = true
			second, _ := h.Second(uint16(bin))
			if (rank == 0) != (h.Home(uint16(bin)) == p) || (rank == 1) != (second == p) {
				t.Fatalf("bin %d: peer %d has rank %d, home is %d and second is %d", bin, p, rank, h.Home(uint16(bin)), second)
			}
		}
		if seen != [5]bool{true, true, true, true, true} {
			t.Fatalf("bin %d has ranks %v %v %v %v %v", bin, all[0][bin], all[1][bin], all[2][bin], all[3][bin], all[4][bin])
		}
	}
}

func TestOnePeerIsHomeOfAll(t *testing.T) {
	h := New(peers(5, 1), make([]uint64, Bins)) // nor does a dataset without a byte fail
	for bin, rank := range h.Ranks(0) {
		if _, ok := h.Second(uint16(bin)); h.Home(uint16(bin)) != 0 || rank != 0 || ok {
			t.Fatalf("bin %d: home %d, rank %d, a second peer: %v", bin, h.Home(uint16(bin)), rank, ok)
		}
	}
}

func TestHomesOfADatasetWithoutBytesAreSpread(t *testing.T) {
	h := New(peers(6, 1, 1), make([]uint64, Bins))
	var bins [2]int
	for bin := range Bins {
		bins[h.Home(uint16(bin))]++
	}
	if min(bins[0], bins[1]) < Bins*4/10 {
		t.Errorf("the peers are home of %v bins", bins)
	}
}

func TestMinusLog2(t *testing.T) {
	for _, c := range []struct{ x, want uint64 }{
		{0, 64 << 32}, {1, 64 << 32}, {2, 63 << 32}, {1 << 32, 32 << 32}, {1 << 63, 1 << 32}, {math.MaxUint64, 1},
	} {
		if got := minusLog2(c.x); got != c.want {
			t.Errorf("minusLog2(%#x) = %#x, want %#x", c.x, got, c.want)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		x := r.Uint64() >> r.IntN(64)
		got, want := float64(minusLog2(x))/(1<<32), 64-math.Log2(float64(max(x, 1)))
		if math.Abs(got-want) > 2e-9 {
			t.Fatalf("minusLog2(%#x) is %.12f, want %.12f", x, got, want)
		}
	}
}

func TestNeighboursInAShardShareABin(t *testing.T) {
	if BinOfShard("a.tar", 0) != BinOfShard("a.tar", 4<<20-1) {
		t.Error("samples of one piece have two bins")
	}
	bins := map[uint16]bool{}
	for piece := range uint64(100) {
		bins[BinOfShard("a.tar", piece*4<<20)] = true
		bins[BinOfShard("b.tar", piece*4<<20)] = true
	}
	if len(bins) < 190 {
		t.Errorf("200 pieces have %d bins", len(bins))
	}
}

func BenchmarkNew(b *testing.B) {
	loads := loads(1_000_000)
	for _, n := range []int{3, 8, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			ps := peers(1, same(n, 1<<40)...)
			for b.Loop() {
				New(ps, loads)
			}
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(time.Millisecond), "ms")
		})
	}
}
