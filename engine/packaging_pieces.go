package engine

import (
	"lcache/cache"
	"lcache/importance"
	"lcache/logfile"
	"lcache/metaindex"
	"lcache/sample"
)

// pieces are the packages and segments of a cache, by half and segment: the bytes of each that live. They are counted at each boundary by a look at all samples' places, and kept up to date by what is
// moved. What others make a miss meanwhile is seen at the next boundary.
type pieces [logfile.PackageHalf + 1][]importance.Piece

// at is a piece; one that is not known has nothing.
func (p *pieces) at(half, seg int) importance.Piece {
	if seg >= len(p[half]) {
		return importance.Piece{}
	}
	return p[half][seg]
}

// wrote notes that a sample was put into a package, and reports whether that is the first one there.
func (p *pieces) wrote(number int, off uint64, bytes int64) (first bool) {
	list := &p[logfile.PackageHalf]
	for number >= len(*list) {
		*list = append(*list, importance.Piece{})
	}
	if off == 0 {
		(*list)[number] = importance.Piece{}
	}
	(*list)[number].Bytes += bytes
	return off == 0
}

// moved notes that a sample lives in a package, and no longer where it was.
func (p *pieces) moved(c *cache.Cache, from metaindex.Loc, number int, bytes int64, high bool) {
	low := bytes
	if high {
		low = 0
	}
	if half, seg, _, ok := c.Locations.Split(from); ok && seg < len(p[half]) {
		was := &p[half][seg]
		was.Live, was.Low = was.Live-bytes, max(was.Low-low, 0)
	}
	is := &p[logfile.PackageHalf][number]
	is.Live, is.Low = is.Live+bytes, is.Low+low
}

// countPieces counts what lives where. high tells H-samples.
func countPieces(c *cache.Cache, high func(sample.Index) bool) (p pieces) {
	for half := range p {
		l := c.Logfile(half)
		if l == nil {
			continue
		}
		p[half] = make([]importance.Piece, l.Header().Segments)
		for seg := range p[half] {
			piece := &p[half][seg]
			piece.Bytes = int64(l.Blocks(seg)-l.Gone(seg)) * int64(c.Format.Block)
			piece.Ordered = half != logfile.PackageHalf
		}
	}
	for i := range c.Manifest.Len() {
		index := sample.Index(i)
		half, seg, _, ok := c.Locations.Split(c.Locations.Get(index))
		if !ok || seg >= len(p[half]) {
			continue
		}
		bytes := c.Padded(index)
		p[half][seg].Live += bytes
		if !high(index) {
			p[half][seg].Low += bytes
		}
	}
	return p
}

// count counts the pieces at the beginning of an epoch.
func (k *packaging) count() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pieces = countPieces(k.e.cache, k.high.Has)
	for _, v := range k.victims {
		if v.seg < len(k.pieces[v.half]) {
			k.pieces[v.half][v.seg].Stays = true
		}
	}
	k.loose.Close()
	k.loose = nil
	list := k.pieces[logfile.PackageHalf]
	loose, err := sample.NewSet(len(list))
	if err != nil {
		return // nothing is taken from where it lies
	}
	for number, p := range list {
		if p.Bytes > 0 && !p.Holds() {
			loose.Add(uint32(number))
		}
	}
	k.loose = loose
}
