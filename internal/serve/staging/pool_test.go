package staging

import (
	"math/rand/v2"
	"testing"
)

// checkPool compares a pool with the allocated pieces: they do not overlap, and free pieces are as large as possible.
func checkPool(t *testing.T, p *pool, base, size uint64, out map[uint64]uint64) {
	t.Helper()
	owner := map[uint64]string{} // by page
	claim := func(off, n uint64, who string) {
		for at := off; at < off+n; at += pieceAlign {
			if owner[at] != "" || at < base || at >= base+size {
				t.Fatalf("page %d belongs to %q and to %q", at, owner[at], who)
			}
			owner[at] = who
		}
	}
	used := uint64(0)
	for off, n := range out {
		claim(off, n, "a piece")
		used += n
	}
	for i, f := range p.free {
		if f.size == 0 {
			t.Fatalf("free piece %d is empty", i)
		}
		if i > 0 && p.free[i-1].off+p.free[i-1].size >= f.off {
			t.Fatalf("free pieces %d and %d are not apart: %+v", i-1, i, p.free)
		}
		claim(f.off, f.size, "a free piece")
	}
	if uint64(len(owner))*pieceAlign != size {
		t.Fatalf("%d of %d bytes are accounted for", uint64(len(owner))*pieceAlign, size)
	}
	if p.used != used || p.total != size {
		t.Fatalf("used %d of %d, want %d of %d", p.used, p.total, used, size)
	}
	if len(p.free) > 0 && p.next >= len(p.free) {
		t.Fatalf("the next search begins at %d of %d", p.next, len(p.free))
	}
}

func TestPoolAgainstAModel(t *testing.T) {
	const base, size = 3 * pieceAlign, 64 * pieceAlign
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		p := newPool(base, size)
		p.ring = seed%2 == 1
		out := map[uint64]uint64{}
		for range 400 {
			if n := uint64(1 + r.IntN(9*pieceAlign)); r.IntN(2) == 0 {
				whole := (n + pieceAlign - 1) / pieceAlign * pieceAlign
				largest := uint64(0)
				for _, f := range p.free {
					largest = max(largest, f.size)
				}
				off, ok := p.alloc(n)
				if ok != (largest >= whole) {
					t.Fatalf("seed %d: %d bytes: %v, the largest free piece has %d", seed, n, ok, largest)
				}
				if ok {
					out[off] = whole
				}
			} else {
				for off, n := range out {
					delete(out, off)
					p.release(off, n)
					break
				}
			}
			checkPool(t, p, base, size, out)
		}
		for off, n := range out {
			delete(out, off)
			p.release(off, n)
		}
		checkPool(t, p, base, size, out)
		if len(p.free) != 1 || p.free[0] != (span{base, size}) {
			t.Errorf("seed %d: all is free, but in pieces: %+v", seed, p.free)
		}
	}
}

// Pieces that are allocated and freed in order use the pool as a ring, around a piece that stays.
func TestPoolIsARing(t *testing.T) {
	const size = 10 * pieceAlign
	p := newRing(0, size)
	stays, _ := p.alloc(pieceAlign)
	var last uint64
	rounds := 0
	for range 40 {
		off, ok := p.alloc(2 * pieceAlign)
		if !ok {
			t.Fatal("no room for one piece in addition to the one that stays")
		}
		if off == stays {
			t.Fatal("the piece that stays was given twice")
		}
		if off <= last {
			rounds++
		}
		last = off
		p.release(off, 2*pieceAlign)
	}
	if p.used != pieceAlign {
		t.Errorf("%d bytes are used, want %d", p.used, pieceAlign)
	}
	if rounds == 0 {
		t.Error("the pool never started again from its first byte")
	}
}

// Clients hold three batches each, and release the oldest. As long as they hold at most three fifths of the memory,
// one free piece is large enough for the next batch.
func TestPoolKeepsAPieceFree(t *testing.T) {
	const size, clients, each, most = 16 << 20, 8, 3, 1 << 20
	type piece struct{ off, n uint64 }
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 2))
		p := newPool(0, size)
		var held [clients][]piece
		give := func(c int) {
			p.release(held[c][0].off, held[c][0].n)
			held[c] = held[c][1:]
		}
		for range 2000 {
			c := r.IntN(clients)
			n := uint64(1+r.IntN(most/pieceAlign)) * pieceAlign
			for p.used+n > size*3/5 || len(held[c]) == each {
				if c = r.IntN(clients); len(held[c]) > 0 {
					give(c)
				}
			}
			short := []piece{}
			for range r.IntN(4) { // read meanwhile, and freed before the next batch
				n := uint64(1+r.IntN(most/4/pieceAlign)) * pieceAlign
				if off, ok := p.alloc(n); ok {
					short = append(short, piece{off, n})
				}
			}
			off, ok := p.alloc(n)
			for _, s := range short {
				p.release(s.off, s.n)
			}
			if !ok {
				t.Fatalf("seed %d: no piece of %d bytes, %d of %d are taken", seed, n, p.used, size)
			}
			held[c] = append(held[c], piece{off, n})
		}
	}
}

func TestPoolOfNothing(t *testing.T) {
	p := newPool(0, 0)
	if off, ok := p.alloc(1); ok {
		t.Errorf("a byte was found at %d in a pool of none", off)
	}
}
