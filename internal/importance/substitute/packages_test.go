package substitute_test

import (
	"testing"

	"lcache/internal/importance/substitute"
	"lcache/sample"
)

// TestPacking: a sample goes to an open package by hash, an H-sample to the last one; no more bytes are written than were consumed.
func TestPacking(t *testing.T) {
	p, again := substitute.NewPacking(3, 7), substitute.NewPacking(3, 7)
	var uses [4]int
	same := 0
	for i := range sample.Index(3000) {
		open := p.Choose(i, i%10 == 0)
		if got := again.Choose(i, i%10 == 0); got != open {
			t.Fatalf("sample %d goes to open package %d, and to %d", i, open, got)
		}
		if (open == 3) != (i%10 == 0) {
			t.Fatalf("sample %d is in open package %d", i, open)
		}
		if open == p.Choose(i, i%10 == 0) && open != 3 { // packed once more
			same++
		}
		again.Choose(i, i%10 == 0)
		uses[open]++
	}
	for open, n := range uses[:3] {
		if n < 800 || n > 1000 {
			t.Errorf("open package %d took %d of 2,700 samples", open, n)
		}
	}
	if same < 700 || same > 1100 {
		t.Errorf("%d of 2,700 samples go to the same open package once more, want a third", same)
	}
	if p.May(1) || !p.May(0) {
		t.Error("no bytes were consumed, but packing may write")
	}
	p.Consumed(100)
	p.Wrote(60)
	if !p.May(40) || p.May(41) {
		t.Error("100 bytes were consumed, 60 written, and not just 40 may be written")
	}
}

// TestVictim checks the choice of the next piece to empty.
func TestVictim(t *testing.T) {
	dense, half, sparse := substitute.Piece{Bytes: 100, Live: 90, Low: 90}, substitute.Piece{Bytes: 100, Live: 50, Low: 20}, substitute.Piece{Bytes: 100, Live: 49, Low: 49}
	emptier, ordered, taken := substitute.Piece{Bytes: 1000, Live: 100}, substitute.Piece{Bytes: 100, Live: 95, Ordered: true}, substitute.Piece{Bytes: 100, Live: 1, Stays: true}
	loose, tight, short := substitute.Space{100, 10, 5}, substitute.Space{100, 9, 5}, substitute.Space{100, 4, 5}
	for _, c := range []struct {
		story  string
		pieces []substitute.Piece
		space  substitute.Space
		want   int
	}{
		{"there is space", []substitute.Piece{sparse, emptier}, loose, -1},
		{"less than a tenth is free: the emptiest goes first", []substitute.Piece{dense, sparse, emptier, ordered}, tight, 2},
		{"nothing is sparse", []substitute.Piece{dense, half, ordered}, tight, -1},
		{"no space: a segment of a Logfile goes, whatever lives in it", []substitute.Piece{dense, half, ordered}, short, 2},
		{"no space, and all samples are in packages: dense ones stay", []substitute.Piece{dense, half}, short, -1},
		{"one that is being emptied, or can't be, is not chosen", []substitute.Piece{taken, sparse}, tight, 1},
		{"one that has nothing on disk is not chosen", []substitute.Piece{{}, dense}, short, -1},
		{"nothing is there", nil, short, -1},
	} {
		if got := substitute.Victim(c.pieces, c.space); got != c.want {
			t.Errorf("%s: %d, want %d", c.story, got, c.want)
		}
	}
	for _, c := range []struct {
		p    substitute.Piece
		want bool
	}{{dense, true}, {half, false}, {sparse, false}, {ordered, false}, {substitute.Piece{Bytes: 100, Live: 100, Low: 50}, true}} {
		if c.p.Holds() != c.want {
			t.Errorf("%+v holds L-samples: %v", c.p, !c.want)
		}
	}
}
