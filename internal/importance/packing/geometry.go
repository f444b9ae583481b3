package packing

import (
	"lcache/internal/store/cache"
	"lcache/logfile"
	"lcache/metaindex"
)

// A geometry has the size and number of packages, and the memory that packing takes. It is chosen when packages are
// begun, and read from their journal later.
type geometry struct {
	open     int   // packages filled at the same time; the last one is for H-samples
	blocks   int   // in one package
	packages int   // maximum
	room     int   // maximum number of samples in a package
	largest  int   // bytes of the largest sample that is packed
	ring     int   // bytes for copies of samples between delivery and package
	buffer   int   // bytes of the longest read from a victim
	memory   int64 // bytes of --memory that the cache's sizing does not count
}

const (
	packageSamples = 50      // minimum, for samples of mean size: a package wastes half a sample on average
	mostOpen       = 5       // enough for a package to mix samples from several times its own bytes
	leastOpen      = 2       // one for L-samples and one for H-samples
	mostPacked     = 8 << 20 // largest sample that is packed, in bytes; larger ones stay in Logfiles
	runBytes       = 256 << 10
)

// facts is the input of chooseGeometry.
type facts struct {
	samples       int
	kept, largest int64           // bytes of all samples and of the largest one, padded
	block         int64           // bytes
	places        int             // number of arena blocks
	segment       int64           // bytes of a Logfile's segment
	begun         *logfile.Header // header of the existing packages; nil: there are none, or they can't be filled
}

func factsOf(c *cache.Cache) facts {
	f := c.Facts()
	out := facts{samples: c.Manifest.Len(), kept: int64(f.Kept), largest: int64(f.Largest), block: int64(c.Format.Block), places: c.Format.Places, segment: int64(c.Sizing.Segment)}
	if p := c.Store.Packages(); p != nil && p.Log().Header().Open > 0 {
		h := p.Log().Header()
		out.begun = &h
	}
	return out
}

// chooseGeometry returns the geometry with the most open packages that takes at most memory bytes. If even the
// smallest one takes more, it returns that one and false.
func chooseGeometry(f facts, memory int64) (g geometry, ok bool) {
	mean, largest := f.kept/max(int64(f.samples), 1), min(f.largest, mostPacked)
	g.blocks = int(max(1, (max(packageSamples*mean, largest)+f.block-1)/f.block))
	g.blocks = min(g.blocks, max(1, int(f.segment/f.block)))
	g.largest = int(largest)
	g.room = 2*int(int64(g.blocks)*f.block/max(mean, 1)) + 16
	g.buffer = int(max(2*runBytes, largest+2*4096)+4095) &^ 4095
	g.ring = int(max(1<<20, 2*largest))
	if h := f.begun; h != nil {
		g.open, g.blocks, g.packages = int(h.Open), int(h.SegmentBlocks), int(h.Segments)
		g.memory = int64(g.ring + g.buffer)
		return g, g.memory <= memory
	}
	for g.open = mostOpen; ; g.open-- {
		g.packages = min(f.places/g.blocks+2*g.open, metaindex.MaxSegments)
		g.memory = int64(g.ring+g.buffer) + int64(cache.PackagesBytes(uint32(g.open), uint32(g.packages), uint64(g.packages*g.room), uint64(f.block)))
		if ok = g.memory <= memory; ok || g.open == leastOpen {
			return g, ok
		}
	}
}

// MemoryLeft returns the bytes of memory that packing leaves to others. Packing takes at most a quarter, unless the
// smallest geometry takes more.
func MemoryLeft(c *cache.Cache, memory int64) int64 {
	f := factsOf(c)
	g, ok := chooseGeometry(f, memory/4)
	if !ok {
		g, ok = chooseGeometry(f, memory)
	}
	if !ok {
		return memory
	}
	return memory - g.memory
}

// openForLow returns the number of open packages for L-samples.
func (g *geometry) openForLow() int { return max(g.open-1, 1) }

// reserve returns the number of arena blocks that stay free for emptying. A package may fill all of its blocks before
// a victim is freed, and each open package may begin one more.
func (g *geometry) reserve() int { return g.blocks + g.open + 4 }

// hasPlacesFor reports whether the free arena blocks are enough to empty n victims in turns. Several victims need
// more, because each may have blocks from which only some samples have moved, and a package is freed only as a whole.
// One victim may always be emptied.
func (g *geometry) hasPlacesFor(n, free int) bool {
	return n == 1 || free >= g.open+2+n*max(2, g.blocks)
}

// fits reports whether the free arena blocks are enough to move bytes out of a victim before any of its own blocks is
// freed. One block is kept for the last block of each open package. Moving 0 bytes needs none.
func (g *geometry) fits(bytes, block int64, places int) bool {
	return bytes <= 0 || int64(places) > int64(g.open)+bytes/block
}

func (g *geometry) begin(c *cache.Cache) (*logfile.Packages, error) {
	return c.BeginPackages(g.blocks, g.open, g.packages, g.room)
}
