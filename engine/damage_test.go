package engine

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"lcache/blockio"
)

// damageBed is a cache that a clean stop left, to be copied and damaged.
type damageBed struct {
	*dataset
	job    Job
	opts   Options
	ingest IngestOptions
	files  map[string][]byte
}

func newDamageBed(t *testing.T) *damageBed {
	t.Helper()
	return damageBedOf(t, 60)
}

func damageBedOf(t *testing.T, samples int) *damageBed {
	t.Helper()
	b := &damageBed{job: samplerJob(3, 8, 1, false)}
	b.dataset = makeDataset(t, samples, func(r *rand.Rand, i int) int {
		if i%20 == 0 {
			return 150 << 10
		}
		return r.IntN(6_000)
	})
	b.ingest = IngestOptions{Job: b.job, Source: b.dir, Block: 128 << 10, Memory: 24 << 20, IO: testIO()}
	b.opts, _ = ingested(t, b.dataset, b.ingest)
	b.opts.Patience = 5 * time.Second
	b.opts.Logger = nil
	b.files = map[string][]byte{}
	for _, e := range list(t, b.opts.Dirs[0]) {
		data, err := os.ReadFile(filepath.Join(b.opts.Dirs[0], e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		b.files[e.Name()] = data
	}
	return b
}

func list(t *testing.T, dir string) []fs.DirEntry {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// spoiled writes a copy of the cache with one file as given.
func (b *damageBed) spoiled(t *testing.T, dir, name string, data []byte) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for n, d := range b.files {
		if n == name {
			d = data
		}
		if err := os.WriteFile(filepath.Join(dir, n), d, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// survives holds what damage to a file may do. The server either serves every byte and every order right, or refuses with a line that
// says what is wrong where; and ingest, run again, always makes it whole without help. It reports whether the server refused.
func (b *damageBed) survives(t *testing.T, dir, what string) (refused bool) {
	t.Helper()
	o := b.opts
	o.Dirs = []string{dir}
	e, err := Open(context.Background(), o)
	if err != nil {
		if !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: refused without saying where: %v", what, err)
		}
	} else {
		b.right(t, e, what)
	}
	in := b.ingest
	in.Dirs = o.Dirs
	if _, err := Ingest(context.Background(), in); err != nil {
		t.Errorf("%s: ingest again: %v", what, err)
		return err != nil
	}
	whole, openErr := Open(context.Background(), o)
	if openErr != nil {
		t.Errorf("%s: after ingest: %v", what, openErr)
		return err != nil
	}
	b.right(t, whole, what+", after ingest")
	return err != nil
}

// right reads an epoch and closes the engine.
func (b *damageBed) right(t *testing.T, e *Engine, what string) {
	t.Helper()
	got, err := b.readRank(e, attach(t, e), 0, 0, 0)
	if err != nil {
		t.Errorf("%s: %v", what, err)
	} else if want := b.want(t, b.job, 0, 0); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: the order is another one", what)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := e.Close(ctx); err != nil {
		t.Errorf("%s: close: %v", what, err)
	}
}

// headerOf is how many bytes of a file are swept byte by byte.
func (b *damageBed) headerOf(name string) int {
	switch name {
	case "arena", "LOCK":
		return 0
	case "sums":
		return 48
	case "manifest", "journal-0", "journal-1":
		return min(len(b.files[name]), 512)
	}
	return len(b.files[name])
}

// TestHeadersFlipped flips bytes of FORMAT, job.json and the headers of manifest, sums and journals, one at a time: a single bit, or all of
// them. By default a draw of them; LCACHE_FAULTS=all takes every bit of every byte.
func TestHeadersFlipped(t *testing.T) {
	b := newDamageBed(t)
	dir := filepath.Join(t.TempDir(), "cache")
	for name := range b.files {
		n := b.headerOf(name)
		swept, refused := 0, 0
		for i := range n {
			for class := range 9 {
				if os.Getenv("LCACHE_FAULTS") != "all" && rand.IntN(9*n/16+1) != 0 {
					continue
				}
				mask := byte(1) << class
				if class == 8 {
					mask = 0xff
				}
				bad := bytes.Clone(b.files[name])
				bad[i] ^= mask
				b.spoiled(t, dir, name, bad)
				if b.survives(t, dir, fmt.Sprintf("%s byte %d ^ %#x", name, i, mask)) {
					refused++
				}
				if swept++; t.Failed() {
					return
				}
			}
		}
		if n > 0 {
			t.Logf("%s: %d values of %d bytes swept, the server refused %d", name, swept, n, refused)
		}
	}
}

// TestFilesTruncated cuts every file at multiples of 512 bytes, and once more where nothing is left. By default a draw of the lengths;
// LCACHE_FAULTS=all takes them all.
func TestFilesTruncated(t *testing.T) {
	b := newDamageBed(t)
	dir := filepath.Join(t.TempDir(), "cache")
	for name, whole := range b.files {
		if name == "LOCK" {
			continue
		}
		steps := len(whole)/512 + 1
		swept, refused := 0, 0
		for n := range steps {
			if os.Getenv("LCACHE_FAULTS") != "all" && n > 0 && rand.IntN(steps/8+1) != 0 {
				continue
			}
			b.spoiled(t, dir, name, whole[:n*512])
			if b.survives(t, dir, fmt.Sprintf("%s cut to %d bytes", name, n*512)) {
				refused++
			}
			if swept++; t.Failed() {
				return
			}
		}
		t.Logf("%s: %d lengths swept, the server refused %d", name, swept, refused)
	}
}

// TestFilesGone removes one file after the other.
func TestFilesGone(t *testing.T) {
	b := newDamageBed(t)
	dir := filepath.Join(t.TempDir(), "cache")
	for name, whole := range b.files {
		b.spoiled(t, dir, "", nil)
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		b.survives(t, dir, fmt.Sprintf("%s of %d bytes gone", name, len(whole)))
	}
}

// TestBlocksDamaged zeroes blocks, swaps them, and puts old ones in the place of new ones. What is in them is read from the source; it
// counts as damage or as stale, never as a hit with other bytes.
func TestBlocksDamaged(t *testing.T) {
	b := newDamageBed(t)
	const block = 128 << 10
	arena := b.files["arena"]
	used := 0 // ingest fills places from the first on
	for i := 0; i+block <= len(arena) && !bytes.Equal(arena[i:i+block], make([]byte, block)); i += block {
		used++
	}
	if used < 3 {
		t.Fatalf("%d blocks: too few to be swapped", used)
	}
	at := func(a []byte, i int) []byte { return a[i*block : (i+1)*block] }
	damage := map[string]func(a []byte){
		"all swapped round": func(a []byte) { copy(a, at(arena, used-1)); copy(a[block:], arena[:(used-1)*block]) },
		"all zero":          func(a []byte) { clear(a) },
		"all of another time": func(a []byte) {
			for i := range a {
				a[i] = byte(i * 31)
			}
		},
	}
	for i := range used {
		damage[fmt.Sprintf("block %d zero", i)] = func(a []byte) { clear(at(a, i)) }
		damage[fmt.Sprintf("block %d is its neighbour", i)] = func(a []byte) { copy(at(a, i), at(arena, (i+1)%used)) }
		damage[fmt.Sprintf("half of block %d is its neighbour's", i)] = func(a []byte) { copy(at(a, i)[:block/2], at(arena, (i+1)%used)) }
	}
	dir := filepath.Join(t.TempDir(), "cache")
	for what, do := range damage {
		bad := bytes.Clone(arena)
		do(bad)
		b.spoiled(t, dir, "arena", bad)
		o := b.opts
		o.Dirs = []string{dir}
		e := open(t, o)
		c := attach(t, e)
		for epoch := range 3 { // the third one reads what the first two have put back
			if _, err := b.readRank(e, c, epoch, 0, 0); err != nil {
				t.Errorf("%s, epoch %d: %v", what, epoch, err)
			}
		}
		s := e.Status().Jobs[0]
		if s.CorruptSamples+s.StaleSamples == 0 {
			t.Errorf("%s: nothing counts as corrupt or stale", what)
		}
		// What the pass brings for the next epoch alone is no miss: it is asked for when it is in the log again.
		if s.SourceReads == 0 || s.SourceReads > int64(len(b.bytes)) || s.Misses > s.SourceReads {
			t.Errorf("%s: %d reads from the source, %d misses; want some, and none twice", what, s.SourceReads, s.Misses)
		}
		closeEngine(t, e)
	}
}

// TestBitsFlippedUnderReads flips bits of the arena while epochs are read from it and written on into it. LCACHE_FLIPS is how many (600).
func TestBitsFlippedUnderReads(t *testing.T) {
	flips := 600
	if n, err := strconv.Atoi(os.Getenv("LCACHE_FLIPS")); err == nil {
		flips = n
	}
	b := damageBedOf(t, 600) // so that more of the arena is in use than not
	b.job.Epochs = 1 << 20
	b.ingest.Job = b.job
	b.opts, _ = ingested(t, b.dataset, b.ingest)
	b.opts.Patience, b.opts.Logger = 5*time.Second, nil
	e := open(t, b.opts)
	c := attach(t, e)
	r := rand.New(rand.NewPCG(1, 2))
	epoch := 0
	for flipped := 0; flipped < flips && !t.Failed(); epoch++ {
		// Some before the epoch, when nothing is in flight here; the pass reads on ahead meanwhile.
		for range min(20, flips-flipped) {
			flipBit(t, filepath.Join(b.opts.Dirs[0], "arena"), e.io.Direct(), r)
			flipped++
		}
		if _, err := b.readRank(e, c, epoch, 0, 0); err != nil {
			t.Errorf("epoch %d: %v", epoch, err)
		}
	}
	s := e.Status().Jobs[0]
	t.Logf("%d bits in %d epochs: %d samples corrupt, %d stale, %d misses", flips, epoch, s.CorruptSamples, s.StaleSamples, s.Misses)
	if s.CorruptSamples < int64(flips)/20 {
		t.Errorf("%d corrupt samples of %d flipped bits: the flips did not meet what was read", s.CorruptSamples, flips)
	}
	closeEngine(t, e)
}

// flipBit changes one bit of a file past the page cache, if the engine goes past it too.
func flipBit(t *testing.T, path string, direct bool, r *rand.Rand) {
	t.Helper()
	flags := os.O_RDWR
	if direct {
		flags |= syscall.O_DIRECT
	}
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	page, err := blockio.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer blockio.Free(page)
	off := r.Int64N(st.Size()/4096) * 4096
	if _, err := f.ReadAt(page, off); err != nil {
		t.Fatal(err)
	}
	page[r.IntN(len(page))] ^= 1 << r.IntN(8)
	if _, err := f.WriteAt(page, off); err != nil {
		t.Fatal(err)
	}
}
