package plan

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"lcache/internal/testenv"
)

// TestReconsider reads testdata/reconsider.txt. Each paragraph has a dataset of 100 GB, a disk and a served epoch.
// The result is the layout of later epochs, the time with each layout, and the reason.
//
//	reconsider
//	sample=BYTES read=BPS write=BPS iops=N held=SHARE source=BPS layout=log|static took=S stall=S left=N [in-a-log] [wear=BYTES]
func TestReconsider(t *testing.T) {
	datadriven.RunTest(t, "testdata/reconsider.txt", func(t *testing.T, d *datadriven.TestData) string {
		f := Facts{DatasetBytes: 100e9, Batch: 256, Epochs: 90, CacheBytes: 1 << 60, MemoryBytes: 1 << 60, Admit: 1}
		sample, s := 0.0, Served{}
		to := map[string]*float64{"sample": &sample, "read": &f.Device.ReadBPS, "write": &f.Device.WriteBPS, "iops": &f.Device.ReadIOPS, "held": &f.Admit, "source": &f.Source.BPS,
			"took": &s.Seconds, "stall": &s.Stall, "left": &s.Left, "wear": &f.WearPerDay, "leftout": &f.LeftOut}
		for _, field := range strings.Fields(d.Input) {
			name, value, _ := strings.Cut(field, "=")
			switch {
			case name == "layout":
				s.Layout = Policy(value)
			case name == "in-a-log":
				f.FromLog = true
			case to[name] != nil:
				x, err := strconv.ParseFloat(value, 64)
				if err != nil {
					d.Fatalf(t, "%s: %v", field, err)
				}
				*to[name] = x
			default:
				d.Fatalf(t, "unknown field %s", field)
			}
		}
		f.Samples, f.Device.WriteIOPS = f.DatasetBytes/sample, f.Device.ReadIOPS
		a, err := Reconsider(f, s)
		if err != nil {
			return fmt.Sprintf("error: %v\n", err)
		}
		return fmt.Sprintf("%s, of %.0f s (log) and %.0f s (static)\nbecause %s\n", a.Layout, a.LogEpochS, a.StaticEpochS, a.Reason)
	})
}

// TestReconsiderKeepsItsMind: if both layouts perform as predicted, there is at most one change.
func TestReconsiderKeepsItsMind(t *testing.T) {
	testenv.WithoutRace(t)
	for sample := 4e3; sample < 1e6; sample *= 1.07 {
		f := Facts{DatasetBytes: 100e9, Samples: 100e9 / sample, Batch: 256, Epochs: 90, CacheBytes: 1 << 60, MemoryBytes: 1 << 60,
			Device: DiskLine{ReadBPS: 500e6, WriteBPS: 500e6, ReadIOPS: 3000, WriteIOPS: 3000}}
		for _, consumer := range []float64{50, 210, 300, 2000} { // seconds of an epoch without waits
			for _, noise := range []float64{0.97, 1, 1.03} {
				layout, changes := Log, 0
				for epoch := range 10 {
					a, err := Reconsider(f, Served{Layout: layout, Seconds: consumer, Left: 50})
					if err != nil {
						t.Fatal(err)
					}
					real := map[Policy]float64{Log: a.Log.Seconds.Disk, Static: mustModel(t, f).Epoch(Static).Seconds.Disk}[layout]
					took := max(consumer, real*(1+(noise-1)*float64(epoch%2)))
					if a, err = Reconsider(f, Served{Layout: layout, Seconds: took, Stall: took - consumer, Left: 50}); err != nil {
						t.Fatal(err)
					}
					if a.Layout != layout {
						changes++
					}
					layout = a.Layout
				}
				if changes > 1 {
					t.Errorf("samples of %.0f bytes, consumer %g s, noise %g: %d changes", sample, consumer, noise, changes)
				}
			}
		}
	}
}

// FuzzReconsider: any numbers give a layout or an error.
func FuzzReconsider(f *testing.F) {
	f.Add(100e9, 1e6, 500e6, 3000.0, 100.0, 10.0, 5.0, true)
	f.Add(1.0, 1.0, 0.0, 0.0, math.NaN(), -1.0, math.Inf(1), false)
	f.Add(1e24, 1e18, 1e-9, 1e-9, 1e-300, 1e-300, 1.0, true)
	f.Fuzz(func(t *testing.T, bytes, samples, bps, ops, seconds, stall, left float64, inPlace bool) {
		s := Served{Layout: Log, Seconds: seconds, Stall: stall, Left: left}
		if inPlace {
			s.Layout = Static
		}
		facts := Facts{DatasetBytes: bytes, Samples: samples, Batch: 1, Epochs: 2, CacheBytes: bytes, Device: DiskLine{ReadBPS: bps, WriteBPS: bps, ReadIOPS: ops}}
		if a, err := Reconsider(facts, s); err == nil && (a.Layout != Log && a.Layout != Static || a.Reason == "") {
			t.Fatalf("%+v, %+v: %+v", facts, s, a)
		}
	})
}
