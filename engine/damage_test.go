package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/internal/serve/schedule"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
)

// damageBed is the files of a cache, to be copied and damaged.
type damageBed struct {
	*dataset
	job    schedule.Job
	opts   Options
	ingest ingest.Options
	files  map[string][]byte // by path below the folder that holds the cache's directories
	before []byte            // the sums before the cache was adapted
}

func newDamageBed(t *testing.T) *damageBed {
	t.Helper()
	b := damageBedOf(t, 60, ingest.Options{})
	b.take(t)
	return b
}

// damageBedOf returns the cache after an ingest, with no files read yet.
func damageBedOf(t *testing.T, samples int, in ingest.Options) *damageBed {
	t.Helper()
	b := &damageBed{job: samplerJob(3, 8, 1, false), ingest: in}
	b.dataset = makeDatasetOf(t, samples, func(r *rand.Rand, i int) int {
		if i%20 == 0 {
			return 150 << 10
		}
		return r.IntN(6_000)
	}, mostlyWords)
	b.ingest.Job, b.ingest.Source, b.ingest.Block, b.ingest.Memory, b.ingest.IO = b.job, b.dir, 128<<10, 24<<20, testIO()
	b.opts, _ = ingested(t, b.dataset, b.ingest)
	b.opts.Patience = 5 * time.Second
	b.opts.Logger = nil
	return b
}

// reordering is a cache of two directories that compresses, killed when the first block was read for the next epoch: with two Logfiles.
func reordering(t *testing.T) *damageBed {
	t.Helper()
	b := damageBedOf(t, 300, ingest.Options{Dirs: twoDirs(t), Compress: cache.LZ4})
	o := b.opts
	var once sync.Once
	begun := filepath.Join(o.Dirs[0], "journal-1")
	o.IO.Inject = func(io *blockio.IO) {
		blockio.Inject(io, func(_ int64, op *blockio.Op) blockio.Fault {
			if _, err := os.Stat(begun); err == nil && op.Buf != nil && !op.Write {
				once.Do(func() { b.take(t) })
			}
			return blockio.Fault{}
		})
	}
	e := open(t, o)
	b.readEpochs(t, e, b.job, 0, 1)
	closeEngine(t, e)
	return b
}

// adapting is a cache whose ingest was killed while it adapted the cache to a changed source: with two manifests.
func adapting(t *testing.T) *damageBed {
	t.Helper()
	b := damageBedOf(t, 60, ingest.Options{})
	b.write(t, "class-0/000003.bin", pseudo(1, 5_000))
	b.write(t, "class-1/new.bin", pseudo(2, 5_000))
	b.remove(t, "class-2/000045.bin")
	b.reload(t)
	b.take(t)
	b.before = b.files[b.first(cache.SumsName)]
	in := b.ingest
	in.Dirs, in.Relist = b.opts.Dirs, true
	in.IO.Inject = func(*blockio.IO) { b.take(t) } // the log is about to be opened through the old manifest
	if _, err := ingest.Run(context.Background(), in); err != nil {
		t.Fatal(err)
	}
	return b
}

// take reads the cache's files.
func (b *damageBed) take(t *testing.T) {
	t.Helper()
	b.files = map[string][]byte{}
	for _, dir := range b.opts.Dirs {
		for _, e := range list(t, dir) {
			data, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Error(err)
			}
			b.files[filepath.Join(filepath.Base(dir), e.Name())] = data
		}
	}
}

func list(t *testing.T, dir string) []fs.DirEntry {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Error(err)
	}
	return entries
}

// dirs are the cache's directories below root.
func (b *damageBed) dirs(root string) (dirs []string) {
	for _, d := range b.opts.Dirs {
		dirs = append(dirs, filepath.Join(root, filepath.Base(d)))
	}
	return dirs
}

// first is the position in files of a file in the first directory.
func (b *damageBed) first(name string) string {
	return filepath.Join(filepath.Base(b.opts.Dirs[0]), name)
}

