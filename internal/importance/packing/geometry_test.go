package packing

import (
	"testing"

	"lcache/logfile"
)

// TestGeometry: with less memory, fewer packages are open, but at least two.
func TestGeometry(t *testing.T) {
	f := facts{samples: 10_000, kept: 10_000 * 13_000, largest: 16 << 10, block: 128 << 10, places: 1100, segment: 2 << 20}
	g, ok := chooseGeometry(f, 1<<40)
	if !ok || g.open != mostOpen || g.blocks != 5 || g.packages != 1100/5+2*mostOpen || g.openForLow() != mostOpen-1 {
		t.Errorf("with any memory: %+v", g)
	}
	if bytes := int64(g.blocks) * f.block; bytes < packageSamples*13_000 || int64(g.room)*13_000 < bytes {
		t.Errorf("a package of %d bytes has room for %d samples", bytes, g.room)
	}
	for open := mostOpen; open >= leastOpen; open-- {
		if g.open != open || !ok {
			t.Errorf("%d packages are open, want %d", g.open, open)
		}
		if same, ok := chooseGeometry(f, g.memory); !ok || same != g {
			t.Errorf("with the memory that it takes: %+v, want %+v", same, g)
		}
		g, ok = chooseGeometry(f, g.memory-1)
	}
	if ok || g.open != leastOpen {
		t.Errorf("with too little memory: %v, %+v", ok, g)
	}
}

// TestGeometryLimits: existing packages keep their size. A package is not larger than a segment, and a huge sample is
// not packed.
func TestGeometryLimits(t *testing.T) {
	f := facts{samples: 10_000, kept: 10_000 * 13_000, largest: 16 << 10, block: 128 << 10, places: 1100, segment: 2 << 20}
	f.begun = &logfile.Header{Open: 3, SegmentBlocks: 7, Segments: 40}
	g, ok := chooseGeometry(f, 16<<20)
	if !ok || g.open != 3 || g.blocks != 7 || g.packages != 40 || g.memory != int64(g.ring+g.buffer) {
		t.Errorf("of packages that exist: %v, %+v", ok, g)
	}
	f.begun, f.largest = nil, 100<<20
	if g, _ = chooseGeometry(f, 1<<40); int64(g.blocks)*f.block > f.segment || g.buffer > mostPacked+16<<10 {
		t.Errorf("with a huge sample: %+v", g)
	}
	if g, ok = chooseGeometry(facts{block: 128 << 10}, 1<<40); !ok || g.blocks != 1 {
		t.Errorf("without samples: %v, %+v", ok, g)
	}
}
