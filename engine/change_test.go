package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lcache/internal/serve/schedule"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/source"
)

// reload updates d from its directory, in the listing's order.
func (d *dataset) reload(t testing.TB) {
	t.Helper()
	s, err := source.Open(d.dir, source.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, entries, err := s.List(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	d.bytes, d.label, d.total = nil, nil, 0
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(d.dir, e.Name))
		if err != nil {
			t.Fatal(err)
		}
		d.bytes, d.label, d.total = append(d.bytes, b), append(d.label, e.Label), d.total+int64(len(b))
	}
}

func (d *dataset) write(t testing.TB, name string, b []byte) int64 {
	t.Helper()
	path := filepath.Join(d.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, b, 0o644)); err != nil {
		t.Fatal(err)
	}
	return int64(len(b))
}

func (d *dataset) remove(t testing.TB, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(d.dir, name)); err != nil {
		t.Fatal(err)
	}
}

func pseudo(seed, n int) []byte {
	r := rand.New(rand.NewPCG(uint64(seed), 3))
	b := make([]byte, n)
	noise(r, b)
	return b
}

// TestChangedSource: only new samples are read, every byte is the current file's, and the old manifest is removed.
func TestChangedSource(t *testing.T) {
	testenv.Long(t)
	type counts struct{ added, removed, changed int }
	tests := []struct {
		name   string
		change func(t *testing.T, d *dataset) (read int64)
		want   counts
	}{
		{"one changed, other size", func(t *testing.T, d *dataset) int64 { return d.write(t, "class-1/000300.bin", pseudo(1, 70_000)) }, counts{changed: 1}},
		{"one changed, same size", func(t *testing.T, d *dataset) int64 {
			return d.write(t, "class-1/000300.bin", pseudo(2, len(d.bytes[300])))
		}, counts{changed: 1}},
		{"removed at the front", func(t *testing.T, d *dataset) int64 {
			d.remove(t, "class-0/000000.bin")
			d.remove(t, "class-0/000033.bin")
			return 0
		}, counts{removed: 2}},
		{"added: more than the arena has room for", func(t *testing.T, d *dataset) (n int64) {
			for i := range 300 {
				n += d.write(t, fmt.Sprintf("class-0/%06d-new.bin", i), pseudo(i, 30_000))
			}
			return n
		}, counts{added: 300}},
		{"a new class before the others", func(t *testing.T, d *dataset) int64 { return d.write(t, "a/1", pseudo(5, 5)) }, counts{added: 1}},
		{"much of all", func(t *testing.T, d *dataset) (n int64) {
			for i := 0; i < 200; i += 3 {
				d.remove(t, fmt.Sprintf("class-0/%06d.bin", i))
				n += d.write(t, fmt.Sprintf("class-0/%06d.bin", i+1), pseudo(i, 1000+i))
				n += d.write(t, fmt.Sprintf("class-2/%06d-new.bin", i), pseudo(i, 9_000))
			}
			return n
		}, counts{67, 67, 67}},
		{"emptied and filled", func(t *testing.T, d *dataset) int64 {
			d.write(t, "class-1/000300.bin", nil)
			return d.write(t, "class-1/000307.bin", pseudo(9, 400)) // it was empty
		}, counts{changed: 2}},
	}
	for i, tt := range testenv.Some(tests, 4) {
		t.Run(tt.name, func(t *testing.T) {
			j := samplerJob(4, 16, 2, i%2 == 0)
			d := makeDataset(t, 601, mixedSizes)
			o, _ := ingested(t, d, ingest.Options{Job: j, Block: 128 << 10, Memory: 64 << 20})
			if i%2 == 1 { // two Logfiles, the newer one partly filled
				e := open(t, o)
				d.readEpochs(t, e, j, 0, 1)
				c := attach(t, e)
				for batch := range 4 {
					b, err := c.Chunk(context.Background(), 1, 0, batch)
					if err != nil {
						t.Fatal(err)
					}
					c.Release(b.Lease)
				}
				c.Disconnected()
				closeEngine(t, e)
			}
			want := tt.change(t, d)
			d.reload(t)
			o, rep := ingested(t, d, ingest.Options{Job: j, Dirs: o.Dirs, Relist: true, Memory: 64 << 20, Logger: testLogger(t)})
			if got := (counts{rep.AddedSamples, rep.RemovedSamples, rep.ChangedSamples}); got != tt.want || !rep.Changed || rep.Anew {
				t.Errorf("got %+v, changed %v, made again %v; want %+v, a changed cache that is not made again", got, rep.Changed, rep.Anew, tt.want)
			}
			if rep.ReadBytes != want {
				t.Errorf("%d bytes read from the source, want the %d new ones", rep.ReadBytes, want)
			}
			d.afterChange(t, o, j)
		})
	}
}

// afterChange reads a cache that should hold all of d.
func (d *dataset) afterChange(t testing.TB, o Options, j schedule.Job) {
	t.Helper()
	if left, _ := filepath.Glob(filepath.Join(o.Dirs[0], "manifest-*")); left != nil {
		t.Errorf("left in the cache: %v", left)
	}
	rep, err := cache.Verify(context.Background(), cache.VerifyOptions{Dirs: o.Dirs, Against: d.dir, IO: testIO()})
	if err != nil || rep.Good != rep.Samples || rep.Missing != 0 {
		t.Errorf("verify: %+v, %v", rep, err)
	}
	e := open(t, o)
	defer closeEngine(t, e)
	d.readEpochs(t, e, j, 0, j.Epochs)
	noSource(t, e)
}

