package devices

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lcache/cmd/lcache/internal/attach"
	"lcache/cmd/lcache/internal/doctor"
	"lcache/internal/disk/blockio"
	"lcache/internal/disk/offheap"
	"lcache/internal/plan"
	"lcache/internal/store/cache"
	"lcache/internal/testenv"
)

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(m, testenv.Count{What: "bytes outside the heap", Now: offheap.Mapped}, testenv.Count{What: "registered bytes", Now: blockio.Registered}))
}

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// keep writes the facts of a directory's device as a measurement does.
func keep(t *testing.T, s Store, dir string, change func(*facts)) {
	t.Helper()
	id, err := doctor.Identify(dir)
	if err != nil {
		t.Fatal(err)
	}
	f := facts{1, id, doctor.Device{When: noon, Direct: true, Read: 500e6, Write: 400e6, IOPS: 3000, WriteIOPS: 2000, OpBytes: 256 << 10, Mix: 0.5}}
	if change != nil {
		change(&f)
	}
	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.path(id), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestKept(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*facts)
		from   string
	}{
		{"as it was measured", nil, "measured on 22 Nov 2026"},
		{"a file system that grew a little", func(f *facts) { f.Identity.Bytes += f.Identity.Bytes / 20 }, "measured on 22 Nov 2026"},
		{"another size", func(f *facts) { f.Identity.Bytes *= 3 }, ""},
		{"another disk", func(f *facts) { f.Identity.Block = "other" }, ""},
		{"a later program's", func(f *facts) { f.Schema = 2 }, ""},
		{"of the page cache", func(f *facts) { f.Device.Direct = false }, ""},
		{"without rates", func(f *facts) { f.Device.Read = 0 }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, dir := Store{Dir: t.TempDir()}, t.TempDir()
			keep(t, s, dir, c.change)
			d := s.Disk(t.Context(), false, []string{dir, filepath.Join(dir, "not/there/yet")}) // one device
			if d.From != c.from || (d.Why == "") != (c.from != "") {
				t.Fatalf("%+v, want it from %q", d, c.from)
			}
			want := plan.DiskLine{ReadBPS: 500e6, WriteBPS: 400e6, ReadIOPS: 3000, WriteIOPS: 2000, OpBytes: 256 << 10, Mix: 0.5}
			if c.from != "" && d.Line != want {
				t.Errorf("%+v, want %+v", d.Line, want)
			}
		})
	}
}

// TestMeasured: an unknown device is measured once, and only for a new cache.
func TestMeasured(t *testing.T) {
	s, dir := Store{Dir: filepath.Join(t.TempDir(), "devices"), Registry: t.TempDir()}, t.TempDir()
	if d := s.Disk(t.Context(), false, []string{dir}); d.From != "" || !strings.Contains(d.Why, "when a cache is made") {
		t.Fatalf("%+v", d)
	}
	d := s.Disk(t.Context(), true, []string{dir})
	if d.From == "" {
		t.Skip("the device below the temporary folder can't be measured: " + d.Why)
	}
	if again := s.Disk(t.Context(), false, []string{dir}); again != d || d.Line.ReadBPS <= 0 {
		t.Errorf("measured %+v, kept %+v", d, again)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

// TestNotMeasured: neither where a server is, nor when time is up, nor in memory.
func TestNotMeasured(t *testing.T) {
	s, dir := Store{Dir: t.TempDir(), Registry: filepath.Join(t.TempDir(), "servers")}, t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if d := s.Disk(ctx, true, []string{dir}); d.From != "" || d.Why == "" {
		t.Errorf("when time is up: %+v", d)
	}
	server, err := attach.Register(s.Registry, filepath.Join(dir, "lcache.sock"), []string{filepath.Join(dir, "cache")})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Remove()
	if d := s.Disk(t.Context(), true, []string{dir}); d.From != "" || !strings.Contains(d.Why, "the server of process") {
		t.Errorf("with a server on the device: got %+v, want no measurement", d)
	}
	if kept, _ := os.ReadDir(s.Dir); len(kept) > 0 {
		t.Errorf("kept %v", kept)
	}
}

func TestSum(t *testing.T) {
	shared := doctor.Device{When: noon, Read: 500, Write: 500, CombinedCap: 510, IOPS: 30, WriteIOPS: 30, CombinedOps: 31, Mix: 1, OpBytes: 4096}
	apart := doctor.Device{When: noon.AddDate(0, 0, -1), Read: 100, Write: 200, IOPS: 10, WriteIOPS: 20, Mix: 0.2, OpBytes: 4096}
	for _, c := range []struct {
		name  string
		known []doctor.Device
		want  cache.Disk
	}{
		{"one limit", []doctor.Device{shared}, cache.Disk{Line: plan.DiskLine{ReadBPS: 500, WriteBPS: 500, CombinedBPS: 510, ReadIOPS: 30, WriteIOPS: 30, CombinedIOPS: 31, OpBytes: 4096}, From: "measured on 22 Nov 2026"}},
		{"two disks with one each", []doctor.Device{shared, shared}, cache.Disk{Line: plan.DiskLine{ReadBPS: 1000, WriteBPS: 1000, CombinedBPS: 1020, ReadIOPS: 60, WriteIOPS: 60, CombinedIOPS: 62, OpBytes: 4096}, From: "measured on 22 Nov 2026"}},
		{"one has no such limit", []doctor.Device{shared, apart}, cache.Disk{Line: plan.DiskLine{ReadBPS: 600, WriteBPS: 700, ReadIOPS: 40, WriteIOPS: 50, OpBytes: 4096, Mix: 1}, From: "measured on 21 Nov 2026"}},
	} {
		if got := sum(c.known); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestFromFile(t *testing.T) {
	dev := &doctor.Device{When: noon, Read: 500e6, Write: 400e6, BothRead: 300e6, IOPS: 3000}
	report := doctor.Report{Schema: 1, Facts: &doctor.Facts{Places: []doctor.Place{{Device: dev}, {Device: dev}, {}}}}
	path := filepath.Join(t.TempDir(), "facts.json")
	if err := report.Save(path); err != nil {
		t.Fatal(err)
	}
	d, err := FromFile(path)
	if err != nil || d.Line.ReadBPS != 500e6 || d.From != "measured on 22 Nov 2026, by facts.json" {
		t.Errorf("%+v (%v)", d, err)
	}
	if err := (&doctor.Report{}).Save(path); err != nil {
		t.Fatal(err)
	}
	if _, err := FromFile(path); err == nil || !strings.Contains(err.Error(), "says nothing of a disk") {
		t.Errorf("a file without a disk: %v", err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := FromFile(path); err == nil || !strings.Contains(err.Error(), "lcache doctor") {
		t.Errorf("a broken file: %v", err)
	}
}
