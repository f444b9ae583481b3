package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEditedWithoutNewTime: verify --against finds a file that was edited with the same size and time. An ingest does not, and --repair
// drops nothing. A new time and --relist make ingest take the new bytes, as the message and docs/operating.md say.
func TestEditedWithoutNewTime(t *testing.T) {
	dir := diskDir(t)
	source, cache := filepath.Join(dir, "data"), filepath.Join(dir, "cache")
	file := filepath.Join(source, "a", "1")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, file, "the old bytes")
	writeFile(t, filepath.Join(source, "a", "2"), "another sample")
	lcache := func(want int, args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		if code := run(args, &out, &errs); code != want {
			t.Fatalf("%v: exit code %d, want %d: %s%s", args, code, want, &out, &errs)
		}
		return errs.String()
	}
	ingest := []string{"ingest", "--source", source, "--cache", cache}
	verify := []string{"verify", "--cache", cache, "--against", source}
	lcache(exitDone, ingest...)
	before, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	edited, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := edited.WriteString("the new bytes"); err != nil {
		t.Fatal(err)
	}
	if err := edited.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(file, before.ModTime(), before.ModTime()); err != nil {
		t.Fatal(err)
	}
	if said := lcache(exitCorrupt, verify...); !strings.Contains(said, "ingest --relist") {
		t.Errorf("the message names no cure: %s", said)
	}
	lcache(exitCorrupt, append(verify, "--repair")...)
	lcache(exitDone, append(ingest, "--relist")...)
	lcache(exitCorrupt, verify...)
	later := before.ModTime().Add(1e9)
	if err := os.Chtimes(file, later, later); err != nil {
		t.Fatal(err)
	}
	lcache(exitDone, append(ingest, "--relist")...)
	lcache(exitDone, verify...)
}
