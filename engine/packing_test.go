package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/internal/usage"
	"lcache/sample"
)

// words fills b with bytes that compress to about a half. Like noise, it is excluded from the race detector.
//
//go:norace
func words(r *rand.Rand, b []byte) {
	text := b[:0]
	for len(text) < len(b) {
		text = strconv.AppendInt(append(text, "sample "...), r.Int64N(1000), 10)
		text = append(strconv.AppendInt(append(text, " of segment "...), r.Int64N(50), 10), '\n')
	}
	copy(b, text)
}

// noise fills b with incompressible bytes. No other goroutine has b yet, so the race detector need not check each byte.
//
//go:norace
func noise(r *rand.Rand, b []byte) {
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, r.Uint64())
		b = b[8:]
	}
	for k := range b {
		b[k] = byte(r.Uint32())
	}
}

// noisy is the content of incompressible samples.
func noisy(r *rand.Rand, _ int, b []byte) { noise(r, b) }

// mostlyWords: every fourth sample does not compress.
func mostlyWords(r *rand.Rand, i int, b []byte) {
	if i%4 == 1 {
		noise(r, b)
		return
	}
	words(r, b)
}

// packedSizes has empty samples, of one byte, around a block, and of several blocks, packed and raw.
func packedSizes(r *rand.Rand, i int) int {
	switch i % 40 {
	case 7:
		return 0
	case 13:
		return 1
	case 20:
		return 128<<10 + r.IntN(3) - 1
	case 26, 33:
		return 700<<10 + r.IntN(3)
	}
	return r.IntN(20_000)
}

func TestCompressAuto(t *testing.T) {
	noisy := makeDataset(t, 300, func(r *rand.Rand, _ int) int { return r.IntN(10_000) })
	wordy := makeDatasetOf(t, 300, func(r *rand.Rand, _ int) int { return r.IntN(10_000) }, mostlyWords)
	for _, c := range []struct {
		name, compress string
		d              *dataset
		want           string
		lo, hi         float64
		measured       bool
	}{
		{"noise", "auto", noisy, "none", 0, 0.01, true},
		{"words", "auto", wordy, "lz4", 0.3, 0.7, true},
		{"asked for", "lz4", noisy, "lz4", 0, 0.01, true},
		{"not asked for", "none", wordy, "none", 0, 0, false},
		{"not said", "", wordy, "none", 0, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := ingest.Options{Job: samplerJob(2, 8, 1, false), Block: 128 << 10, Memory: 64 << 20, Compress: c.compress}
			o, rep := ingested(t, c.d, in)
			if rep.Compress != c.want || (rep.Saves != nil) != c.measured {
				t.Errorf("got %s, saves %v; want %s", rep.Compress, rep.Saves, c.want)
			}
			if rep.Saves != nil && (*rep.Saves < c.lo || *rep.Saves > c.hi) {
				t.Errorf("saves %.3f, want %.2f to %.2f", *rep.Saves, c.lo, c.hi)
			}
			_, err := os.Lstat(filepath.Join(o.Dirs[0], cache.LengthsName))
			if there := err == nil; there != (c.want == "lz4") {
				t.Errorf("stored lengths are there: %v", there)
			}
			e := open(t, o)
			c.d.readEpochs(t, e, in.Job, 0, 2)
			if s := e.Status(); s.Cache.Compress != c.want || s.Jobs[0].Misses != 0 {
				t.Errorf("status says %s, %d misses", s.Cache.Compress, s.Jobs[0].Misses)
			}
			closeEngine(t, e)
			// A decision stays, unless a flag asks for the other choice: then the log is made again.
			in.Dirs, in.Compress = o.Dirs, ""
			if _, again := ingested(t, c.d, in); again.Compress != c.want || again.ReadBytes != 0 {
				t.Errorf("again: %s, %d bytes read", again.Compress, again.ReadBytes)
			}
			in.Compress = "none"
			if _, anew := ingested(t, c.d, in); anew.Compress != "none" || (anew.ReadBytes != 0) != (c.want == "lz4") {
				t.Errorf("made again: %s, %d bytes read", anew.Compress, anew.ReadBytes)
			}
		})
	}
	var usage *usage.Error
	if _, err := ingest.Run(context.Background(), ingest.Options{Compress: "zip"}); !errors.As(err, &usage) {
		t.Errorf("--compress zip: %v, want a usage error", err)
	}
}

