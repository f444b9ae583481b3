package ingest_test

import (
	"os"
	"path/filepath"
	"testing"

	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
)

// TestSameShards: unchanged shards are not listed again, unless the options differ. The file of their indexes shows
// whether they were listed.
func TestSameShards(t *testing.T) {
	folder, dir := t.TempDir(), filepath.Join(t.TempDir(), "cache")
	for i, name := range []string{"a.tar", "b.tar"} {
		if err := os.WriteFile(filepath.Join(folder, name), tarOf(t, byte(i), 20, 3000), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := ingest.Options{Source: "tar:" + folder + "/{a,b}.tar", Dirs: []string{dir}}
	run := func(what string, o ingest.Options, wantListed bool, samples int) {
		t.Helper()
		index := filepath.Join(dir, cache.ShardsName)
		os.Remove(index)
		r, err := ingest.Run(t.Context(), o)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		_, err = os.Stat(index)
		if listed := err == nil; listed != wantListed || r.Samples != samples || r.StoredSamples != samples {
			t.Errorf("%s: listed %t, %d samples, %d stored", what, listed, r.Samples, r.StoredSamples)
		}
		verified(t, dir, o.Source, samples)
	}
	run("at first", o, true, 40)
	run("again", o, false, 40)
	relist := o
	relist.Relist = true
	run("with --relist", relist, true, 40)
	flat := o
	flat.Flat = true
	run("other labels", flat, true, 40)
	run("as at first", o, true, 40)
	part := o
	part.Part = "cls"
	run("another first part", part, true, 40)
	run("as at first", o, true, 40)
	if err := os.WriteFile(filepath.Join(folder, "b.tar"), tarOf(t, 9, 25, 3000), 0o600); err != nil {
		t.Fatal(err)
	}
	run("one has changed", o, true, 45)
	run("again", o, false, 45)
	other := o
	other.Part = "none"
	_, err := ingest.Run(t.Context(), other)
	other.DryRun = true
	if _, dry := ingest.Run(t.Context(), other); err == nil || dry == nil || dry.Error() != err.Error() {
		t.Errorf("a part that no sample has: %v; a dry run says %v", err, dry)
	}
	if err := os.Rename(filepath.Join(folder, "b.tar"), filepath.Join(folder, "c.tar")); err != nil {
		t.Fatal(err)
	}
	if _, err := ingest.Run(t.Context(), o); err == nil {
		t.Error("a shard is missing, but no error was reported")
	}
}
