package engine

import (
	"lcache/cache"
	"lcache/logfile"
	"lcache/metaindex"
)

// A packagePlan is the geometry of packages, and the memory that they take. It is fixed when packages are begun, and read from their journal after that.
type packagePlan struct {
	open     int // packages that are filled at once; the last one is for H-samples
	blocks   int // of a package
	packages int
	room     int   // samples of a package, at most
	queue    int   // bytes of samples on their way from deliveries
	buffer   int   // bytes read at once where something is emptied
	memory   int64 // of all this, beyond what the cache's sizing counts already
}

const (
	packageSamples = 50      // of mean size, at least: a package wastes half a sample on average
	mostLanes      = 5       // so that a package is a mixture of several times its bytes
	leastLanes     = 2       // one for L-samples and one for H-samples
	mostMoved      = 8 << 20 // bytes of a sample that is put into a package; larger ones stay in Logfiles
	runBytes       = 256 << 10
)

// planPackages chooses the geometry within so many bytes of memory. It reports false where even the least is too much.
func (e *Engine) planPackages(left int64) (p packagePlan, ok bool) {
	c := e.cache
	w, n := int64(c.Format.Block), int64(c.Manifest.Len())
	mean, largest := int64(c.Facts().Kept)/max(n, 1), min(int64(c.Facts().Largest), mostMoved)
	p.blocks = int(max(1, (max(packageSamples*mean, largest)+w-1)/w))
	p.blocks = min(p.blocks, max(1, int(c.Sizing.Segment)/int(w)))
	p.room = 2*int(int64(p.blocks)*w/max(mean, 1)) + 16
	p.buffer = int(max(2*runBytes, largest+2*4096))
	p.buffer = (p.buffer + 4095) &^ 4095
	p.queue = int(max(1<<20, 2*largest))
	p.open = mostLanes
	old := c.Store.Packages()
	if old != nil && old.Log().Header().Open > 0 {
		h := old.Log().Header()
		p.open, p.blocks, p.packages = int(h.Open), int(h.SegmentBlocks), int(h.Segments)
		p.memory = int64(p.queue + p.buffer)
		return p, p.memory <= left
	}
	for ; p.open >= leastLanes; p.open-- {
		p.packages = min(c.Format.Places/p.blocks+2*p.open, metaindex.MaxSegments)
		p.memory = int64(p.queue+p.buffer) + int64(cache.PackagesBytes(uint32(p.open), uint32(p.packages), uint64(p.packages*p.room), uint64(w)))
		if p.memory <= left {
			return p, true
		}
	}
	return p, false
}

// besidePackages is what packages leave of memory: they take as much as they are made for, at most a quarter.
func (e *Engine) besidePackages(left int64) int64 {
	p, ok := e.planPackages(left / 4)
	if !ok {
		p, ok = e.planPackages(left)
	}
	if !ok {
		return left
	}
	return left - p.memory
}

// lanes is how many open packages L-samples go to.
func (p *packagePlan) lanes() int { return max(p.open-1, 1) }

// reserve is how many places stay free for emptying: a package that is emptied may fill as many before it is freed, and each open package one.
func (p *packagePlan) reserve() int { return p.blocks + p.open + 4 }

func (p *packagePlan) begin(c *cache.Cache) (*logfile.Packages, error) {
	return c.BeginPackages(p.blocks, p.open, p.packages, p.room)
}
