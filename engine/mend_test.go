package engine

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

// A job.json with another seed was believed, and the job ran in another order.
func TestFlippedSeedIsNoticed(t *testing.T) {
	b := newDamageBed(t)
	dir := filepath.Join(t.TempDir(), "cache")
	good := b.files[jobName]
	bad := bytes.Replace(good, []byte(`"seed": "7"`), []byte(`"seed": "6"`), 1)
	if bytes.Equal(good, bad) {
		t.Fatalf("no seed in %s", good)
	}
	b.spoiled(t, dir, jobName, bad)
	if !b.survives(t, dir, "another seed") {
		t.Error("a job.json that was changed is served")
	}
	if _, err := readJob(dir); err != nil {
		t.Errorf("after ingest: %v", err)
	}
}

// A job.json of the first versions has no checksum, and is taken as it is.
func TestJobWithoutChecksum(t *testing.T) {
	b := newDamageBed(t)
	dir := filepath.Join(t.TempDir(), "cache")
	body, _, found := bytes.Cut(b.files[jobName], []byte(jobChecksum))
	if !found {
		t.Fatalf("no checksum in %s", b.files[jobName])
	}
	b.spoiled(t, dir, jobName, append(body, "\n}\n"...))
	if b.survives(t, dir, "no checksum") {
		t.Error("refused")
	}
}

// What ingest was told to be run for, it did not mend: it ended with the same error.
func TestIngestMendsWhatAsksForIngest(t *testing.T) {
	b := newDamageBed(t)
	dir := filepath.Join(t.TempDir(), "cache")
	for name, bad := range map[string][]byte{
		jobName:  []byte("{"),
		"FORMAT": bytes.Repeat([]byte{'x'}, 64),
		"arena":  b.files["arena"][:4096],
	} {
		b.spoiled(t, dir, name, bad)
		o := b.opts
		o.Dirs = []string{dir}
		if _, err := Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), "ingest") {
			t.Errorf("%s: the server says %v, want that ingest is to be run", name, err)
		}
		b.survives(t, dir, name)
	}
}

// Damaged sums kept the server from starting, though all that they cost is a second read of the source.
func TestSumsAreMadeAnew(t *testing.T) {
	b := newDamageBed(t)
	dir := filepath.Join(t.TempDir(), "cache")
	for what, bad := range map[string][]byte{"empty": nil, "header zero": make([]byte, len(b.files[sumsName])), "cut": b.files[sumsName][:4500]} {
		b.spoiled(t, dir, sumsName, bad)
		if b.survives(t, dir, "sums "+what) {
			t.Errorf("sums %s: the server refused", what)
		}
	}
}
