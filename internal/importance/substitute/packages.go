package substitute

import (
	"lcache/internal/importance/numeric"
	"lcache/sample"
)

// Packing decides the package for each sample, and the pieces of a cache to be emptied (ImPACT §III-D). Packages are
// unordered pieces of the log for L-samples, which are in no promised order. Packing does not track where samples are
// stored; the log does.
type Packing struct {
	seed   uint64
	open   int
	turn   uint64 // number of calls of Choose
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

// Consumed allows packing to write as many more bytes as training has consumed. So packing never writes more than
// training reads.
func (p *Packing) Consumed(bytes int64) { p.credit += bytes }

// May reports whether bytes may be written now.
func (p *Packing) May(bytes int64) bool { return bytes <= p.credit }

// Wrote reduces the bytes that may be written.
func (p *Packing) Wrote(bytes int64) { p.credit -= bytes }

// A Piece is a package, or a segment of a Logfile, with its bytes by use.
type Piece struct {
	Bytes   int64 // on disk
	Live    int64 // of live copies
	Low     int64 // of live copies of L-samples
	Ordered bool  // a segment of a Logfile, not a package
	Stays   bool  // it can't be emptied now
}

// Holds reports whether an L-sample is well placed in the piece: in a package with at least half L-samples. In any
// other piece, it is packed after its next read.
func (p Piece) Holds() bool { return !p.Ordered && 2*p.Low >= p.Bytes }

// IsSparse reports whether less than half of the piece is live.
func (p Piece) IsSparse() bool { return 2*p.Live < p.Bytes }

// share returns the live share.
func (p Piece) share() float64 { return float64(p.Live) / float64(p.Bytes) }

// Space counts the arena blocks of a log: all of them, the free ones, and the reserve that packing must leave free.
type Space struct{ Places, Free, Reserve int }

// Tight reports whether less than a tenth of the log is free.
func (s Space) Tight() bool { return 10*s.Free < s.Places || s.Short() }

// Short reports whether nothing can be packed until blocks are freed.
func (s Space) Short() bool { return s.Free < s.Reserve }

// Victim returns the position in pieces of the piece to empty next, or -1 for none. While there is enough space, it
// is none. If space is tight, it is the piece with the smallest live share, if that share is less than half. If space
// is short, it is the Logfile's segment with the smallest live share, whatever that is, because each of its samples
// is moved only once. Packages that are at least half live stay, because they would be written again and again.
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

// Mix shuffles samples by the seed and the epoch.
func Mix(list []sample.Index, seed uint64, epoch int) {
	numeric.NewStream(seed, uint64(epoch), numeric.ForMix).Shuffle(list)
}
