package packing

import (
	"lcache/internal/importance/substitute"
	"lcache/internal/store/cache"
	"lcache/logfile"
	"lcache/sample"
)

// pieces has the live bytes of each segment and package of a cache, by Logfile and number. When an epoch begins, a
// scan of all samples' locations counts them. Each move updates them. If another goroutine turns a sample into a
// miss, pieces notices that when the next epoch begins.
type pieces [logfile.PackagesNum + 1][]substitute.Piece

// at returns a piece; an empty one if it is unknown.
func (p *pieces) at(of piece) substitute.Piece {
	if of.number >= len(p[of.num]) {
		return substitute.Piece{}
	}
	return p[of.num][of.number]
}

// wrote records that a sample was written to a package. It reports whether that is the first sample in the package.
func (p *pieces) wrote(number int, off uint64, bytes int64) (first bool) {
	list := &p[logfile.PackagesNum]
	for number >= len(*list) {
		*list = append(*list, substitute.Piece{})
	}
	if off == 0 {
		(*list)[number] = substitute.Piece{}
	}
	(*list)[number].Bytes += bytes
	return off == 0
}

// left records that a sample has left a piece.
func (p *pieces) left(from piece, bytes int64, high bool) {
	if from.number < len(p[from.num]) {
		p[from.num][from.number].Live -= bytes
		p[from.num][from.number].Low = max(p[from.num][from.number].Low-lowBytes(bytes, high), 0)
	}
}

// arrived records that a sample now has its live copy in a package.
func (p *pieces) arrived(number int, bytes int64, high bool) {
	p[logfile.PackagesNum][number].Live += bytes
	p[logfile.PackagesNum][number].Low += lowBytes(bytes, high)
}

func lowBytes(bytes int64, high bool) int64 {
	if high {
		return 0
	}
	return bytes
}

// freed records that a piece is empty.
func (p *pieces) freed(of piece) {
	if of.number < len(p[of.num]) {
		p[of.num][of.number] = substitute.Piece{Ordered: !of.isPackage()}
	}
}

// keep excludes a piece from becoming a victim until the next epoch.
func (p *pieces) keep(of piece) {
	if of.number < len(p[of.num]) {
		p[of.num][of.number].Stays = true
	}
}

// loose returns the packages with less than half L-samples. It returns nil without memory for the set.
func (p *pieces) loose() *sample.Set {
	list := p[logfile.PackagesNum]
	loose, err := sample.NewSet(len(list))
	if err != nil {
		return nil
	}
	for number, piece := range list {
		if piece.Bytes > 0 && !piece.Holds() {
			loose.Add(uint32(number))
		}
	}
	return loose
}

// countPieces counts the live bytes of each piece.
func countPieces(c *cache.Cache, high *sample.Set) (p pieces) {
	for num := range p {
		l := c.Logfile(num)
		if l == nil {
			continue
		}
		p[num] = make([]substitute.Piece, l.Header().Segments)
		for number := range p[num] {
			p[num][number] = substitute.Piece{Bytes: int64(l.Blocks(number)-l.Gone(number)) * int64(c.Format.Block), Ordered: num != logfile.PackagesNum}
		}
	}
	for i := range c.Manifest.Len() {
		index := sample.Index(i)
		num, number, _, ok := c.Locations.Split(c.Locations.Get(index))
		if !ok || number >= len(p[num]) {
			continue
		}
		bytes := c.Padded(index)
		p[num][number].Live += bytes
		p[num][number].Low += lowBytes(bytes, high.Has(index))
	}
	return p
}
