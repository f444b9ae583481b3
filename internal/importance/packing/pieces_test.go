package packing

import (
	"testing"

	"lcache/internal/importance/substitute"
	"lcache/logfile"
)

// TestPieces: the live bytes of a piece follow the moves.
func TestPieces(t *testing.T) {
	p := pieces{{{Bytes: 100, Live: 80, Low: 50, Ordered: true}}}
	from, to := piece{0, 0}, piece{logfile.PackagesNum, 3}
	if !p.wrote(3, 0, 30) || p.wrote(3, 30, 20) {
		t.Error("the first sample of a package is not known as that")
	}
	p.left(from, 30, false)
	p.arrived(3, 30, false)
	p.left(from, 20, true)
	p.arrived(3, 20, true)
	for of, want := range map[piece]substitute.Piece{
		from:                     {Bytes: 100, Live: 30, Low: 20, Ordered: true},
		to:                       {Bytes: 50, Live: 50, Low: 30},
		{logfile.PackagesNum, 2}: {}, {1, 7}: {},
	} {
		if got := p.at(of); got != want {
			t.Errorf("%v: %+v, want %+v", of, got, want)
		}
	}
	p.wrote(2, 0, 100)
	p.arrived(2, 100, true)
	loose := p.loose()
	defer loose.Close()
	if loose.Len() != 1 || !loose.Has(2) {
		t.Errorf("%d packages are loose; package 2 with H-samples: %v", loose.Len(), loose.Has(2))
	}
	p.keep(from)
	if !p.at(from).Stays {
		t.Error("a piece that is kept may be chosen")
	}
	p.freed(from)
	p.freed(to)
	p.left(piece{1, 4}, 10, false) // from a piece that was not counted
	if p.at(from) != (substitute.Piece{Ordered: true}) || p.at(to) != (substitute.Piece{}) {
		t.Errorf("freed pieces have %+v and %+v", p.at(from), p.at(to))
	}
	if p.wrote(3, 0, 10); p.at(to).Bytes != 10 {
		t.Errorf("a package that is begun again has %d bytes, want 10", p.at(to).Bytes)
	}
}
