package engine

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/sample"
)

// sparse makes files of some sizes without any bytes on disk, for tests that only list them.
func sparse(t *testing.T, n int, size func(r *rand.Rand, i int) int64) (d *dataset) {
	t.Helper()
	d = &dataset{dir: testenv.SourceDir(t)}
	r := rand.New(rand.NewPCG(4, uint64(n)))
	for i := range n {
		dir := filepath.Join(d.dir, fmt.Sprintf("class-%d", i%10))
		if i < 10 {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%06d.bin", i)))
		if err != nil {
			t.Fatal(err)
		}
		bytes := size(r, i)
		if err := f.Truncate(bytes); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		d.total += bytes
	}
	return d
}

// TestLittleCacheKeeps: how much slack and metadata leave of a small budget. No policy keeps more than c = budget ÷ dataset.
func TestLittleCacheKeeps(t *testing.T) {
	testenv.Long(t)
	testenv.WithoutRace(t)
	skewed := func(mean int64) func(*rand.Rand, int) int64 { // as files of source code: a few have megabytes
		return func(r *rand.Rand, i int) int64 {
			if i%500 == 7 {
				return 2_500_000
			}
			return mean/2 + r.Int64N(mean)
		}
	}
	even := func(mean int64) func(*rand.Rand, int) int64 {
		return func(r *rand.Rand, _ int) int64 { return mean/2 + r.Int64N(mean) }
	}
	for _, c := range []struct {
		name   string
		n      int
		size   func(r *rand.Rand, i int) int64
		budget int64
		least  float64
	}{
		{"64 MB, even", 6400, even(20_000), 64e6, 0.90},
		{"64 MB, 4 KB", 32_000, even(4096), 64e6, 0.89},
		{"64 MB, skewed", 8000, skewed(11_000), 64e6, 0.90},
		{"256 MB, 4 KB", 125_000, even(4096), 256e6, 0.905},
		{"256 MB, even", 10_000, even(50_000), 256e6, 0.95},
		{"256 MB, skewed", 12_000, skewed(38_000), 256e6, 0.95},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := sparse(t, c.n, c.size)
			_, rep := ingested(t, d, ingest.Options{Job: samplerJob(3, 64, 1, false), Budget: c.budget, NoPrefill: true})
			most := float64(c.budget) / float64(d.total)
			if rep.HitRatio < c.least*most {
				t.Errorf("keeps %.3f of the bytes, %.3f of c = %.3f; want %.2f: slack %d, metadata %d, arena %d of %d", rep.HitRatio, rep.HitRatio/most, most, c.least,
					rep.SlackBytes, rep.MetadataBytes, rep.ArenaBytes, rep.BudgetBytes)
			}
			t.Logf("keeps %.3f of c = %.3f", rep.HitRatio/most, most)
			if rep.ArenaBytes+rep.MetadataBytes > c.budget {
				t.Errorf("%d bytes for the arena and %d for metadata: more than the budget", rep.ArenaBytes, rep.MetadataBytes)
			}
		})
	}
}

// TestLittleCacheOfLargeSamples reads a dataset whose largest samples do not fit the budget. All bytes are right, kept samples are hits in each later
// epoch, and the rule survives a restart and a second ingest. (A sample that is still in the miss ring is also a hit.)
func TestLittleCacheOfLargeSamples(t *testing.T) {
	inLayouts(t, func(t *testing.T, layout string) {
		d := makeDataset(t, 1200, func(r *rand.Rand, i int) int {
			if i%100 == 7 {
				return 900_000
			}
			return 5000 + r.IntN(10_000)
		})
		j := samplerJob(4, 32, 1, false)
		o, rep := ingested(t, d, ingest.Options{Job: j, Layout: layout, Budget: 15e6})
		kept := 0
		read := func(from, to int) {
			t.Helper()
			e := open(t, o)
			defer closeEngine(t, e)
			if e.cache.Record.Most == 0 {
				t.Fatal("the budget leaves out no large samples: the test shows nothing")
			}
			kept = e.cache.Record.Kept
			for i, b := range d.bytes {
				if len(b) == 900_000 && e.cache.Keeps(sample.Index(i)) {
					t.Fatalf("sample %d of %d bytes is admitted", i, len(b))
				}
			}
			d.readEpochs(t, e, j, from, to)
			for _, done := range e.Status().Jobs[0].EpochsDone {
				// Misses that the ring still has are hits.
				if most := kept + len(d.bytes)/10; done.Epoch > 0 && (int(done.Hits) < kept || int(done.Hits) > most) {
					t.Errorf("epoch %d has %d hits, %d samples are kept", done.Epoch, done.Hits, kept)
				}
			}
		}
		read(0, 2)
		_, again := ingested(t, d, ingest.Options{Job: j, Layout: layout, Dirs: o.Dirs, Budget: 15e6})
		if again.ReadBytes != 0 || again.HitRatio != rep.HitRatio {
			t.Errorf("a second ingest read %d bytes and keeps %.3f, before %.3f", again.ReadBytes, again.HitRatio, rep.HitRatio)
		}
		read(2, 4)
	})
}
