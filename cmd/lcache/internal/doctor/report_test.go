package doctor

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lcache/internal/store/cachedir"
)

func example() *Report {
	return &Report{Schema: 1, Version: "1", Facts: &Facts{When: time.Unix(1e9, 0).UTC(), Reading: &Reading{Source: "/data/train", Kind: "xfs", Nature: cachedir.Local, Files: 1_281_167, Bytes: 138e9,
		Readers: []Reader{{Readers: 1, Files: 5000, Bytes: 540e6, Seconds: 10, Disk: 540e6}, {Readers: 32, Files: 30_000, Bytes: 3_240e6, Seconds: 10, Disk: 1_620e6, Failed: 1}}}},
		Checks: []Check{{Name: "io_uring", State: Good, Found: "works"}, {Name: "huge pages", State: Better, Found: "4 KiB", Do: "echo advise"}},
		Unseen: []string{"burst credits"},
		Advice: &Advice{Verdict: Worth, Why: "1.5 times what 32 readers get now", Now: 324e6, Expected: 500e6, Last: 900e6, Share: 0.5, Disk: 141e9, Memory: 1.6e9}}
}

func TestSave(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "machine.json")
	for range 2 { // the second replaces the first
		if err := example().Save(path); err != nil {
			t.Fatal(err)
		}
	}
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got Report
	if err := json.Unmarshal(body, &got); err != nil || got.Schema != 1 || got.Facts.Reading.Files != 1_281_167 || got.Advice.Expected != 500e6 {
		t.Errorf("%v: %s", err, body)
	}
	again := filepath.Join(t.TempDir(), "again.json")
	if err := got.Save(again); err != nil {
		t.Fatal(err)
	}
	if second, err := os.ReadFile(again); err != nil || !bytes.Equal(second, body) {
		t.Errorf("%v: the saved report, read and saved again: got\n%s\nwant\n%s", err, second, body)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
	if err := example().Save(filepath.Join(dir, "no/machine.json")); err == nil || !strings.Contains(err.Error(), "save the report") {
		t.Errorf("a folder that is not there: %v", err)
	}
}

func TestReportErr(t *testing.T) {
	r := example()
	if err := r.Err(); err != nil {
		t.Errorf("nothing bad: %v", err)
	}
	r.Checks = append(r.Checks, Check{Name: "file system", State: Bad, Found: "nfs: over a network", Do: "give a directory on a local SSD"})
	if err := r.Err(); err == nil || err.Error() != "file system: nfs: over a network: give a directory on a local SSD" {
		t.Errorf("got %v", err)
	}
}

// TestDiskLimit reads limits from a file that the doctor wrote.
func TestDiskLimit(t *testing.T) {
	dir := t.TempDir()
	measured := Place{Dir: "/a", Device: &Device{Read: 500e6, BothRead: 300e6}}
	other := Place{Dir: "/b", Device: &Device{Read: 501e6, BothRead: 300e6}}
	report := &Report{Facts: &Facts{Places: []Place{measured, other, measured, {Dir: "/c", NoDevice: "the same as /a"}}}}
	if err := report.Save(filepath.Join(dir, "two.json")); err != nil {
		t.Fatal(err)
	}
	report.Facts.Places = report.Facts.Places[3:]
	if err := report.Save(filepath.Join(dir, "none.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "text"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	if rate, err := DiskLimit(filepath.Join(dir, "two.json")); err != nil || rate != 600e6 {
		t.Errorf("got %v, %v", rate, err)
	}
	for name, want := range map[string]string{"none.json": "says nothing of a disk", "text": "make them again with lcache doctor --cache DIR --save FILE", "missing": "read the facts: open "} {
		if _, err := DiskLimit(filepath.Join(dir, name)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
