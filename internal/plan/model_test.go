package plan

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
)

// imageNet is ImageNet-1K on a cloud volume.
func imageNet() Facts {
	return Facts{
		DatasetBytes: 138107000000, Samples: 1281167, Batch: 256, Epochs: 90, SideBytes: 64 << 20, CacheBytes: 150e9, MemoryBytes: 4 << 30,
		ConsumerBPS: 1077980000, NetworkBPS: 1250000000,
		Device: DiskLine{CombinedBPS: 500e6, CombinedIOPS: 3000, OpBytes: 256 << 10, Latency: 0.001},
		Source: Source{BPS: 1250e6, Ops: 5500},
	}
}

func mustModel(t *testing.T, f Facts) *Model {
	t.Helper()
	m, err := New(f)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestMoreIsNotSlower: with the best admission, more disk, bandwidth or operations never make an epoch longer.
func TestMoreIsNotSlower(t *testing.T) {
	for name, set := range map[string]func(*Facts, float64){
		"cache":      func(f *Facts, x float64) { f.CacheBytes = x * 150e9 },
		"bandwidth":  func(f *Facts, x float64) { f.Device.CombinedBPS = x * 500e6 },
		"operations": func(f *Facts, x float64) { f.Device.CombinedIOPS = x * 3000 },
		"source":     func(f *Facts, x float64) { f.Source = Source{BPS: x * 1250e6, Ops: x * 5500} },
		"network":    func(f *Facts, x float64) { f.NetworkBPS = x * 1250e6 },
		"consumer":   func(f *Facts, x float64) { f.ConsumerBPS = x * 1077980000 },
	} {
		for _, nodes := range []float64{1, 4} {
			for _, p := range Policies(nodes) {
				before := math.Inf(1)
				for x := 1. / 64; x <= 64; x *= 1.5 {
					f := imageNet()
					f.Nodes = nodes
					set(&f, x)
					_, e := mustModel(t, f).BestAdmission(p)
					// The block is halved as the budget shrinks, so the slack jumps by up to 1 %.
					if e.EpochS > before*1.005 {
						t.Errorf("%s × %.3f, %g nodes, %s: %.2f s, with less %.2f s", name, x, nodes, p, e.EpochS, before)
					}
					before = e.EpochS
				}
			}
		}
	}
}

// TestMoreMemoryLosesNoHits: a larger block takes more slack, but at most 0.01 of the hit ratio.
func TestMoreMemoryLosesNoHits(t *testing.T) {
	for _, budget := range []float64{1e9, 5e9, 20e9, 70e9, 137e9} {
		before := 0.0
		for memory := 100e6; memory < 16e9; memory *= 1.3 {
			f := imageNet()
			f.CacheBytes, f.MemoryBytes = budget, memory
			hit := mustModel(t, f).Epoch(Log).Hit
			if hit < before-0.01 {
				t.Errorf("budget %.0f GB, memory %.2f GB: hit %.4f, with less memory %.4f", budget/1e9, memory/1e9, hit, before)
			}
			before = max(before, hit)
		}
	}
}

// TestHitBound: no policy holds more than its nodes have room for.
func TestHitBound(t *testing.T) {
	for _, nodes := range []float64{1, 2, 4, 16} {
		for _, budget := range []float64{0, 1e8, 1e9, 30e9, 60e9, 137e9, 1e12} {
			f := imageNet()
			f.Nodes, f.CacheBytes = nodes, budget
			for _, p := range Policies(nodes) {
				if hit, bound := mustModel(t, f).Epoch(p).Hit, min(1, nodes*budget/f.DatasetBytes); hit > bound+1e-12 || hit < 0 {
					t.Errorf("%s on %g nodes with %g bytes: hit %v, bound %v", p, nodes, budget, hit, bound)
				}
			}
		}
	}
}

// TestBestAdmissionIsBest compares with a scan over admissions.
func TestBestAdmissionIsBest(t *testing.T) {
	for _, p := range []Policy{MinIO, TwoLogfile, Log, Static} {
		m := mustModel(t, imageNet())
		_, best := m.BestAdmission(p)
		for a := 0.0; a <= 1; a += 0.001 {
			if e := m.epochAt(p, a); e.EpochS < best.EpochS*(1-1e-9) {
				t.Errorf("%s: holding %.3f takes %.3f s, the best admission %.4f %.3f s", p, a, e.EpochS, best.Hit, best.EpochS)
			}
		}
	}
}

// TestSmallestCache: with this budget the best epoch is within 2 % of any; with 2 % less budget it is not.
func TestSmallestCache(t *testing.T) {
	m := mustModel(t, imageNet())
	best := func(p Policy, budget float64) float64 {
		_, e := m.with(func(f *Facts) { f.CacheBytes = budget }).BestAdmission(p)
		return e.EpochS
	}
	for p, want := range map[Policy]float64{TwoLogfile: 73e9, Log: 39e9, Static: 47e9} {
		got := m.SmallestCache(p)
		if math.Abs(got-want) > 0.5e9 {
			t.Errorf("%s: smallest cache %.1f GB, want %.0f", p, got/1e9, want/1e9)
		}
		limit := 1.02 * best(p, 1e12)
		if with, without := best(p, got), best(p, 0.98*got); with > limit*(1+1e-9) || without <= limit {
			t.Errorf("%s: %.2f s with it and %.2f s with less, the limit is %.2f s", p, with, without, limit)
		}
	}
	if got := m.SmallestCache(SourceOnly); got != 0 {
		t.Errorf("the source alone needs a cache of %g bytes", got)
	}
}

// TestRunAddsUp: the parts add up to the whole, and an ingest is counted once.
func TestRunAddsUp(t *testing.T) {
	for _, epochs := range []float64{1, 2, 3, 90} {
		for _, prefill := range []bool{false, true} {
			f := imageNet()
			f.Epochs, f.Prefill = epochs, prefill
			m := mustModel(t, f)
			for _, p := range Policies(1) {
				r, e := m.Run(p), m.Epoch(p)
				want := r.IngestS + r.FirstS
				if epochs > 1 {
					want += (epochs-2)*r.SteadyS + r.LastS
				}
				if math.Abs(r.RunS-want) > 1e-6*want {
					t.Errorf("%s, %g epochs, prefill %v: %v", p, epochs, prefill, r)
				}
				written := (epochs - 1) * e.WriteBytes
				if !p.reorders() && p != TwoLogfile && p != SourceOnly {
					written = e.Hit * f.DatasetBytes * min(epochs-1, 1)
				}
				if prefill && p != SourceOnly {
					written = max(written+e.WriteBytes, e.Hit*f.DatasetBytes)
				}
				if math.Abs(r.WrittenBytes-written) > 1e-6*written {
					t.Errorf("%s, %g epochs, prefill %v: writes %g bytes, want %g", p, epochs, prefill, r.WrittenBytes, written)
				}
				if (r.IngestS > 0) != (prefill && p != SourceOnly) {
					t.Errorf("%s, prefill %v: ingest takes %g s", p, prefill, r.IngestS)
				}
			}
		}
	}
}

// TestAutoMindsWear: if a log would write more than the drives are rated for, less is held. If static is then as fast,
// static is chosen.
func TestAutoMindsWear(t *testing.T) {
	f := imageNet()
	f.Samples, f.Source, f.ConsumerBPS = 8631687, Source{BPS: 150e6}, 2e9
	free, err := mustModel(t, f).Auto()
	if err != nil || free.Layout != Log || free.WritesPerDay == 0 {
		t.Fatalf("%+v, %v", free, err)
	}
	f.WearPerDay = 0.9 * free.WritesPerDay
	some, err := mustModel(t, f).Auto()
	if err != nil || some.Layout != Log || some.WritesPerDay > f.WearPerDay*1.001 || some.Log.Hit >= free.Log.Hit || !strings.Contains(some.Reason, "rated for") {
		t.Errorf("with nine tenths of the wear: %s, %.3g a day, holds %.3f: %s, %v", some.Layout, some.WritesPerDay, some.Log.Hit, some.Reason, err)
	}
	f.WearPerDay = free.WritesPerDay / 1000
	none, err := mustModel(t, f).Auto()
	if err != nil || none.Layout != Static || none.WritesPerDay != 0 || !strings.Contains(none.Reason, "rated for") {
		t.Errorf("with hardly any wear: %s: %s, %v", none.Layout, none.Reason, err)
	}
}

// TestAutoSays: the reason is one sentence with the bottleneck, both times and the write volume.
func TestAutoSays(t *testing.T) {
	a, err := mustModel(t, imageNet()).Auto()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"151 s", "164 s", "bound by the", "save nothing", "21.6 TB a day"} {
		if !strings.Contains(a.Reason, want) {
			t.Errorf("%q lacks %q", a.Reason, want)
		}
	}
	f := imageNet()
	f.MemoryBytes = 50e6
	_, err = mustModel(t, f).Auto()
	var small *MemoryError
	if !errors.As(err, &small) || small.Needs < 50e6 || !strings.Contains(err.Error(), "needs") {
		t.Errorf("50 MB of memory: %v", err)
	}
	f.MemoryBytes = small.Needs
	if _, err := mustModel(t, f).Auto(); err != nil {
		t.Errorf("with the memory that the error names: %v", err)
	}
}

