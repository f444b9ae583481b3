package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lcache/caches"
	"lcache/doctor"
)

func doctorExample() *doctorReport {
	return &doctorReport{Version: "1", Facts: &doctor.Facts{When: time.Unix(1e9, 0).UTC(), Reading: &doctor.Reading{Source: "/data/train", Kind: "xfs", Nature: caches.Local, Files: 1_281_167, Bytes: 138e9,
		Readers: []doctor.Reader{{Readers: 1, Files: 5000, Bytes: 540e6, Seconds: 10, Disk: 540e6}, {Readers: 32, Files: 30_000, Bytes: 3_240e6, Seconds: 10, Disk: 1_620e6, Failed: 1}}}},
		Checks: []doctor.Check{{Name: "io_uring", State: doctor.Good, Found: "works"}, {Name: "huge pages", State: doctor.Better, Found: "4 KiB", Do: "echo advise"}},
		Unseen: []string{"burst credits"},
		Advice: &doctor.Advice{Verdict: doctor.Worth, Why: "1.5 times what 32 readers get now", Now: 324e6, Expected: 500e6, Last: 900e6, Share: 0.5, Disk: 141e9, Memory: 1.6e9}}
}

func TestDoctorText(t *testing.T) {
	for _, c := range []struct {
		name string
		bend func(r *doctorReport)
		want string
	}{
		{"all", func(*doctorReport) {}, `
good   io_uring    works
could  huge pages  4 KiB
                   → echo advise
?      not seen    burst credits

/data/train: 1,281,167 files · 138 GB · xfs
                      files/s  rate
  now, 1 reader       500      54 MB/s   from the device
  now, 32 readers     3,000    324 MB/s  50 % from the device, the rest from memory · 1 file could not be read
  lcache, reordering  4,641    500 MB/s  expected from the device
  lcache, last epoch  8,355    900 MB/s  expected from the device
  needs   141 GB on the disk, 1.6 GB of memory; there is room for 50 % of it
worth it: 1.5 times what 32 readers get now
`},
		{"nothing to do", func(r *doctorReport) { r.Checks, r.Unseen, r.Advice = r.Checks[:1], nil, nil }, `
good   io_uring  works
nothing to do
`},
		{"network", func(r *doctorReport) {
			r.Checks, r.Unseen = r.Checks[:1], nil
			r.Facts.Reading.Nature, r.Facts.Reading.Readers = caches.Network, r.Facts.Reading.Readers[:1]
			r.Advice = &doctor.Advice{Verdict: doctor.Unclear, Why: "the device of the cache was not measured", Disk: 141e9, Memory: 1.6e9}
		}, `
good   io_uring  works

/data/train: 1,281,167 files · 138 GB · xfs
                 files/s  rate
  now, 1 reader  500      54 MB/s
  needs   141 GB on the disk, 1.6 GB of memory
unclear: the device of the cache was not measured
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := doctorExample()
			c.bend(r)
			var out strings.Builder
			writeDoctor(&out, r)
			if got := "\n" + out.String(); got != c.want {
				t.Errorf("got%s\nwant%s", got, c.want)
			}
		})
	}
}

func TestDoctorSave(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "machine.json")
	for range 2 { // the second replaces the first
		if err := doctorExample().save(path); err != nil {
			t.Fatal(err)
		}
	}
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Schema int
		doctorReport
	}
	if err := json.Unmarshal(body, &got); err != nil || got.Schema != 1 || got.Facts.Reading.Files != 1_281_167 || got.Advice.Expected != 500e6 {
		t.Errorf("%v: %s", err, body)
	}
	var again bytes.Buffer
	if err := writeJSON(&again, got.doctorReport); err != nil || !bytes.Equal(again.Bytes(), body) {
		t.Errorf("%v: what was saved reads back as\n%s\nwas\n%s", err, again.Bytes(), body)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
	if err := doctorExample().save(filepath.Join(dir, "no/machine.json")); err == nil || !strings.Contains(err.Error(), "save the report") {
		t.Errorf("a folder that is not there: %v", err)
	}
}

func TestDoctorVerdict(t *testing.T) {
	r := doctorExample()
	if err := r.verdict(); err != nil {
		t.Errorf("nothing bad: %v", err)
	}
	r.Checks = append(r.Checks, doctor.Check{Name: "file system", State: doctor.Bad, Found: "nfs: over a network", Do: "give a directory on a local SSD"})
	if err := r.verdict(); err == nil || err.Error() != "file system: nfs: over a network: give a directory on a local SSD" {
		t.Errorf("got %v", err)
	}
}
