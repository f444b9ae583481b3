package planner

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lcache/cmd/lcache/internal/doctor"
	"lcache/internal/serve/status"
	"lcache/internal/usage"
)

// volume are the facts of ImageNet-1k on a cloud volume, as flags say them.
func volume(t *testing.T) *Facts {
	t.Helper()
	f := &Facts{}
	for name, text := range map[string]string{
		"samples": "1,281,167", "bytes": "138107MB", "batch-size": "256", "epochs": "90", "budget": "150GB", "memory": "4GiB", "combined-bw": "500MB/s", "combined-iops": "3000",
		"op-size": "256KiB", "source-bw": "1.25GB/s", "source-ops": "5500", "consumer": "10000/s", "network": "10Gbit/s",
	} {
		set(t, f, name, text)
	}
	f.assume()
	return f
}

func set(t *testing.T, f *Facts, name, text string) {
	t.Helper()
	if err := f.Set(name, text, "given"); err != nil {
		t.Fatal(err)
	}
}

func TestReport(t *testing.T) {
	f := volume(t)
	if m := f.Missing(); m != nil {
		t.Fatal(m)
	}
	changes := []Change{{"sample-size", []string{"16KB"}}, {"source-bw", []string{"150MB/s"}}, {"consumer", []string{"1000/s"}}, {"memory", []string{"50MB"}}}
	r, err := f.Report(changes)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Policies) != 5 || r.Advice.Layout != "static" || math.Abs(r.Advice.Admit-0.353) > 0.001 || math.Abs(r.Advice.EpochS-150.7) > 0.1 || r.Advice.NextLimit != "consumer" || math.Abs(r.Advice.NextLimitS-128.1) > 0.1 {
		t.Errorf("%d policies, %+v", len(r.Policies), r.Advice)
	}
	for i, want := range []struct {
		layout string
		epoch  float64
	}{{"log", 409}, {"static", 292}, {"none", 1281}, {"none", 0}} {
		if got := r.WhatIf[i]; got.Layout != want.layout || want.epoch > 0 && math.Abs(got.EpochS-want.epoch) > 1 {
			t.Errorf("what if %s=%s: %s, %.1f s; want %s, %.0f s", got.Key, got.Value, got.Layout, got.EpochS, want.layout, want.epoch)
		}
	}
	if !strings.Contains(r.WhatIf[3].Error, "needs") {
		t.Errorf("with 50 MB of memory: %q", r.WhatIf[3].Error)
	}
	if f.From["samples"] != "given" || f.From["ranks"] != "assumed" || f.ConsumerBPS != 10000 {
		t.Errorf("the report changed the facts: %v", f.From)
	}
	if r.Advice.SecondRun != nil {
		t.Errorf("static has a second run of its own: %+v", r.Advice.SecondRun)
	}
	set(t, f, "samples", "8,631,687")
	set(t, f, "source-bw", "150MB/s")
	if small, err := f.Report(nil); err != nil || small.Advice.Layout != "log" || small.Advice.SecondRun == nil || small.Advice.SecondRun.Choice != "sort" || !(small.Advice.SecondRun.SortS < small.Advice.SecondRun.PlaceS) {
		t.Errorf("16 KB: %+v, %v", small.Advice, err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"provenance":{`, `"consumer":"given"`, `"policy":"two_logfile"`, `"best_epoch_s":`, `"first_s":`, `"drive_writes_per_day":0`, `"consumer_bps":1077`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the document lacks %s:\n%s", want, text)
		}
	}
}

// missing lists the names of the missing facts.
func missing(f *Facts) (names []string) {
	for _, m := range f.Missing() {
		names = append(names, m.Name)
	}
	return names
}

// TestMissing: each unknown fact is listed, with the flags that give it.
func TestMissing(t *testing.T) {
	for name, way := range map[string]string{"consumer": "--consumer", "budget": "--budget", "samples": "--source", "epochs": "--epochs"} {
		f := volume(t)
		delete(f.From, name)
		if got := f.Missing(); len(got) != 1 || got[0].Name != name || !strings.Contains(got[0].Ways, way) {
			t.Errorf("without %s: %v", name, got)
		}
	}
	f := volume(t)
	delete(f.From, "combined-iops")
	if got := f.Missing(); len(got) != 1 || !strings.Contains(got[0].Ways, "doctor --cache DIR --save FILE") {
		t.Errorf("without a disk: %v", got)
	}
	f = volume(t)
	delete(f.From, "source-bw")
	if got := missing(f); got != nil {
		t.Errorf("source-ops is enough for a source: %v", got)
	}
	set(t, f, "nodes", "4")
	delete(f.From, "network")
	if got := missing(f); !slices.Contains(got, "network") {
		t.Errorf("four nodes without a network: %v", got)
	}
}

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		kind Kind
		text string
		want float64
	}{
		{Size, "138GB", 138e9}, {Size, "512MiB", 512 << 20}, {Rate, "500MB/s", 500e6}, {Rate, "500MB", 500e6}, {Rate, "10Gbit/s", 1.25e9}, {Rate, "10Gb/s", 1.25e9}, {Rate, "unlimited", math.Inf(1)},
		{RateOrN, "20000/s", 20000}, {RateOrN, "20,000/s", 20000}, {RateOrN, "2GB/s", 2e9}, {Number, "3000", 3000}, {Number, "4e6", 4e6}, {Number, "0.5", 0.5}, {Number, "unlimited", math.Inf(1)},
	} {
		if got, err := parse(tc.kind, tc.text); err != nil || got != tc.want {
			t.Errorf("%s %q: %v, %v; want %v", tc.kind, tc.text, got, err, tc.want)
		}
	}
	f := &Facts{}
	for name, text := range map[string]string{"samples": "many", "budget": "-5GB", "read-bw": "fast", "consumer": "-1/s", "mix": "NaN", "buget": "5GB", "epochs": "Inf", "sample-size": "0"} {
		var wrong *usage.Error
		if err := f.Set(name, text, "given"); !errors.As(err, &wrong) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: %v", name, text, err)
		}
	}
	if _, err := ParseChange("budget"); err == nil {
		t.Error("a change without values")
	}
	if _, err := ParseChange("buget=1GB"); err == nil || !strings.Contains(err.Error(), "did you mean budget") {
		t.Errorf("a slip in a change: %v", err)
	}
}

func TestEndurance(t *testing.T) {
	f := volume(t)
	if err := f.Endurance("3DWPD"); err != nil || f.perDay != 3 {
		t.Errorf("3DWPD: %v, %v", f.perDay, err)
	}
	if m, err := f.Model(); err != nil || m.Facts().WearPerDay != 450e9 {
		t.Errorf("the model's wear: %v, %v", m.Facts().WearPerDay, err)
	}
	if err := f.Endurance("1400TBW"); err != nil || math.Abs(f.perDay*150e9-1400e12/1825) > 1 {
		t.Errorf("1400TBW: %v, %v", f.perDay, err)
	}
	for _, text := range []string{"", "3", "DWPD", "-1DWPD", "NaNTBW", "1e300TBW"} {
		if f.Endurance(text) == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

// TestFactsFile reads what lcache doctor saves: two devices give the sum, one that two directories share counts once.
func TestFactsFile(t *testing.T) {
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	dev := doctor.Device{When: now.Add(-3 * time.Minute), Read: 3e9, Write: 1e9, IOPS: 500e3, Mix: 0.5, OpBytes: 65536}
	other := dev
	other.Read = 2e9
	report := doctor.Report{Facts: &doctor.Facts{When: dev.When, Memory: doctor.Memory{Total: 64e9, Limit: 32e9},
		Places:  []doctor.Place{{Dir: "/a", Device: &dev, Free: 500e9, Reserve: 20e9}, {Dir: "/b", Device: &dev, Free: 500e9, Reserve: 20e9}, {Dir: "/c", Device: &other, Free: 300e9, Reserve: 1e9}, {Dir: "/d"}},
		Reading: &doctor.Reading{Files: 1000, Bytes: 100e6, Readers: []doctor.Reader{{Readers: 1, Bytes: 1e6, Seconds: 1}, {Readers: 32, Bytes: 50e6, Seconds: 2}}}}}
	path := filepath.Join(t.TempDir(), "machine.json")
	if err := report.Save(path); err != nil {
		t.Fatal(err)
	}
	f := &Facts{}
	set(t, f, "samples", "7")
	if err := f.Gather(t.Context(), Gathering{File: path, Now: now}); err != nil {
		t.Fatal(err)
	}
	if f.Device.ReadBPS != 5e9 || f.Device.WriteBPS != 2e9 || f.Device.ReadIOPS != 1e6 || f.Device.Mix != 0.5 || f.Device.OpBytes != 65536 || f.Devices != 2 || f.CacheBytes != 480e9+299e9 || f.MemoryBytes != 8e9 {
		t.Errorf("%+v", f.Facts)
	}
	if f.Samples != 7 || f.DatasetBytes != 100e6 || f.Source.BPS != 25e6 {
		t.Errorf("samples %v, bytes %v, source %v", f.Samples, f.DatasetBytes, f.Source.BPS)
	}
	if f.From["read-bw"] != "measured 3 min ago" || f.From["samples"] != "given" || f.From["ranks"] != "assumed" {
		t.Errorf("provenance %v", f.From)
	}
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (&Facts{}).Gather(t.Context(), Gathering{File: path}); err == nil || !strings.Contains(err.Error(), "lcache doctor") {
		t.Errorf("a file without facts: %v", err)
	}
	if err := (&Facts{}).Gather(t.Context(), Gathering{File: path + ".none"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// TestServer takes the consumer's rate from a job that has run for a while, and from no other.
func TestServer(t *testing.T) {
	status := status.Document{UptimeSeconds: 100, MemoryLimitBytes: 1e9, Cache: status.Cache{BudgetBytes: 5e9},
		Jobs: []status.Job{{Samples: 1000, DatasetBytes: 4e9, Epochs: 7, Batches: 5, BytesDelivered: 16e9, StallSeconds: 20, Ranks: make([]status.Rank, 2)}}}
	f := &Facts{}
	f.fromStatus(status)
	if f.ConsumerBPS != 200e6 || f.Samples != 1000 || f.Batch != 100 || f.Ranks != 2 || f.CacheBytes != 5e9 || f.Epochs != 7 {
		t.Errorf("%+v", f.Facts)
	}
	status.UptimeSeconds = 25
	young := &Facts{}
	young.fromStatus(status)
	if young.From["consumer"] != "" {
		t.Errorf("5 s give a consumer of %v", young.ConsumerBPS)
	}
}

// TestGatherMeasuresSource lists and reads files.
func TestGatherMeasuresSource(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a/1.jpg", "a/2.jpg", "b/3.jpg"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, 5000), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := &Facts{}
	if err := f.Gather(t.Context(), Gathering{Source: dir, Time: time.Second, Now: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if f.Samples != 3 || f.DatasetBytes != 15000 || !(f.Source.BPS > 0) || f.From["source-bw"] != "measured now" {
		t.Errorf("%+v %v", f.Facts, f.From)
	}
	off := &Facts{}
	if err := off.Gather(t.Context(), Gathering{File: "off", Source: dir}); err != nil || off.From["samples"] != "" {
		t.Errorf("with facts off: %v, %v", off.From, err)
	}
}