// TestCrossovers: at the crossover both layouts cost the disk the same.
func TestCrossovers(t *testing.T) {
	d := DiskLine{CombinedBPS: 500e6, CombinedIOPS: 3000}
	if got := d.IOPSCrossover(107.8e3); math.Abs(got-2319) > 1 {
		t.Errorf("I* is %.0f, want 2319", got)
	}
	if got := d.CombinedCrossover(107.8e3); math.Abs(got-647e6) > 1e6 {
		t.Errorf("B* is %.0f, want 647 MB/s", got)
	}
	each := DiskLine{ReadBPS: 500e6, WriteBPS: 500e6, ReadIOPS: 3000}
	if got := each.MixCrossover(107.8e3); math.Abs(got-0.55) > 0.005 {
		t.Errorf("φ* is %.3f, want 0.55", got)
	}
	if got := d.SmallestBlock(); math.Abs(got-167e3) > 1e3 {
		t.Errorf("the smallest block is %.0f, want 167 KB", got)
	}
}

// TestModelRefuses: invalid facts are refused by name.
func TestModelRefuses(t *testing.T) {
	for _, tc := range []struct {
		change func(*Facts)
		want   string
	}{
		{func(f *Facts) { f.DatasetBytes = 0 }, "dataset_bytes is 0"},
		{func(f *Facts) { f.Samples = 0 }, "samples is 0"},
		{func(f *Facts) { f.Samples = 1e18 }, "samples is 1e+18"},
		{func(f *Facts) { f.Samples = math.NaN() }, "samples is NaN"},
		{func(f *Facts) { f.CacheBytes = -1 }, "cache_bytes is -1"},
		{func(f *Facts) { f.Device.ReadBPS = math.Inf(1) }, "device.read_bps is +Inf"},
		{func(f *Facts) { f.Device.Mix = 2 }, "device.mix is 2"},
		{func(f *Facts) { f.Source.Ops = -5 }, "source.ops is -5"},
		{func(f *Facts) { f.Epochs = 0 }, "epochs is 0"},
		{func(f *Facts) { f.LeftOut = 1.5 }, "left_out"},
		{func(f *Facts) { f.BlockBytes = 1 }, "block_bytes"},
	} {
		f := imageNet()
		tc.change(&f)
		if _, err := New(f); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("want an error with %q, got %v", tc.want, err)
		}
	}
}