// spoiled writes a copy of the cache with one file replaced, and returns how to open it.
func (b *damageBed) spoiled(t *testing.T, root, name string, data []byte) Options {
	t.Helper()
	o := b.opts
	o.Dirs = b.dirs(root)
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	for _, d := range o.Dirs {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for n, d := range b.files {
		if n == name {
			d = data
		}
		if err := os.WriteFile(filepath.Join(root, n), d, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// survives checks the result of a damaged file. The server must either serve every byte and every order correctly, or refuse to start with a line
// that names the fault and the cure. Another ingest must always repair the cache without help. survives reports whether the server refused.
func (b *damageBed) survives(t *testing.T, o Options, what string) (refused bool) {
	t.Helper()
	watch := time.AfterFunc(2*time.Minute, func() { panic(what + ": hangs") })
	defer watch.Stop()
	e, err := Open(context.Background(), o)
	if err == nil {
		b.right(t, e, what)
	} else if said := err.Error(); !strings.Contains(said, o.Dirs[0]) || !strings.Contains(strings.ReplaceAll(said, o.Dirs[0], ""), "ingest") {
		t.Errorf("%s: refused without saying where, or what to do: %v", what, err)
	}
	in := b.ingest
	in.Dirs = o.Dirs
	if _, err := ingest.Run(context.Background(), in); err != nil {
		t.Errorf("%s: ingest again: %v", what, err)
		return err != nil
	}
	whole, openErr := Open(context.Background(), o)
	if openErr != nil {
		t.Errorf("%s: after ingest: %v", what, openErr)
		return err != nil
	}
	if state := whole.Status().Cache.State; state != "normal" {
		t.Errorf("%s: after ingest the cache is %s", what, state)
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

// headerOf returns the number of bytes of a file that are flipped byte by byte.
func (b *damageBed) headerOf(name string) int {
	data := b.files[name]
	switch base, _, _ := strings.Cut(filepath.Base(name), "-"); base {
	case cache.SumsName, cache.LengthsName:
		return 48
	case cache.ManifestName:
		return 64 + 40*int(binary.LittleEndian.Uint32(data[12:])) + 8 // its table of sections, and the sum
	case "journal":
		return int(binary.LittleEndian.Uint32(data[12:]))
	}
	return len(data)
}

// A flip changes one bit of a byte, or all of them.
type flip struct {
	at   int
	mask byte
}

// flips lists the bytes and bits of a file to flip. Of the header these are all; of the remaining bytes a random selection. By default both are a random selection.
func flips(header, length int) (list []flip) {
	masks := []byte{1, 2, 4, 8, 16, 32, 64, 128, 0xff}
	draw := func(n, from, to int) {
		for range n {
			list = append(list, flip{from + rand.IntN(to-from), masks[rand.IntN(len(masks))]})
		}
	}
	all := thorough()
	if all {
		for at := range header {
			for _, mask := range masks {
				list = append(list, flip{at, mask})
			}
		}
	} else {
		draw(4, 0, header)
	}
	if header < length && all {
		draw(100, header, length)
	} else if header < length {
		draw(1, header, length)
	}
	return list
}

// TestHeadersFlipped flips bytes of FORMAT, job.json, the listing's record, and of manifests, journals, sums and compressed lengths, one
// at a time: a single bit, or all of them. By default it flips a random selection; with LCACHE_FAULTS=all, every bit of every byte of their headers.
func TestHeadersFlipped(t *testing.T) {
	testenv.Long(t)
	testenv.WithoutRace(t)
	t.Run("ingested", func(t *testing.T) {
		b := damageBedOf(t, 60, ingest.Options{})
		b.settle(t) // else the record of the listing is not believed
		in := b.ingest
		in.Dirs, in.Relist = b.opts.Dirs, true
		if _, err := ingest.Run(context.Background(), in); err != nil {
			t.Fatal(err)
		}
		b.take(t)
		b.sweep(t, "FORMAT", cache.RecordName, cache.ListingName, cache.ManifestName, cache.SumsName, "journal")
	})
	t.Run("reordering", func(t *testing.T) {
		b := reordering(t)
		if b.files[b.first("journal-0")] == nil || b.files[b.first("journal-1")] == nil {
			t.Fatalf("files %v, want the journals of two Logfiles", slices.Collect(maps.Keys(b.files)))
		}
		b.sweep(t, "FORMAT", cache.LengthsName, "journal")
	})
	t.Run("adapting", func(t *testing.T) {
		adapting(t).sweep(t, cache.ManifestName, cache.SumsName, "journal")
	})
}

// sweep flips bytes of the files of these kinds.
func (b *damageBed) sweep(t *testing.T, kinds ...string) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "copy")
	left := map[string]bool{}
	for _, kind := range kinds {
		left[kind] = true
	}
	for name, whole := range b.files {
		kind, _, _ := strings.Cut(filepath.Base(name), "-")
		if !slices.Contains(kinds, kind) {
			continue
		}
		delete(left, kind)
		header := b.headerOf(name)
		list := flips(header, len(whole))
		refused := 0
		for _, f := range list {
			bad := bytes.Clone(whole)
			bad[f.at] ^= f.mask
			if b.survives(t, b.spoiled(t, root, name, bad), fmt.Sprintf("%s byte %d ^ %#x", name, f.at, f.mask)) {
				refused++
			}
			if t.Failed() {
				return
			}
		}
		t.Logf("%s: %d values swept, of a header of %d bytes and a file of %d; the server refused %d", name, len(list), header, len(whole), refused)
	}
	if len(left) > 0 {
		t.Errorf("no such files in the cache: %v", left)
	}
}

// TestFilesTruncated truncates every file to multiples of 512 bytes, and to 0. By default to a random selection of these lengths;
// with LCACHE_FAULTS=all, to all of them.
func TestFilesTruncated(t *testing.T) {
	testenv.Long(t)
	b := newDamageBed(t)
	root := filepath.Join(t.TempDir(), "copy")
	for name, whole := range b.files {
		if filepath.Base(name) == "LOCK" {
			continue
		}
		steps := len(whole)/512 + 1
		swept, refused := 0, 0
		for n := range steps {
			if !thorough() && n > 0 && rand.IntN(steps/testenv.Pick(8, 4)+1) != 0 {
				continue
			}
			if b.survives(t, b.spoiled(t, root, name, whole[:n*512]), fmt.Sprintf("%s cut to %d bytes", name, n*512)) {
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
	root := filepath.Join(t.TempDir(), "copy")
	for name, whole := range b.files {
		o := b.spoiled(t, root, "", nil)
		if err := os.Remove(filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
		b.survives(t, o, fmt.Sprintf("%s of %d bytes gone", name, len(whole)))
	}
}

// TestBlocksDamaged zeroes blocks, swaps them, and replaces new blocks by old ones. Their samples are read from the source. They
// count as corrupt or stale, never as hits with other bytes.
func TestBlocksDamaged(t *testing.T) {
	b := newDamageBed(t)
	const block = 128 << 10
	name := b.first("arena")
	arena := b.files[name]
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
	root := filepath.Join(t.TempDir(), "copy")
	for what, do := range damage {
		bad := bytes.Clone(arena)
		do(bad)
		e := open(t, b.spoiled(t, root, name, bad))
		c := attach(t, e)
		for epoch := range 3 { // the third one reads the samples that the first two have restored
			if _, err := b.readRank(e, c, epoch, 0, 0); err != nil {
				t.Errorf("%s, epoch %d: %v", what, epoch, err)
			}
		}
		s := e.Status().Jobs[0]
		if s.CorruptSamples+s.StaleSamples == 0 {
			t.Errorf("%s: nothing counts as corrupt or stale", what)
		}
		// A sample that is loaded only for the next epoch is not a miss: it is requested when it is in the log again.
		if s.SourceReads == 0 || s.SourceReads > int64(len(b.bytes)) || s.Misses > s.SourceReads {
			t.Errorf("%s: %d reads from the source, %d misses; want some, and none twice", what, s.SourceReads, s.Misses)
		}
		closeEngine(t, e)
	}
}

// TestBitsFlippedUnderReads flips bits of the arena while epochs are read from it and appended to it. LCACHE_FLIPS is the number (600).
func TestBitsFlippedUnderReads(t *testing.T) {
	flips := 600
	if n, err := strconv.Atoi(os.Getenv("LCACHE_FLIPS")); err == nil {
		flips = n
	}
	b := damageBedOf(t, 600, ingest.Options{}) // so that more of the arena is in use than not
	b.job.Epochs = 1 << 20
	b.ingest.Job = b.job
	b.opts, _ = ingested(t, b.dataset, b.ingest)
	b.opts.Patience, b.opts.Logger = 5*time.Second, nil
	e := open(t, b.opts)
	c := attach(t, e)
	r := rand.New(rand.NewPCG(1, 2))
	epoch := 0
	for flipped := 0; flipped < flips && !t.Failed(); epoch++ {
		// Flip some before the epoch, when no read is in flight here. The scan reads ahead meanwhile.
		for range min(20, flips-flipped) {
			flipBit(t, filepath.Join(b.opts.Dirs[0], "arena"), e.cache.IO.Direct(), r)
			flipped++
		}
		if _, err := b.readRank(e, c, epoch, 0, 0); err != nil {
			t.Errorf("epoch %d: %v", epoch, err)
		}
	}
	s := e.Status().Jobs[0]
	t.Logf("%d bits in %d epochs: %d samples corrupt, %d stale, %d misses", flips, epoch, s.CorruptSamples, s.StaleSamples, s.Misses)
	if s.CorruptSamples < int64(flips)/20 {
		t.Errorf("%d corrupt samples of %d flipped bits, want at least 1/20: most flips missed the blocks that were read", s.CorruptSamples, flips)
	}
	closeEngine(t, e)
}

// flipBit changes one bit of a file, past the page cache if the engine also bypasses it.
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

// Verify counts damaged samples, whatever damaged them. With Repair the next ingest restores them, and so does an epoch if the log is
// reordered.
func TestVerifyAfterDamage(t *testing.T) {
	for _, compress := range []string{"none", cache.LZ4} {
		for _, layout := range []string{cache.LayoutLog, cache.LayoutStatic} {
			t.Run(compress+"/"+layout, func(t *testing.T) {
				b := damageBedOf(t, 60, ingest.Options{Compress: compress, Layout: layout})
				b.take(t)
				bad := bytes.Clone(b.files[b.first("arena")])
				clear(bad[128<<10 : 256<<10]) // as a power cut leaves a block whose record was durable before its bytes were
				o := b.spoiled(t, filepath.Join(t.TempDir(), "copy"), b.first("arena"), bad)
				repaired := func() *cache.VerifyReport {
					t.Helper()
					rep, err := cache.Verify(t.Context(), cache.VerifyOptions{Dirs: o.Dirs, IO: o.IO, Repair: true})
					if err != nil {
						t.Fatal(err)
					}
					return rep
				}
				verified := func() *cache.VerifyReport {
					t.Helper()
					rep, err := cache.Verify(t.Context(), cache.VerifyOptions{Dirs: o.Dirs, IO: o.IO})
					if err != nil {
						t.Fatal(err)
					}
					return rep
				}
				first := repaired()
				if again := verified(); first.Corrupt == 0 || first.Forgotten != first.Corrupt || again.Corrupt != 0 || again.Unknown != first.Corrupt || again.Good != first.Good {
					t.Errorf("repair %+v, then verify %+v; want the damaged samples unknown after the repair", first, again)
				}
				if layout == cache.LayoutLog {
					b.right(t, open(t, o), "an epoch")
					if after := verified(); after.Good != after.Samples {
						t.Errorf("after an epoch: %+v", after)
					}
					o = b.spoiled(t, filepath.Dir(o.Dirs[0]), b.first("arena"), bad)
					repaired()
				}
				in := b.ingest
				in.Dirs = o.Dirs
				_, rep := ingested(t, b.dataset, in)
				if after := verified(); rep.ReadSamples < int64(first.Corrupt) || rep.ReadSamples == int64(rep.Samples) || after.Good != rep.Samples {
					t.Errorf("%d samples were damaged, ingest read %d of %d: %+v", first.Corrupt, rep.ReadSamples, rep.Samples, after)
				}
			})
		}
	}
}