// TestLabelsAlone: other labels move no sample.
func TestLabelsAlone(t *testing.T) {
	j := samplerJob(2, 16, 1, false)
	d := makeDataset(t, 300, mixedSizes)
	o, first := ingested(t, d, ingest.Options{Job: j, Block: 128 << 10, Memory: 64 << 20})
	var csv strings.Builder
	for i := range d.bytes {
		d.label[i] = int32(i * 7 % 11)
		fmt.Fprintf(&csv, "class-%d/%06d.bin,%d\n", i*3/len(d.bytes), i, d.label[i])
	}
	path := filepath.Join(t.TempDir(), "labels.csv")
	if err := os.WriteFile(path, []byte(csv.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	o, rep := ingested(t, d, ingest.Options{Job: j, Dirs: o.Dirs, Relist: true, Memory: 64 << 20, Labels: path})
	if rep.ReadBytes != 0 || rep.Resorted || rep.Anew || rep.Fingerprint == first.Fingerprint || rep.Classes != 0 {
		t.Errorf("read %d bytes, resorted %v, made again %v, fingerprint %s then %s; want another fingerprint, and nothing read", rep.ReadBytes, rep.Resorted, rep.Anew, first.Fingerprint, rep.Fingerprint)
	}
	d.afterChange(t, o, j)
}

// TestChangedWithBudget: the budget holds while the source changes, and kept samples stay kept.
func TestChangedWithBudget(t *testing.T) {
	j := samplerJob(2, 16, 1, false)
	d := makeDataset(t, 601, mixedSizes)
	budget := d.total/2 + 6<<20
	o, first := ingested(t, d, ingest.Options{Job: j, Block: 128 << 10, Memory: 64 << 20, Budget: budget})
	d.write(t, "class-0/000001.bin", pseudo(1, 100))
	for i := range 9 {
		d.write(t, fmt.Sprintf("class-2/new-%d", i), pseudo(i, 20_000))
	}
	d.reload(t)
	o, rep := ingested(t, d, ingest.Options{Job: j, Dirs: o.Dirs, Relist: true, Memory: 64 << 20, Budget: budget, Logger: testLogger(t)})
	if rep.Anew || rep.ReadBytes > 9*20_000+100 {
		t.Errorf("made again %v, %d bytes read; want only the changed and new samples", rep.Anew, rep.ReadBytes)
	}
	if rep.StoredBytes < first.StoredBytes*9/10 || first.StoredBytes < d.total/3 {
		t.Errorf("%d bytes stored, before %d", rep.StoredBytes, first.StoredBytes)
	}
	if du := used(t, o.Dirs); du > budget {
		t.Errorf("%d bytes on disk, the budget is %d", du, budget)
	}
	e := open(t, o)
	defer closeEngine(t, e)
	d.readEpochs(t, e, j, 0, 2)
	if s := e.Status().Jobs[0]; s.CorruptSamples != 0 {
		t.Errorf("%d samples count as corrupt", s.CorruptSamples)
	}
}

// TestManyChanges keeps changing the source under one cache, at random, and reads it now and then.
func TestManyChanges(t *testing.T) {
	testenv.Long(t)
	r := rand.New(rand.NewPCG(4, 4))
	j := samplerJob(3, 8, 1, false)
	d := makeDataset(t, 200, mixedSizes)
	o, _ := ingested(t, d, ingest.Options{Job: j, Block: 128 << 10, Memory: 64 << 20})
	for round := range 8 {
		var names []string
		for c := range 3 {
			paths, _ := filepath.Glob(filepath.Join(d.dir, fmt.Sprintf("class-%d", c), "*"))
			names = append(names, paths...)
		}
		slices.Sort(names)
		most := int64(0)
		for range 1 + r.IntN(20) {
			rel, _ := filepath.Rel(d.dir, names[r.IntN(len(names))])
			switch r.IntN(3) {
			case 0:
				os.Remove(filepath.Join(d.dir, rel))
			case 1:
				most += d.write(t, rel, pseudo(r.IntN(1000), r.IntN(200_000)))
			case 2:
				most += d.write(t, fmt.Sprintf("%s-%d", rel, round), pseudo(r.IntN(1000), r.IntN(20_000)))
			}
		}
		d.reload(t)
		var rep *ingest.Report
		o, rep = ingested(t, d, ingest.Options{Job: j, Dirs: o.Dirs, Relist: true, Memory: 64 << 20, Logger: testLogger(t)})
		if rep.Anew || rep.ReadBytes > most {
			t.Fatalf("round %d: made again %v, read %d bytes, want at most the %d new ones", round, rep.Anew, rep.ReadBytes, most)
		}
		e := open(t, o)
		d.readEpochs(t, e, j, 0, 1+round%2)
		if round%2 == 0 {
			noSource(t, e)
		}
		closeEngine(t, e)
	}
	d.afterChange(t, o, j)
}
