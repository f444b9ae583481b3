package engine

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/sample"
)

// littleBed is a small cache of many small samples with a packed manifest.
type littleBed struct {
	*dataset
	in   ingest.Options
	opts Options
}

func littleBedOf(t *testing.T, layout string) *littleBed {
	t.Helper()
	b := &littleBed{dataset: makeDataset(t, 5000, func(r *rand.Rand, _ int) int { return 2000 + r.IntN(2000) })} // 15 MB
	b.in = ingest.Options{Job: samplerJob(4, 32, 1, false), Layout: layout, Budget: 9e6, Dirs: []string{filepath.Join(t.TempDir(), "cache")}, Memory: 64 << 20}
	return b
}

// run ingests the source, compares the report with the budget, and checks that the cache never takes more of the disk.
func (b *littleBed) run(t *testing.T) *ingest.Report {
	t.Helper()
	done, most := make(chan struct{}), make(chan int64)
	go func() {
		high := int64(0)
		for tick := time.NewTicker(200 * time.Microsecond); ; {
			high = max(high, used(t, b.in.Dirs))
			select {
			case <-done:
				tick.Stop()
				most <- high
				return
			case <-tick.C:
			}
		}
	}()
	if err := os.MkdirAll(b.in.Dirs[0], 0o700); err != nil {
		t.Fatal(err)
	}
	o, rep := ingested(t, b.dataset, b.in)
	close(done)
	if high := <-most; high > b.in.Budget || !rep.Changed && rep.ArenaBytes+rep.MetadataBytes > b.in.Budget { // the growth of the source may use the space that is reserved for it
		t.Errorf("%d bytes on disk, %d for the arena and %d for metadata: the budget is %d", high, rep.ArenaBytes, rep.MetadataBytes, b.in.Budget)
	}
	b.opts = o
	return rep
}

// isPacked opens the manifest, and reports whether it is packed.
func (b *littleBed) isPacked(t *testing.T) bool {
	t.Helper()
	m, err := sample.OpenManifest(b.manifest())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	record, err := cache.ReadRecord(b.in.Dirs[0])
	if packed := m.FileBytes() < m.PlainBytes(); err != nil || packed != record.PackedManifest {
		t.Errorf("the manifest has %d bytes of %d, job.json says packed %v; %v", m.FileBytes(), m.PlainBytes(), record.PackedManifest, err)
	}
	return m.FileBytes() < m.PlainBytes()
}

func (b *littleBed) manifest() string { return filepath.Join(b.in.Dirs[0], cache.ManifestName) }

// change changes, adds and removes samples, and returns how many bytes are new.
func (b *littleBed) change(t *testing.T, seed int) (fresh int64) {
	t.Helper()
	for i := range 40 {
		fresh += b.write(t, fmt.Sprintf("class-1/%06d.bin", 1700+i*7), pseudo(seed+i, 3000+i))
		fresh += b.write(t, fmt.Sprintf("class-0/new-%d-%d.bin", seed, i), pseudo(seed+i, 2500))
	}
	b.remove(t, fmt.Sprintf("class-2/%06d.bin", 4000+seed))
	b.reload(t)
	return fresh
}

// TestPackedManifest: a cache with a packed manifest is made, read, restarted and adapted to a changing source within its budget. Every byte is the source's, and only new samples are read.
func TestPackedManifest(t *testing.T) {
	testenv.Long(t)
	inLayouts(t, func(t *testing.T, layout string) {
		b := littleBedOf(t, layout)
		rep := b.run(t)
		if !b.isPacked(t) || rep.HitRatio < 0.3 || rep.HitRatio > 0.6 {
			t.Fatalf("the cache keeps %.2f: the test shows nothing", rep.HitRatio)
		}
		for round := range testenv.Pick(3, 2) {
			e := open(t, b.opts)
			b.readEpochs(t, e, b.in.Job, 0, 1+round%2)
			if s := e.Status().Jobs[0]; s.CorruptSamples != 0 {
				t.Errorf("round %d: %d samples count as corrupt", round, s.CorruptSamples)
			}
			closeEngine(t, e)
			fresh := b.change(t, round)
			b.in.Relist = true
			rep := b.run(t)
			if rep.Anew || !rep.Changed || rep.ReadBytes > fresh || rep.ChangedSamples != 40 || rep.AddedSamples != 40 || rep.RemovedSamples != 1 {
				t.Errorf("round %d: made again %v, %d bytes read, want at most the %d new ones; %d changed, %d added, %d removed, want 40, 40 and 1", round, rep.Anew, rep.ReadBytes, fresh, rep.ChangedSamples, rep.AddedSamples, rep.RemovedSamples)
			}
			if !b.isPacked(t) {
				t.Errorf("round %d: the manifest is not packed, want it to stay packed", round)
			}
			if left, _ := filepath.Glob(b.manifest() + "?*"); left != nil {
				t.Errorf("round %d: left in the cache: %v", round, left)
			}
		}
		rv, err := cache.Verify(t.Context(), cache.VerifyOptions{Dirs: b.in.Dirs, Against: b.dir, IO: testIO()})
		if err != nil || rv.Good != rv.InLog || rv.InLog == 0 {
			t.Errorf("verify: %+v, %v", rv, err)
		}
	})
}

