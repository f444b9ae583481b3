package engine

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
)

// testdata/cache-v1 has a cache that an earlier version made with make.py there. Its server was stopped in the second epoch, when
// both ranks had received v1Read batches: the older Logfile holds the samples that were not moved yet, the newer one the others.
const (
	v1Archive = "../testdata/cache-v1/cache.tar.gz"
	v1Samples = 96
	v1Empty   = 6 // of them without a byte: these are not in the log
	v1Read    = 2
)

var v1Job = samplerJob(3, 4, 2, false)

// v1Size and v1Content compute the same as size and content of make.py.
func v1Size(_ *rand.Rand, i int) int {
	switch i % 16 {
	case 5:
		return 0
	case 9:
		return 1
	case 13:
		return 128<<10 + i
	}
	return 20_000 + i*7919%100_000
}

func v1Content(_ *rand.Rand, i int, b []byte) {
	unit := fmt.Sprintf("sample %03d of a cache, version 1\n", i)
	copy(b, bytes.Repeat([]byte(unit), len(b)/len(unit)+1))
	for k := 0; k < len(b); k += 4096 {
		b[k] = byte(k / 4096)
	}
}

// v1Source makes the source of the cache, with the times of the files that the cache knows.
func v1Source(t *testing.T) *dataset {
	t.Helper()
	d := makeDatasetOf(t, v1Samples, v1Size, v1Content)
	for i := range v1Samples {
		folder := filepath.Join(d.dir, fmt.Sprintf("class-%d", d.label[i]))
		name := filepath.Join(folder, fmt.Sprintf("%03d.bin", i))
		at := time.Unix(1_767_225_600+int64(i), 0)
		if err := errors.Join(os.Rename(filepath.Join(folder, fmt.Sprintf("%06d.bin", i)), name), os.Chtimes(name, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// v1Cache unpacks the cache. Its job.json names the source on the machine that made it. If source is "", it keeps that name.
func v1Cache(t *testing.T, source string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "cache")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(v1Archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, h.Name), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if source != "" {
		record, err := cache.ReadRecord(dir)
		if err == nil {
			record.Source = source
			err = cache.WriteRecord(dir, record)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestCacheV1Record: job.json is written byte for byte as that version wrote it.
func TestCacheV1Record(t *testing.T) {
	dir := v1Cache(t, "")
	path := filepath.Join(dir, cache.RecordName)
	was, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	record, err := cache.ReadRecord(dir)
	if err == nil {
		err = cache.WriteRecord(dir, record)
	}
	if err != nil {
		t.Fatal(err)
	}
	if is, err := os.ReadFile(path); err != nil || !bytes.Equal(is, was) {
		t.Errorf("job.json was\n%s\nis\n%s\n%v", was, is, err)
	}
}

// TestCacheV1Verify: all samples of the cache are found, and equal the source's. No file changes.
func TestCacheV1Verify(t *testing.T) {
	d := v1Source(t)
	dirs := []string{v1Cache(t, d.dir)}
	before := seen(t, dirs)
	rep, err := cache.Verify(t.Context(), cache.VerifyOptions{Dirs: dirs, Against: d.dir, IO: testIO(), Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	if rep.Samples != v1Samples || rep.Good != v1Samples || rep.InLog != v1Samples-v1Empty || rep.Bytes != d.total || rep.Different+rep.Uncompared > 0 {
		t.Errorf("%+v", rep)
	}
	sameFiles(t, before, seen(t, dirs))
}

// TestCacheV1Served: a server continues in the epoch in which the other one was stopped, and in the epoch after it, without reading the source.
func TestCacheV1Served(t *testing.T) {
	d := v1Source(t)
	dir := v1Cache(t, d.dir)
	kept := map[string][]byte{}
	for _, name := range []string{"FORMAT", cache.ManifestName, cache.SumsName, cache.RecordName, cache.ListingName} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		kept[name] = b
	}
	e := open(t, Options{Dirs: []string{dir}, IO: testIO(), Logger: testLogger(t)})
	held := 0
	for _, l := range e.cache.Store.ByAge() {
		if h := l.Header(); h.Epoch != 1 && h.Epoch != 2 || l.Empty() {
			t.Errorf("a Logfile of epoch %d, empty: %v", h.Epoch, l.Empty())
		}
		held++
	}
	if held != 2 {
		t.Errorf("%d Logfiles, want 2", held)
	}
	var wg sync.WaitGroup
	p := newPace(v1Job.World)
	for rank := range v1Job.World {
		c := attach(t, e)
		wg.Go(func() {
			defer c.Disconnected()
			defer p.leave(rank)
			got, err := d.readPaced(e, c, 1, rank, v1Read, func(b int) { p.turn(rank, b) })
			if want := d.want(t, v1Job, 1, rank)[v1Read*v1Job.BatchSize:]; err != nil || !slices.Equal(got, want) {
				t.Errorf("rank %d: %v, order %v, want %v", rank, err, got, want)
			}
		})
	}
	wg.Wait()
	d.readEpochs(t, e, v1Job, 2, 3)
	if s := e.Status().Jobs[0]; s.SourceReads != 0 || s.SourceBytes != 0 || s.Misses != 0 || s.Divergences != 0 || s.CorruptSamples != 0 || s.StaleSamples != 0 {
		t.Errorf("%d reads and %d bytes of the source, %d misses, %d divergences, %d corrupt, %d stale", s.SourceReads, s.SourceBytes, s.Misses, s.Divergences, s.CorruptSamples, s.StaleSamples)
	}
	closeEngine(t, e)
	for name, was := range kept {
		if is, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(is, was) {
			t.Errorf("%s has changed: %v", name, err)
		}
	}
}

// TestCacheV1Ingested: ingest over the cache finds the same source and all of its samples, and sorts them for a job that begins again.
func TestCacheV1Ingested(t *testing.T) {
	d := v1Source(t)
	dirs := []string{v1Cache(t, d.dir)}
	before, err := cache.ReadRecord(dirs[0])
	if err != nil {
		t.Fatal(err)
	}
	o, rep := ingested(t, d, ingest.Options{Dirs: dirs, Job: v1Job, Budget: before.Budget, Memory: before.Memory, Logger: testLogger(t)})
	if rep.ReadBytes != 0 || rep.ReadSamples != 0 || rep.Changed || rep.Anew || rep.StoredSamples != v1Samples-v1Empty {
		t.Errorf("%+v", rep)
	}
	if rep.Fingerprint != before.Counted.Fingerprint {
		t.Errorf("fingerprint %s, was %s", rep.Fingerprint, before.Counted.Fingerprint)
	}
	e := open(t, o)
	defer closeEngine(t, e)
	d.readEpochs(t, e, v1Job, 0, 3)
	if s := e.Status().Jobs[0]; s.SourceReads != 0 || s.Misses != 0 || s.Divergences != 0 || s.CorruptSamples != 0 {
		t.Errorf("%d reads of the source, %d misses, %d divergences, %d corrupt", s.SourceReads, s.Misses, s.Divergences, s.CorruptSamples)
	}
}
