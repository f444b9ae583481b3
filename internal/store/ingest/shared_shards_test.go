package ingest_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
)

// TestListingOfShards: a manifest of another machine is taken if this machine has the same shards. If its shards are others, it lists them.
func TestListingOfShards(t *testing.T) {
	shards := func(content byte, samples int) string {
		dir := testenv.SourceDir(t)
		for i, name := range []string{"a.tar", "b.tar"} {
			if err := os.WriteFile(filepath.Join(dir, name), tarOf(t, content+byte(i), samples, 3000), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	list := func(dir string, o *others) *ingest.Report {
		t.Helper()
		r, err := ingest.Run(t.Context(), ingest.Options{Source: "tar:" + dir + "/{a,b}.tar", Dirs: []string{filepath.Join(t.TempDir(), "cache")}, NoPrefill: true, IO: cache.IO{Engine: "pread"}, Lister: o})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	dir := shards(1, 20)
	first := &others{}
	if r := list(dir, first); r.Samples != 40 || len(first.offered) == 0 {
		t.Fatalf("the first machine: %+v, offers %d bytes", r, len(first.offered))
	}
	same := &others{manifest: first.offered}
	if r := list(dir, same); r.Samples != 40 || !bytes.Equal(same.offered, first.offered) {
		t.Errorf("with the same shards: %+v", r)
	}
	other := &others{manifest: first.offered}
	if r := list(shards(7, 12), other); r.Samples != 24 || bytes.Equal(other.offered, first.offered) {
		t.Errorf("with other shards: %+v, the manifest of the first machine is offered: %v", r, bytes.Equal(other.offered, first.offered))
	}
}
