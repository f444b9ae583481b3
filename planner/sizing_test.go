package planner

import (
	"fmt"
	"math"
	"testing"

	"lcache/chunker"
	"lcache/plan"
)

// TestFormulaIsNearTheServer bounds how far the formulas of a plan are from what ingest and serve size a log by. They are not
// the same: a server's slots have a block more, its side memory covers what clients hold, and it neither spills tails nor
// knows the smallest block that a device's operations allow. Where blocks differ, the hit ratio differs by up to 0.01.
func TestFormulaIsNearTheServer(t *testing.T) {
	for _, bytes := range []float64{1e9, 25e9, 138e9, 1300e9} {
		for _, sample := range []float64{4e3, 16e3, 108e3} {
			for _, part := range []float64{0.3, 0.7, 2} {
				for _, ranks := range []int{1, 8} {
					for _, memory := range []uint64{0, 1 << 30, 4 << 30} {
						t.Run(fmt.Sprintf("%.0fGB/%.0f/%.1f/%d/%d", bytes/1e9, sample, part, ranks, memory>>30), func(t *testing.T) {
							compareSizing(t, bytes, sample, part, ranks, memory)
						})
					}
				}
			}
		}
	}
}

func compareSizing(t *testing.T, bytes, sample, part float64, ranks int, memory uint64) {
	t.Helper()
	samples := math.Round(bytes / sample)
	padded := plan.Padded(bytes, samples)
	const batch = 256
	z, serverErr := chunker.Size(chunker.Facts{
		Kept: uint64(padded), Samples: int(samples), Largest: uint64(sample), Batch: uint64(batch * sample), BatchSamples: batch, Ranks: ranks, Devices: 1,
		Budget: uint64(part * bytes), Memory: memory, MemoryCap: 64 << 30, SourceRate: 100e6,
	})
	limit := float64(memory)
	if memory == 0 {
		limit = 64 << 30
	}
	m, err := plan.New(plan.Facts{DatasetBytes: bytes, Samples: samples, Batch: batch, Epochs: 9, Ranks: float64(ranks), CacheBytes: part * bytes, MemoryBytes: limit, SideBytes: 64 << 20,
		Source: plan.Source{BPS: 100e6}, Device: plan.DiskLine{ReadBPS: 500e6}})
	if err != nil {
		t.Fatal(err)
	}
	e := m.Epoch(plan.Log)
	apart := float64(z.Memory) - e.MemoryBytes
	clients := float64(ranks) * max(batch*sample, 16<<20) // what one batch of every rank takes, or the least that a rank is given
	if bound := 0.1*float64(z.Memory) + e.SegmentBytes + 6*clients; math.Abs(apart) > bound {
		t.Errorf("a server takes %.0f MB, a plan says %.0f MB; the bound is %.0f MB apart", float64(z.Memory)/1e6, e.MemoryBytes/1e6, bound/1e6)
	}
	if serverErr == nil && !e.Fits {
		t.Errorf("a server fits with %.0f MB, a plan says that %.0f MB are needed", float64(z.Memory)/1e6, e.MemoryBytes/1e6)
	}
	if serverErr != nil && e.Fits && !e.Spill && float64(z.Memory)-limit > 6*clients {
		t.Errorf("a plan fits without spilled tails, and a server refuses: %v", serverErr)
	}
	if hit := min(1, float64(z.Room)/padded); z.Room > 0 && math.Abs(hit-e.Hit) > 0.01 {
		t.Errorf("a server admits %.4f, a plan %.4f", hit, e.Hit)
	}
}
