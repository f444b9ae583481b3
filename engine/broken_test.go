package engine

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"lcache/internal/store/ingest"
)

// TestNextEpochCannotBeLaidOut: a cache directory in which no file can be created (here: it was removed) fails no read. The existing log
// is read in order.
func TestNextEpochCannotBeLaidOut(t *testing.T) {
	j := samplerJob(3, 16, 1, false)
	d := makeDataset(t, 600, func(r *rand.Rand, _ int) int { return r.IntN(30_000) })
	dir := filepath.Join(t.TempDir(), "cache")
	o, _ := ingested(t, d, ingest.Options{Job: j, Block: 128 << 10, Memory: 24 << 20, Dirs: []string{dir}})
	e := open(t, o)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	d.readEpochs(t, e, j, 0, 3)
	s := noSource(t, e)
	if s.EpochsDone[0].LogReadBytes == 0 {
		t.Error("the log was not read in order")
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the cache directory was made again behind its owner's back")
	}
	closeEngine(t, e)
}
