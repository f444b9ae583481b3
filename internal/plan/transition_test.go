package plan

import (
	"math"
	"testing"
)

// TestEpochsToReorder compares whole runs: with this many epochs left, reordering is faster; with one less it is not.
func TestEpochsToReorder(t *testing.T) {
	f := imageNet()
	f.Samples, f.Source, f.ConsumerBPS = 8631687, Source{BPS: 40e6}, 2e9
	if k := mustModel(t, f).EpochsToReorder(); k != 2 {
		t.Errorf("16 KB on a volume of 3,000 operations: %v epochs, want 2", k)
	}
	f.Samples = 345267 // 400 KB: random reads are always faster
	if k := mustModel(t, f).EpochsToReorder(); !math.IsInf(k, 1) {
		t.Errorf("400 KB: %v epochs, want none", k)
	}
	for samples := 1_700_000.0; samples < 3_000_000; samples += 50_000 {
		f.Samples = samples
		m := mustModel(t, f)
		k := m.EpochsToReorder()
		b := m.Beginning()
		reordered := func(k float64) float64 {
			return min(b.placeSeconds(), b.sortSeconds()) + (k-2)*m.Epoch(Log).EpochS + m.Run(Log).LastS
		}
		inPlace := func(k float64) float64 { return k * m.Epoch(Static).EpochS }
		if math.IsInf(k, 1) {
			continue
		}
		if reordered(k) >= inPlace(k) || k > 2 && reordered(k-1) < inPlace(k-1)*(1-1e-9) {
			t.Errorf("%.0f samples: %v epochs: reordered %.0f s, in place %.0f s; one less %.0f s and %.0f s", samples, k, reordered(k), inPlace(k), reordered(k-1), inPlace(k-1))
		}
	}
}

// TestModelBeginning: with the rates of a device, small samples are sorted and large ones are not.
func TestModelBeginning(t *testing.T) {
	f := imageNet()
	f.Source, f.ConsumerBPS = Source{BPS: 1e9}, 2e9
	for samples, want := range map[float64]Choice{8631687: Sort, 345267: Wait} {
		f.Samples = samples
		choice, place, sort, why := mustModel(t, f).Beginning().Decide()
		if choice != want || !(place > 0 && sort > 0) {
			t.Errorf("%.0f samples: %v, with random reads %.0f s, with a sort %.0f s: %s", samples, choice, place, sort, why)
		}
	}
	f.Device = DiskLine{}
	if choice, place, sort, why := mustModel(t, f).Beginning().Decide(); choice != Wait || place != 0 || sort != 0 {
		t.Errorf("a disk without limits: %v, %v, %v, %s", choice, place, sort, why)
	}
}