// TestPackedManifestOfAGrowingSource: the budget holds if the source grows by more than there is room for in addition to the log, and if it shrinks so that the log may grow. The cache may then be made again.
func TestPackedManifestOfAGrowingSource(t *testing.T) {
	testenv.Long(t)
	b := littleBedOf(t, "")
	b.run(t)
	b.in.Relist = true
	for round, more := range []int{200, 4000, -3000, 20_000}[:testenv.Pick(4, 2)] {
		for i := range more {
			b.write(t, fmt.Sprintf("class-%d/grown-%d-%05d.bin", i%3, round, i), pseudo(i, 2500))
		}
		for i := range -more {
			os.Remove(filepath.Join(b.dir, fmt.Sprintf("class-%d/grown-1-%05d.bin", i%3, i)))
			os.Remove(filepath.Join(b.dir, fmt.Sprintf("class-0/%06d.bin", i)))
		}
		b.reload(t)
		rep := b.run(t)
		e := open(t, b.opts)
		b.readEpochs(t, e, b.in.Job, 0, 1)
		if s := e.Status().Jobs[0]; s.CorruptSamples != 0 || rep.Samples != len(b.bytes) {
			t.Errorf("%+d: %d samples, want %d; %d count as corrupt", more, rep.Samples, len(b.bytes), s.CorruptSamples)
		}
		closeEngine(t, e)
		t.Logf("%+d: made again %v, keeps %.2f, packed %v", more, rep.Anew, rep.HitRatio, b.isPacked(t))
	}
}

// TestFormOfTheManifest: the form depends on the budget. A complete cache has the same manifest, byte for byte, as before the packed form existed.
func TestFormOfTheManifest(t *testing.T) {
	b := littleBedOf(t, "")
	b.in.NoPrefill = true
	b.run(t)
	if !b.isPacked(t) {
		t.Error("the manifest of a little cache is not packed")
	}
	plain := filepath.Join(t.TempDir(), "manifest")
	m, err := sample.OpenManifest(b.manifest())
	if err != nil {
		t.Fatal(err)
	}
	entries, err := m.Entries()
	if err == nil {
		_, err = sample.WriteManifest(plain, m.Classes(), entries)
	}
	if err := errors.Join(err, m.Close()); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(plain)
	if err != nil {
		t.Fatal(err)
	}
	for _, budget := range []int64{40e6, 9e6, 30e6, 0} {
		b.in.Budget = budget
		if budget == 0 { // that of the cache that is there
			b.in.Budget, b.in.Dirs = 0, []string{filepath.Join(t.TempDir(), "other")}
		}
		_, rep := ingested(t, b.dataset, b.in)
		got, err := os.ReadFile(b.manifest())
		if packed := budget == 9e6; b.isPacked(t) != packed || bytes.Equal(got, want) == packed || err != nil {
			t.Errorf("budget %d, keeps %.2f: %d bytes, %d plain, %v", budget, rep.HitRatio, len(got), len(want), err)
		}
	}
}

// TestPackedManifestDamaged: a server rejects a damaged one. Ingest writes it again, packed, and keeps the cache.
func TestPackedManifestDamaged(t *testing.T) {
	b := littleBedOf(t, "")
	b.run(t)
	good, err := os.ReadFile(b.manifest())
	if err != nil {
		t.Fatal(err)
	}
	for i, bad := range [][]byte{nil, good[:100], good[:len(good)-1], append(bytes.Clone(good), 7), append(bytes.Clone(good[:len(good)/2]), make([]byte, len(good)-len(good)/2)...)} {
		if err := os.WriteFile(b.manifest(), bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if e, err := Open(t.Context(), b.opts); !errors.Is(err, sample.ErrCorrupt) {
			t.Errorf("damage %d: opened with %v", i, err)
			if err == nil {
				closeEngine(t, e)
			}
		}
		if rep := b.run(t); rep.ReadBytes != 0 || rep.Anew {
			t.Errorf("damage %d: %d bytes are read again", i, rep.ReadBytes)
		}
		if again, err := os.ReadFile(b.manifest()); err != nil || !bytes.Equal(again, good) {
			t.Errorf("damage %d: the manifest has %d bytes then, %d before; %v", i, len(again), len(good), err)
		}
	}
}

// TestPlainManifestOfALittleCache: a cache that was made before the packed form existed stays as it is, even if its source changes.
func TestPlainManifestOfALittleCache(t *testing.T) {
	b := littleBedOf(t, "")
	b.in.Budget -= 500e3 // which leaves room for a plain one
	b.run(t)
	b.in.Budget += 500e3
	m, err := sample.OpenManifest(b.manifest())
	if err != nil {
		t.Fatal(err)
	}
	record, err := cache.ReadRecord(b.in.Dirs[0])
	if err == nil {
		record.PackedManifest, record.Budget = false, b.in.Budget
		err = errors.Join(m.Rewrite(b.manifest(), nil), cache.WriteRecord(b.in.Dirs[0], record))
	}
	if err := errors.Join(err, m.Close()); err != nil {
		t.Fatal(err)
	}
	e := open(t, b.opts)
	b.readEpochs(t, e, b.in.Job, 0, 1)
	closeEngine(t, e)
	b.change(t, 1)
	b.in.Relist = true
	o, rep := ingested(t, b.dataset, b.in)
	if b.isPacked(t) || rep.Anew || !rep.Changed {
		t.Errorf("packed %v, made again %v, changed %v", b.isPacked(t), rep.Anew, rep.Changed)
	}
	e = open(t, o)
	b.readEpochs(t, e, b.in.Job, 0, 2)
	closeEngine(t, e)
}