// copyCache copies the files as a crash at this moment would leave them, except for the order in which pages reach the disk, to a directory that it makes if it is missing. The kernel copies, because arenas are large.
func copyCache(t *testing.T, from, to string) {
	t.Helper()
	entries, err := os.ReadDir(from)
	if err := errors.Join(err, os.MkdirAll(to, 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		err := copyFile(filepath.Join(from, e.Name()), filepath.Join(to, e.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a journal may be dropped at this moment
			t.Fatal(err)
		}
	}
}

// A heldDisk blocks writes while a cache is copied, so that the copies are of one moment.
type heldDisk struct{ mu sync.Mutex }

func (s *heldDisk) inject(io *blockio.IO) {
	blockio.Inject(io, func(_ int64, op *blockio.Op) blockio.Fault {
		if op.Write {
			s.mu.Lock()
			defer s.mu.Unlock()
		}
		return blockio.Fault{}
	})
}

func (s *heldDisk) copyCache(t *testing.T, from, to string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	copyCache(t, from, to)
}

func copyFile(from, to string) error {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = w.ReadFrom(r)
	return errors.Join(err, w.Close())
}

// TestPackedCrash copies the cache in the middle of an ingest, damages the compressed lengths in different ways, and continues
// from there. Whatever is lost, all samples are right, and ingest completes the cache.
func TestPackedCrash(t *testing.T) {
	testenv.Long(t)
	d := makeDatasetOf(t, 300, packedSizes, mostlyWords)
	j := samplerJob(3, 8, 1, false)
	in := ingest.Options{Job: j, Source: d.dir, Block: 128 << 10, Memory: 100 << 20, IO: testIO(), Compress: "lz4"}
	in.Dirs = []string{filepath.Join(t.TempDir(), "cache")}
	crashed := t.TempDir()
	var once sync.Once
	in.Progress = func(p cache.Progress) {
		if p.Stage == "reading" && p.Done > p.Total/2 {
			once.Do(func() { copyCache(t, in.Dirs[0], crashed) })
		}
	}
	if _, err := ingest.Run(context.Background(), in); err != nil {
		t.Fatal(err)
	}
	in.Progress = nil
	full := t.TempDir()
	copyCache(t, in.Dirs[0], full)
	r := rand.New(rand.NewPCG(3, 4))
	for _, c := range testenv.Some([]struct {
		name   string
		from   string
		damage func(b []byte) []byte
		lossy  bool
	}{
		{"as it was", crashed, nil, true},
		{"a page lost", crashed, func(b []byte) []byte { clear(b[4096:5120]); return b }, true},
		{"complete", full, nil, false},
		{"complete, bits flipped", full, func(b []byte) []byte {
			for range 20 {
				b[4096+r.IntN(len(b)-4096)] ^= 1 << r.IntN(8)
			}
			return b
		}, true},
		{"complete, all zero", full, func(b []byte) []byte { clear(b[4096:]); return b }, true},
		{"complete, header damaged", full, func(b []byte) []byte { b[30] ^= 1; return b }, true},
		{"complete, cut short", full, func(b []byte) []byte { return b[:len(b)-5] }, true},
	}, 3) {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			copyCache(t, c.from, dir)
			path := filepath.Join(dir, cache.LengthsName)
			if c.damage != nil {
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, c.damage(b), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			o := Options{Dirs: []string{dir}, IO: testIO(), Memory: in.Memory, knobs: knobs{Patience: 5 * time.Second}, Logger: testLogger(t)}
			e := open(t, o)
			d.readEpochs(t, e, j, 0, 2)
			s := e.Status().Jobs[0]
			closeEngine(t, e)
			if lossy := s.Misses > 0; lossy != c.lossy || s.CorruptSamples > 0 {
				t.Errorf("%d misses, %d corrupt", s.Misses, s.CorruptSamples)
			}
			again := in
			again.Dirs = o.Dirs
			rep, err := ingest.Run(context.Background(), again)
			if err != nil {
				t.Fatal(err)
			}
			if want := len(d.bytes) - d.empty(); rep.StoredSamples != want {
				t.Errorf("%d samples in the log after ingest, want %d", rep.StoredSamples, want)
			}
			e = open(t, o)
			d.readEpochs(t, e, j, 1, 3)
			if s := e.Status().Jobs[0]; s.Misses != 0 {
				t.Errorf("%d misses after ingest", s.Misses)
			}
			closeEngine(t, e)
		})
	}
}

// TestPackedRefused: the samples on which ingest tries compression compress well, and the others do not. Samples that exceed the room are not stored, and come from the source.
func TestPackedRefused(t *testing.T) {
	testenv.Long(t)
	const n = 4000
	tried := map[int]bool{}
	for _, index := range ingest.TrialSamples(make([]uint32, n), 0, n) {
		tried[int(index)] = true
	}
	d := makeDatasetOf(t, n, func(r *rand.Rand, _ int) int { return 1000 + r.IntN(8000) }, func(r *rand.Rand, i int, b []byte) {
		if tried[i] {
			words(r, b)
		} else {
			noise(r, b)
		}
	})
	for _, prefill := range testenv.Some([]bool{false, true}, 1) {
		t.Run(fmt.Sprintf("prefill=%v", prefill), func(t *testing.T) {
			j := samplerJob(3, 32, 1, true)
			o, rep := ingested(t, d, ingest.Options{Job: j, Block: 128 << 10, Memory: 100 << 20, Compress: "auto", NoPrefill: !prefill})
			o.Patience = 5 * time.Second
			o.Logger = nil // it would log once that the disk is full
			e := open(t, o)
			d.readEpochs(t, e, j, 0, 3)
			s := e.Status()
			du := used(t, o.Dirs)
			closeEngine(t, e)
			if rep.Compress != "lz4" || du > rep.BudgetBytes {
				t.Errorf("compress %s, %d bytes on disk, the budget is %d", rep.Compress, du, rep.BudgetBytes)
			}
			most := int64(3 * n * 65 / 100)
			if !prefill { // the first epoch is all misses
				most += n * 35 / 100
			}
			if js := s.Jobs[0]; js.Misses == 0 || js.Misses > most || js.CorruptSamples != 0 {
				t.Errorf("%d misses, want at most %d, %d corrupt", js.Misses, most, js.CorruptSamples)
			}
		})
	}
}

// TestPackedChangedInPlace: a file has other bytes, of another compressed length, with the same size and time. Once its checksum is lost, ingest stores
// the new bytes.
func TestPackedChangedInPlace(t *testing.T) {
	d := makeDatasetOf(t, 200, func(r *rand.Rand, _ int) int { return 2000 + r.IntN(8000) }, mostlyWords)
	j := samplerJob(2, 8, 1, false)
	in := ingest.Options{Job: j, Block: 128 << 10, Memory: 64 << 20, Compress: "lz4"}
	o, rep := ingested(t, d, in)
	r := rand.New(rand.NewPCG(5, 6))
	for _, i := range []int{2, 3, 150} {
		words(r, d.bytes[i])
		clear(d.bytes[i][:500]) // so that there is room
		path := filepath.Join(d.dir, fmt.Sprintf("class-%d", d.label[i]), fmt.Sprintf("%06d.bin", i))
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, d.bytes[i], 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, st.ModTime(), st.ModTime()); err != nil {
			t.Fatal(err)
		}
	}
	sums, err := sample.OpenManifest(filepath.Join(o.Dirs[0], cache.ManifestName))
	if err != nil {
		t.Fatal(err)
	}
	file, err := sample.OpenSums(filepath.Join(o.Dirs[0], cache.SumsName), sums.Fingerprint(), sums.Len())
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []sample.Index{2, 3, 150} {
		file.Forget(i)
	}
	if err := errors.Join(file.Close(), sums.Close()); err != nil {
		t.Fatal(err)
	}
	in.Dirs = o.Dirs
	_, again := ingested(t, d, in)
	if again.StoredSamples != rep.StoredSamples {
		t.Errorf("%d samples in the log, %d before", again.StoredSamples, rep.StoredSamples)
	}
	e := open(t, o)
	d.readEpochs(t, e, j, 0, 2)
	if s := e.Status().Jobs[0]; s.Misses != 0 || s.CorruptSamples != 0 {
		t.Errorf("%d misses, %d corrupt", s.Misses, s.CorruptSamples)
	}
	closeEngine(t, e)
}
