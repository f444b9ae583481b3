package substitute

import (
	"lcache/internal/importance/numeric"
	"lcache/sample"
)

// Packing decides which samples go to which package, and which pieces of a cache are emptied (ImPACT §III-D). Packages are unordered pieces of the log that hold
// L-samples, which no promised order names. Where samples lie is the log's business: Packing has no books of them.
type Packing struct {
	seed   uint64
	open   int
	turn   uint64 // counts packings, for the choice
	credit int64  // bytes that may still be written
}

// NewPacking returns the decisions for a log with open packages for L-samples, and one more for H-samples.
func NewPacking(open int, seed uint64) *Packing {
	return &Packing{seed: seed, open: max(open, 1)}
}

// Choose returns the open package for a sample, from 0. An L-sample goes to one of the first, by hash, so that each package is a random mixture.
// An H-sample goes to the last one.
func (p *Packing) Choose(id sample.Index, high bool) int {
	if high {
		return p.open
	}
	p.turn++
	return int(numeric.Mix(numeric.Mix(p.seed^uint64(id))^p.turn) % uint64(p.open))
}

// Consumed allows as many bytes to be written as were consumed: packing never writes more than training reads.
func (p *Packing) Consumed(bytes int64) { p.credit += bytes }

// May reports whether so many bytes may be written now.
func (p *Packing) May(bytes int64) bool { return bytes <= p.credit }

// Wrote takes bytes off what may be written.
func (p *Packing) Wrote(bytes int64) { p.credit -= bytes }

// A Piece is a package, or a segment of a Logfile: what it takes on disk, and what of that is of use.
type Piece struct {
	Bytes   int64 // on disk
	Live    int64 // of samples that lie there and nowhere else
	Low     int64 // of those, of L-samples
	Ordered bool  // a segment of a Logfile
	Stays   bool  // it can't be emptied now
}

// Holds reports whether an L-sample lies well in the piece: in a package of which half or more are L-samples. Else it is packed when it was read.
func (p Piece) Holds() bool { return !p.Ordered && 2*p.Low >= p.Bytes }

// IsSparse reports whether less than half of the piece lives.
func (p Piece) IsSparse() bool { return 2*p.Live < p.Bytes }

// share is the live share.
func (p Piece) share() float64 { return float64(p.Live) / float64(p.Bytes) }

// Space is how many places of blocks a log has, how many of them are free, and how many are to be free for what is being packed.
type Space struct{ Places, Free, Reserve int }

// Tight reports whether less than a tenth of the log is free.
func (s Space) Tight() bool { return 10*s.Free < s.Places || s.Short() }

// Short reports whether nothing can be packed until places are freed.
func (s Space) Short() bool { return s.Free < s.Reserve }

// Victim chooses the piece that is emptied next, -1 for none, by its place in the list. While there is space, none is. Else it is the piece with the least live
// share, if that is less than half. Without any space it is the Logfile's segment with the least live share, whatever that is: each of its samples is
// moved once. Packages that are denser than half stay, because they would be written again and again.
func Victim(pieces []Piece, s Space) int {
	if !s.Tight() {
		return -1
	}
	best := -1
	for k, p := range pieces {
		if p.Bytes == 0 || p.Stays || !p.IsSparse() && !(p.Ordered && s.Short()) {
			continue
		}
		if best < 0 || p.share() < pieces[best].share() {
			best = k
		}
	}
	return best
}

// Mix puts samples in a random order, by the seed.
func Mix(list []sample.Index, seed uint64, epoch int) {
	numeric.NewStream(seed, uint64(epoch), numeric.ForMix).Shuffle(list)
}
