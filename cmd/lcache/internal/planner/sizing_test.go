package planner

import (
	"fmt"
	"math"
	"testing"

	"lcache/chunker"
	"lcache/internal/plan"
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

// TestSmallBlocksDoWhatSpilledTailsWould: a server fits into as little memory with its smallest blocks as it would with tails on disk and blocks of 256 KiB
// (docs/adr/0021-no-spilled-tails.md).
func TestSmallBlocksDoWhatSpilledTailsWould(t *testing.T) {
	for _, bytes := range []float64{25e9, 138e9, 600e9, 1300e9} {
		samples := math.Round(bytes / 107.8e3)
		padded := plan.Padded(bytes, samples)
		f := chunker.Facts{Kept: uint64(padded), Samples: int(samples), Largest: 107800, Batch: 256 * 107800, BatchSamples: 256, Ranks: 1, Devices: 1, Budget: uint64(2 * bytes), Memory: 1}
		z, err := chunker.Size(f)
		if err == nil {
			t.Fatal("a byte of memory is enough")
		}
		spilled := plan.Memory{KeptBytes: padded, LargestBytes: 107800, BlockBytes: 256 << 10, Devices: 1, Ranks: 1, HeldBytes: float64(z.Credit), SideBytes: float64(z.Side + z.Spare),
			Samples: samples, Spill: true}.Sizes()
		t.Logf("%.0f GB: a server needs %.0f MB with blocks of %d KiB; with tails on disk %.0f MB", bytes/1e9, float64(z.Memory)/1e6, z.Block>>10, spilled.MemoryBytes/1e6)
		if float64(z.Memory) > 1.05*spilled.MemoryBytes {
			t.Errorf("%.0f GB: a server needs %.0f MB, with tails on disk %.0f MB", bytes/1e9, float64(z.Memory)/1e6, spilled.MemoryBytes/1e6)
		}
	}
}

// TestLivePlanAsksTheServer: a plan of live facts has the sizes that ingest and serve compute. With 600 MB the formulas would spill tails, which a server does not do.
func TestLivePlanAsksTheServer(t *testing.T) {
	facts := plan.Facts{DatasetBytes: 138e9, Samples: 1281167, Batch: 256, Epochs: 9, CacheBytes: 200e9, MemoryBytes: 4 << 30, SideBytes: 64 << 20, Source: plan.Source{BPS: 1e9},
		Device: plan.DiskLine{ReadBPS: 3e9, WriteBPS: 3e9, ReadIOPS: 500e3}}
	for _, c := range []struct {
		memory, budget float64
		fits           bool
	}{{4 << 30, 200e9, true}, {1 << 30, 200e9, true}, {600e6, 200e9, false}, {4 << 30, 60e9, true}} {
		facts.MemoryBytes, facts.CacheBytes, facts.Sizer = c.memory, c.budget, serverSizes
		m, err := plan.New(facts)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []plan.Policy{plan.Log, plan.Static} {
			z, sp, fits := serverSizes(m.Facts(), p == plan.Static)
			e := m.Epoch(p)
			if e.Sizes != z || e.Fits != fits || fits != c.fits || math.Abs(e.Hit-min(1, c.budget/138e9)) > 0.02 || e.SlackBytes != sp.SlackBytes {
				t.Errorf("%s in %.0f MB, %.0f GB: %+v, fits %v, hit %.3f; want %+v, %v", p, c.memory/1e6, c.budget/1e9, e.Sizes, e.Fits, e.Hit, z, c.fits)
			}
		}
		facts.Sizer = nil
		formula, err := plan.New(facts)
		if err != nil {
			t.Fatal(err)
		}
		if e := formula.Epoch(plan.Log); !e.Fits {
			t.Errorf("the formulas don't fit into %.0f MB", c.memory/1e6)
		}
	}
}

// TestServerSizesOfAnything: absurd facts give an answer or an error, and no panic.
func TestServerSizesOfAnything(t *testing.T) {
	for _, f := range []plan.Facts{
		{DatasetBytes: 1, Samples: 1, Batch: 1, Epochs: 2},
		{DatasetBytes: 1e18, Samples: 1e18, Batch: 1e18, Epochs: 2, CacheBytes: 1e24, MemoryBytes: 1e24},
		{DatasetBytes: 1e18, Samples: 1, Batch: 1, Epochs: 2, Ranks: 1e6, Devices: 1e6, CacheBytes: 1e9},
		{DatasetBytes: 1e12, Samples: 1e6, Batch: 64, Epochs: 2, CacheBytes: 1, StoredRatio: 0.5},
	} {
		f.Sizer = serverSizes
		m, err := plan.New(f)
		if err != nil {
			t.Fatal(err)
		}
		if a, err := m.Auto(); err == nil && math.IsNaN(a.Chosen().EpochS) {
			t.Errorf("%+v: %+v", f, a)
		}
	}
}
