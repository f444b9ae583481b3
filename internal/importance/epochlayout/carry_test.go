package epochlayout

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestCarry reads testdata/carry.txt. Each paragraph has the unused segments of a layout.
//
//	carry mean=BYTES segment=BYTES block=BYTES opportunistic=BYTES outside=N again=N
//	SEGMENT BYTES WANTED
//	----
//	the segments that stay in place
func TestCarry(t *testing.T) {
	datadriven.RunTest(t, "testdata/carry.txt", func(t *testing.T, d *datadriven.TestData) string {
		var e epochReads
		var mean, segment, block, opportunistic int
		d.ScanArgs(t, "mean", &mean)
		d.ScanArgs(t, "segment", &segment)
		d.ScanArgs(t, "block", &block)
		d.MaybeScanArgs(t, "opportunistic", &opportunistic)
		d.MaybeScanArgs(t, "outside", &e.outside)
		d.MaybeScanArgs(t, "again", &e.again)
		e.mean, e.segment, e.block, e.opportunistic = float64(mean), float64(segment), float64(block), float64(opportunistic)
		for _, line := range strings.Split(d.Input, "\n") {
			var s unusedSegment
			if n, err := fmt.Sscan(line, &s.k, &s.bytes, &s.wanted); n != 3 || err != nil {
				d.Fatalf(t, "%q: %v", line, err)
			}
			e.unused = append(e.unused, s)
		}
		return fmt.Sprintf("%v stay\n", chooseCarried(e))
	})
}

// TestRandomReads: a segment has samples of 16,000 bytes, and a quarter of them is wanted. A wanted sample is read with
// the next one if at most two samples are between them.
func TestRandomReads(t *testing.T) {
	s := unusedSegment{bytes: 400 * 16_000, wanted: 100}
	near := func(got, want float64) bool { return math.Abs(got-want) < 1e-6*math.Max(1, want) }
	all := s.randomReads(16_000, 1000)
	if want := 100 * math.Pow(.75, 3); !near(all.reads, want) || !near(all.opportunistic, 100-want) {
		t.Errorf("%.2f reads, %.2f opportunistic samples; want %.2f and %.2f", all.reads, all.opportunistic, want, 100-want)
	}
	if want := 100 * (.25*.75 + 2*.25*.75*.75) * 16_000; !near(all.gaps, want) {
		t.Errorf("gaps of %.0f bytes, want %.0f", all.gaps, want)
	}
	if none := s.randomReads(16_000, 0); none != (randomReads{reads: 100}) {
		t.Errorf("without memory: %+v, want 100 reads alone", none)
	}
	if some := s.randomReads(16_000, 20); some.opportunistic != 20 || !near(some.gaps, 100*(.25*.75+2*.25*.75*.75)*16_000*20/(100-100*math.Pow(.75, 3))) {
		t.Errorf("with memory for 20: %+v", some)
	}
	if large := s.randomReads(100_000, 1000); large.reads >= 100 || large.gaps != 0 { // larger than the gap: only adjacent samples are read together
		t.Errorf("of large samples: %+v, want fewer than 100 reads without gaps", large)
	}
}