func TestNextUseRefuses(t *testing.T) {
	for name, call := range map[string]func() error{
		"nodes": func() error { _, _, err := NextUse(0, 1); return err },
		"at":    func() error { _, err := NextUseAt(4, math.NaN()); return err },
	} {
		if call() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestNextUseAtFarSide: huge clusters and shares near 1 give a result.
func TestNextUseAtFarSide(t *testing.T) {
	for _, nodes := range []float64{1, 2, 1e3, 1e9, 1e12} {
		before := -1.0
		for _, share := range []float64{0, 1e-12, 1e-6, 0.1, 0.5, 0.9, 0.999999, 1, 5, 1e18} {
			hit, err := NextUseAt(nodes, share)
			if err != nil || hit < before || hit > 1 || hit < min(1, share)-1e-9 {
				t.Errorf("%g nodes that hold %g: hit %v after %v, %v", nodes, share, hit, before, err)
			}
			before = hit
		}
	}
}

// FuzzModel: any facts give answers or an error.
func FuzzModel(f *testing.F) {
	for _, facts := range []Facts{imageNet(), {DatasetBytes: 1, Samples: 1, Batch: 1, Epochs: 1}, {DatasetBytes: 1e18, Samples: 1e18, Batch: 1e18, Epochs: 1e12, Nodes: 1e9, CacheBytes: 1e24}} {
		text, err := json.Marshal(facts)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var facts Facts
		if json.Unmarshal(text, &facts) != nil {
			return
		}
		m, err := New(facts)
		if err != nil {
			return
		}
		for _, p := range Policies(m.Facts().Nodes) {
			e, r := m.Epoch(p), m.Run(p)
			admit, best := m.BestAdmission(p)
			for name, x := range map[string]float64{"hit": e.Hit, "epoch": e.EpochS, "memory": e.MemoryBytes, "run": r.RunS, "admit": admit, "best": best.EpochS, "smallest": m.SmallestCache(p)} {
				if math.IsNaN(x) || x < 0 {
					t.Fatalf("%s: %s is %v for %s", p, name, x, text)
				}
			}
		}
		if a, err := m.Auto(); err == nil && a.Layout != Log && a.Layout != Static {
			t.Fatalf("auto says %q for %s", a.Layout, text)
		}
		facts.Device.Crossover()
		facts.Device.BestMix(facts.DatasetBytes / facts.Samples)
	})
}

// TestBurst: an epoch that begins on a rested disk is shorter by the burst, if the disk is the bottleneck. Other
// epochs are not.
func TestBurst(t *testing.T) {
	f := Facts{DatasetBytes: 1e9, Samples: 1e5, Batch: 256, Epochs: 9, CacheBytes: 2e9, Device: DiskLine{ReadBPS: 500e6, WriteBPS: 500e6, ReadIOPS: 3000, WriteIOPS: 3000}}
	for _, p := range []Policy{Log, Static} {
		f.Device.Burst = 0
		without := mustModel(t, f).Epoch(p)
		f.Device.Burst = 0.076
		with := mustModel(t, f).Epoch(p)
		if without.RestedS != 0 || with.EpochS != without.EpochS || math.Abs(with.EpochS-with.RestedS-0.076) > 1e-9 {
			t.Errorf("%s: %g s, rested %g s; without a burst %g s, rested %g s", p, with.EpochS, with.RestedS, without.EpochS, without.RestedS)
		}
	}
	f.ConsumerBPS = 1e6
	if e := mustModel(t, f).Epoch(Log); e.RestedS != e.EpochS {
		t.Errorf("the consumer binds: %g s, rested %g s", e.EpochS, e.RestedS)
	}
	f.Device.Burst = 1e9
	f.ConsumerBPS = 0
	if e := mustModel(t, f).Epoch(Log); e.RestedS != 0 {
		t.Errorf("a burst longer than the epoch: rested %g s", e.RestedS)
	}
}

// TestMorePeersAreNotSlower: with the best admission, one more peer never makes an epoch longer.
func TestMorePeersAreNotSlower(t *testing.T) {
	for _, budget := range []float64{1e9, 20e9, 60e9, 150e9, 1e12} {
		for _, network := range []float64{0, 10e6, 125e6, 1250e6} {
			for _, p := range []Policy{PeerLog, PeerStatic} {
				before := math.Inf(1)
				for nodes := 2.0; nodes <= 64; nodes++ {
					f := imageNet()
					f.Nodes, f.CacheBytes, f.NetworkBPS = nodes, budget, network
					_, e := mustModel(t, f).BestAdmission(p)
					// The segments and blocks of a smaller share are smaller, so the slack jumps by up to 1 % of the budget.
					if e.EpochS > before*1.01 {
						t.Errorf("%g nodes with %g bytes, network %g, %s: %.2f s, with one less %.2f s", nodes, budget, network, p, e.EpochS, before)
					}
					before = e.EpochS
				}
			}
		}
	}
}

// TestCopies: room beyond one copy is for copies with the static layout, which the network then does not carry. With room for everything, nothing crosses it.
func TestCopies(t *testing.T) {
	for _, tc := range []struct {
		p         Policy
		budget    float64 // of the dataset, on each of four nodes
		copies, h float64
	}{{PeerStatic, 0.1, 0.4, 0.4}, {PeerStatic, 0.4, 1.6, 1}, {PeerStatic, 2, 4, 1}, {PeerLog, 0.1, 0.4, 0.4}, {PeerLog, 0.4, 1, 1}, {PeerLog, 2, 1, 1}} {
		f := imageNet()
		f.Nodes, f.CacheBytes = 4, tc.budget*f.DatasetBytes
		m := mustModel(t, f)
		e := m.Epoch(tc.p)
		network := f.DatasetBytes / 4 * (e.Hit - e.Copies/4)
		if math.Abs(e.Copies-tc.copies) > 0.02*tc.copies || math.Abs(e.Hit-tc.h) > 0.02 || math.Abs(e.NetworkBytes-network) > 1 {
			t.Errorf("%s with %g of the dataset a node: %.3f copies, hit %.3f, %.4g bytes from peers, want %g, %g and %.4g", tc.p, tc.budget, e.Copies, e.Hit, e.NetworkBytes, tc.copies, tc.h, network)
		}
		written := e.Copies * f.DatasetBytes / 4
		if tc.p == PeerLog {
			written *= f.Epochs - 1
		}
		if r := m.Run(tc.p); math.Abs(r.WrittenBytes-written) > 1 {
			t.Errorf("%s with %g of the dataset a node: %.4g bytes are written, want %.4g", tc.p, tc.budget, r.WrittenBytes, written)
		}
	}
}

// TestFirstEpochOfPeers: together the peers read the source once, and each also receives from the others what they keep.
func TestFirstEpochOfPeers(t *testing.T) {
	f := imageNet()
	f.Nodes, f.CacheBytes = 4, f.DatasetBytes/4*1.1
	f.Source, f.NetworkBPS, f.ConsumerBPS = Source{BPS: 20e6}, 0, 0
	if got, want := mustModel(t, f).Run(PeerStatic).FirstS, f.DatasetBytes/20e6; math.Abs(got-want) > 1e-6*want {
		t.Errorf("bound by the source, the first epoch takes %g s, want %g", got, want)
	}
	f.Source, f.NetworkBPS = Source{}, 10e6
	if got, want := mustModel(t, f).Run(PeerStatic).FirstS, f.DatasetBytes/4*(1+3./4)/10e6; math.Abs(got-want) > 1e-6*want {
		t.Errorf("bound by the network, the first epoch takes %g s, want %g", got, want)
	}
}

// TestBordersOfPeers: a machine of a cluster reads some samples in two parts, because it fills several blocks at a time.
func TestBordersOfPeers(t *testing.T) {
	f := imageNet()
	f.Nodes, f.CacheBytes, f.BlockBytes = 4, f.DatasetBytes/4*1.1, 256<<10
	f.Source, f.NetworkBPS, f.ConsumerBPS = Source{}, 0, 0
	f.Device = DiskLine{ReadIOPS: 500, WriteIOPS: 500}
	perSample := 1 + f.DatasetBytes/f.Samples/f.BlockBytes
	if got, want := mustModel(t, f).Epoch(PeerStatic).EpochS, f.Samples/4*perSample/500; math.Abs(got-want) > 1e-6*want {
		t.Errorf("an epoch takes %g s, want %g: %g reads a sample", got, want, perSample)
	}
}
