package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/sample"
	"lcache/source"
)

// sameSizes is a dataset whose files all have one size and one time.
func sameSizes(t *testing.T, n int) *dataset {
	t.Helper()
	d := makeDatasetOf(t, n, func(*rand.Rand, int) int { return 5000 }, mostlyWords)
	d.stamp(t)
	return d
}

// longAgo is the time of all files of such a dataset.
var longAgo = time.Unix(1e9, 0)

// stamp gives all files one time.
func (d *dataset) stamp(t *testing.T) {
	t.Helper()
	d.eachFile(t, func(path string) error { return os.Chtimes(path, longAgo, longAgo) })
}

// eachFile calls do with the path of each file.
func (d *dataset) eachFile(t *testing.T, do func(path string) error) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(d.dir, "*", "*"))
	for _, path := range paths {
		err = errors.Join(err, do(path))
	}
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d files: %v", len(paths), err)
	}
}

// exchange gives two files each other's name.
func (d *dataset) exchange(t *testing.T, a, b string) {
	t.Helper()
	a, b, aside := filepath.Join(d.dir, a), filepath.Join(d.dir, b), filepath.Join(d.dir, "aside")
	if err := errors.Join(os.Rename(a, aside), os.Rename(b, a), os.Rename(aside, b)); err != nil {
		t.Fatal(err)
	}
	d.reload(t)
}

// restore puts a copy with the same time in the place of each file.
func (d *dataset) restore(t *testing.T) {
	t.Helper()
	d.eachFile(t, func(path string) error {
		b, err := os.ReadFile(path)
		return errors.Join(err, os.WriteFile(d.dir+"/aside", b, 0o644), os.Chtimes(d.dir+"/aside", longAgo, longAgo), os.Rename(d.dir+"/aside", path))
	})
}

// replaced is an ingest's report about files of the same size and time. dropped is how many samples a server may have dropped before: see served.
// They are read twice if the log has to be sorted for them.
type replaced struct{ replaced, changed, added, dropped int }

func (d *dataset) again(t *testing.T, when string, o ingest.Options, want replaced, read int64) Options {
	t.Helper()
	opts, rep := ingested(t, d, o)
	if got := (replaced{rep.Replaced, rep.ChangedSamples, rep.AddedSamples, want.dropped}); got != want || rep.Changed != (want.changed+want.added > 0) || rep.ReadBytes < read || rep.ReadBytes > read+2*5000*int64(want.dropped) || rep.Anew {
		t.Errorf("%s: %+v, changed %v, %d bytes read, made again %v; want %+v and %d bytes", when, got, rep.Changed, rep.ReadBytes, rep.Anew, want, read)
	}
	return opts
}

// served reads all epochs of a complete cache. Changed samples may be in a segment of a partly written log with their old bytes and with their new ones. The segment then has room for that many fewer
// samples, and these are read from the source once.
func (d *dataset) served(t *testing.T, o Options, changed int) {
	t.Helper()
	e := open(t, o)
	d.readEpochs(t, e, samplerJob(3, 16, 2, false), 0, 3)
	if changed == 0 {
		noSource(t, e)
	} else if s, most := e.Status(), int64(changed); s.Totals.SourceReads > most || s.Totals.Misses > most || s.Jobs[0].ReorderDropped > most || s.Jobs[0].CorruptSamples > 0 {
		t.Errorf("%d reads from the source, %d misses, %d dropped, %d corrupt; %d have changed", s.Totals.SourceReads, s.Totals.Misses, s.Jobs[0].ReorderDropped, s.Jobs[0].CorruptSamples, changed)
	}
	closeEngine(t, e)
}

// TestExchangedFiles: two files of one size and time that swapped names are two changed samples.
func TestExchangedFiles(t *testing.T) {
	for _, name := range []string{"plain", "lz4", "parts", "static", "listed whole"} {
		t.Run(name, func(t *testing.T) {
			d := sameSizes(t, 120)
			in := ingest.Options{Job: samplerJob(3, 16, 2, false), Block: 128 << 10, Memory: 64 << 20, Dirs: []string{filepath.Join(t.TempDir(), "cache")}, Logger: testLogger(t)}
			a, b := "class-0/000004.bin", "class-1/000044.bin"
			switch name {
			case "lz4":
				in.Compress = cache.LZ4
			case "static":
				in.Layout = cache.LayoutStatic
			case "listed whole":
				in.Relist = true
			case "parts":
				d = d.inParts(t)
				d.stamp(t)
				a, b = "class-0/000004", "class-1/000044"
			}
			d.again(t, "first", in, replaced{}, d.total)
			bytes := d.bytes
			d.exchangeAs(t, a, b, 4, 44)
			if same(bytes[4], d.bytes[4]) {
				t.Fatal("both files have the same bytes")
			}
			if in.Compress == cache.LZ4 { // the log counts with the lengths of before: they are stored after a sort, if there is room
				in.Logger = nil
				d.exchangedPacked(t, in)
			} else {
				o := d.again(t, "exchanged", in, replaced{replaced: 2, changed: 2}, 10_000)
				o.Layout = in.Layout
				d.served(t, o, 2)
			}
			in.Relist = true
			d.again(t, "once more", in, replaced{dropped: 2}, 0)
		})
	}
}

// exchangedPacked is an ingest after two samples were exchanged, of a cache that compresses. The log of such a small one may have no room for one of them.
func (d *dataset) exchangedPacked(t *testing.T, in ingest.Options) {
	t.Helper()
	o, rep := ingested(t, d, in)
	if rep.Replaced != 2 || rep.ChangedSamples != 2 || rep.StoredSamples < len(d.bytes)-2 {
		t.Errorf("%d replaced, %d changed, %d stored", rep.Replaced, rep.ChangedSamples, rep.StoredSamples)
	}
	e := open(t, o)
	d.readEpochs(t, e, in.Job, 0, 3)
	if s := e.Status().Jobs[0]; s.CorruptSamples != 0 || s.SourceReads > 2*3 {
		t.Errorf("%d corrupt, %d reads from the source", s.CorruptSamples, s.SourceReads)
	}
	closeEngine(t, e)
}

// exchangeAs exchanges the files of two samples. It does not list them, because the dataset may be grouped.
func (d *dataset) exchangeAs(t *testing.T, a, b string, i, j int) {
	t.Helper()
	g := *d
	g.exchange(t, a, b)
	d.bytes = append([][]byte(nil), d.bytes...)
	d.bytes[i], d.bytes[j] = d.bytes[j], d.bytes[i]
}

// TestRestoredSource: a source whose files are all copies with their old times is read once, and nothing of it is taken again.
func TestRestoredSource(t *testing.T) {
	d := makeDataset(t, 150, mixedSizes)
	d.stamp(t)
	in := ingest.Options{Job: samplerJob(3, 16, 2, false), Block: 128 << 10, Memory: 64 << 20, Dirs: []string{filepath.Join(t.TempDir(), "cache")}, Logger: testLogger(t)}
	d.again(t, "first", in, replaced{}, d.total)
	full := len(d.bytes) - d.empty()
	for round := range 2 {
		d.restore(t)
		d.again(t, fmt.Sprint("restored ", round), in, replaced{replaced: full}, 0)
	}
	in.Relist = true
	o := d.again(t, "known", in, replaced{}, 0)
	d.served(t, o, 0)
}

// TestRestoredSourceWithoutPrefill: training begins at once, reads each file once, and gets the bytes that the files have now.
func TestRestoredSourceWithoutPrefill(t *testing.T) {
	for _, layout := range []string{cache.LayoutLog, cache.LayoutStatic} {
		t.Run(layout, func(t *testing.T) {
			d := sameSizes(t, 150)
			j := samplerJob(3, 16, 2, false)
			in := ingest.Options{Job: j, Block: 128 << 10, Memory: 64 << 20, Dirs: []string{filepath.Join(t.TempDir(), "cache")}, Logger: testLogger(t)}
			d.again(t, "first", in, replaced{}, d.total)
			d.restore(t)
			d.exchange(t, "class-0/000004.bin", "class-1/000054.bin")
			in.NoPrefill = true
			o := d.again(t, "restored", in, replaced{replaced: 150}, 0)
			o.Layout = layout
			o.Patience, o.LogTimeout = 20*time.Second, 20*time.Second
			e := open(t, o)
			d.readEpochs(t, e, j, 0, 3)
			s := e.Status().Jobs[0]
			if s.CorruptSamples != 0 || s.SourceReads < 150 || s.SourceReads > 160 || s.EpochsDone[2].Misses > 2 { // of the two that were exchanged, if they still lay in memory in the epoch before
				t.Errorf("%d corrupt, %d reads from the source, %d misses in the last epoch; want none, 150 and a few, 2 at most", s.CorruptSamples, s.SourceReads, s.EpochsDone[2].Misses)
			}
			closeEngine(t, e)
			in.Relist = true
			d.again(t, "known", in, replaced{}, 0)
		})
	}
}

// TestInodesOfChangedSource: inodes are copied to the next listing, and files that were exchanged meanwhile are found.
func TestInodesOfChangedSource(t *testing.T) {
	d := sameSizes(t, 120)
	in := ingest.Options{Job: samplerJob(3, 16, 2, false), Block: 128 << 10, Memory: 64 << 20, Dirs: []string{filepath.Join(t.TempDir(), "cache")}, Logger: testLogger(t)}
	d.again(t, "first", in, replaced{}, d.total)
	d.write(t, "class-0/000000-new.bin", pseudo(1, 7000))
	d.exchange(t, "class-0/000004.bin", "class-1/000044.bin")
	d.again(t, "more and exchanged", in, replaced{replaced: 2, changed: 2, added: 1}, 7_000) // the sort has read the exchanged ones
	d.exchange(t, "class-2/000100.bin", "class-1/000044.bin")
	o := d.again(t, "exchanged again", in, replaced{replaced: 2, changed: 2, dropped: 2}, 10_000)
	d.served(t, o, 2)
}

// TestCacheWithoutInodes: a cache of a version without inodes learns them from a listing of all files, without reading any.
func TestCacheWithoutInodes(t *testing.T) {
	d := sameSizes(t, 60)
	in := ingest.Options{Job: samplerJob(3, 16, 2, false), Block: 128 << 10, Memory: 64 << 20, Dirs: []string{filepath.Join(t.TempDir(), "cache")}, Logger: testLogger(t)}
	d.settle(t)
	o := d.again(t, "first", in, replaced{}, d.total)
	if err := os.Remove(filepath.Join(in.Dirs[0], cache.InodesName)); err != nil {
		t.Fatal(err)
	}
	d.served(t, o, 0)
	for round := range 2 {
		d.again(t, fmt.Sprint("as it is ", round), in, replaced{}, 0)
	}
	d.exchange(t, "class-0/000004.bin", "class-1/000034.bin")
	d.served(t, d.again(t, "exchanged", in, replaced{replaced: 2, changed: 2}, 10_000), 2)
}

// TestInodesDamaged: no content of the inodes file causes an error, and the inodes are learnt again.
func TestInodesDamaged(t *testing.T) {
	d := sameSizes(t, 60)
	in := ingest.Options{Job: samplerJob(3, 16, 2, false), Block: 128 << 10, Memory: 64 << 20, Dirs: []string{filepath.Join(t.TempDir(), "cache")}}
	o := d.again(t, "first", in, replaced{}, d.total)
	path := filepath.Join(in.Dirs[0], cache.InodesName)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	header := func(change func(b []byte)) []byte {
		b := bytes.Clone(whole)
		change(b)
		binary.LittleEndian.PutUint64(b[40:], xxh3.Hash(b[:40]))
		return b
	}
	flipped := bytes.Clone(whole)
	flipped[3] ^= 1
	put := func(b []byte) func() error { return func() error { return os.WriteFile(path, b, 0o600) } }
	changed := 0 // so far: the log may have a copy of each time
	for _, bad := range []struct {
		name string
		put  func() error
	}{
		{"empty", put(nil)},
		{"cut", put(whole[:len(whole)-1])},
		{"longer", put(append(bytes.Clone(whole), 0))},
		{"zeros", put(make([]byte, len(whole)))},
		{"a flipped byte", put(flipped)},
		{"of another dataset", put(header(func(b []byte) { b[24] ^= 1 }))},
		{"of a later version", put(header(func(b []byte) { b[8] = 9 }))},
		{"of more samples", put(header(func(b []byte) { b[16]++ }))},
		{"a link", func() error { return os.Symlink("sums", path) }},
		{"a pipe", func() error { return unix.Mkfifo(path, 0o600) }},
		{"a folder", func() error { return os.Mkdir(path, 0o700) }},
	} {
		if err := errors.Join(os.Remove(path), bad.put()); err != nil {
			t.Fatal(err)
		}
		d.served(t, o, changed)
		relist := in
		relist.Relist = true
		d.again(t, bad.name, relist, replaced{dropped: changed}, 0)
		d.exchange(t, "class-0/000004.bin", "class-1/000034.bin")
		d.again(t, bad.name+", exchanged", in, replaced{replaced: 2, changed: 2, dropped: changed}, 10_000) // the sort of the ingest before may drop samples, too
		changed += 2
	}
	if err := errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "full"), 0o700)); err != nil {
		t.Fatal(err)
	}
	d.again(t, "a folder that can't be removed", in, replaced{}, 0)
	d.served(t, o, changed)
}

// TestReadFindsOtherBytes: a file was changed in place, and its time restored. Reading it is an error, and the next ingest reads it again.
func TestReadFindsOtherBytes(t *testing.T) {
	d := sameSizes(t, 60)
	d.settle(t)
	in := ingest.Options{Job: samplerJob(3, 16, 2, false), Block: 128 << 10, Memory: 64 << 20, Dirs: []string{filepath.Join(t.TempDir(), "cache")}}
	o := d.again(t, "first", in, replaced{}, d.total)
	journals, _ := filepath.Glob(filepath.Join(in.Dirs[0], "journal-*"))
	for _, path := range journals { // so that samples come from the source
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	d.write(t, "class-0/000004.bin", pseudo(8, 5000))
	d.stamp(t)
	e := open(t, o)
	c := attach(t, e)
	_, err := c.Get(context.Background(), []sample.Index{4}, nil)
	if named := new(source.SampleError); !errors.As(err, &named) || !errors.Is(err, source.ErrChanged) {
		t.Errorf("a file with other bytes: %v", err)
	}
	c.Disconnected()
	closeEngine(t, e)
	d.reload(t)
	d.served(t, d.again(t, "after the read", in, replaced{replaced: 1, changed: 1}, d.total), 0)
}

// TestCompareInterrupted: the next ingest completes an ingest that ended during the comparison, and reads only the remaining files.
func TestCompareInterrupted(t *testing.T) {
	d := sameSizes(t, 60)
	in := ingest.Options{Job: samplerJob(3, 16, 2, false), Block: 128 << 10, Memory: 64 << 20, Jobs: 1, Dirs: []string{filepath.Join(t.TempDir(), "cache")}, Source: d.dir, IO: testIO()}
	d.again(t, "first", in, replaced{}, d.total)
	d.restore(t)
	ctx, cancel := context.WithCancel(t.Context())
	cut := in
	cut.Progress = func(p cache.Progress) {
		if p.Stage == "comparing" && p.Done == 20 {
			cancel()
		}
	}
	if _, err := ingest.Run(ctx, cut); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	d.again(t, "completed", in, replaced{replaced: 40}, 0)
	in.Relist = true
	d.again(t, "known", in, replaced{}, 0)
}

// TestCompareUnreadable: a file that can't be compared does not cause an error. The next listing tries again.
func TestCompareUnreadable(t *testing.T) {
	d := sameSizes(t, 60)
	d.settle(t)
	in := ingest.Options{Job: samplerJob(3, 16, 2, false), Block: 128 << 10, Memory: 64 << 20, Dirs: []string{filepath.Join(t.TempDir(), "cache")}}
	d.again(t, "first", in, replaced{}, d.total)
	d.exchange(t, "class-0/000004.bin", "class-1/000034.bin")
	d.settle(t)
	gone := filepath.Join(d.dir, "class-0/000004.bin")
	var once sync.Once
	var text strings.Builder
	hidden := in
	hidden.Logger = slog.New(slog.NewTextHandler(writer(func(b []byte) {
		text.Write(b)
		if bytes.Contains(b, []byte("took the place")) { // it was listed, and is about to be read
			once.Do(func() {
				if err := os.Rename(gone, gone+"~"); err != nil {
					t.Error(err)
				}
			})
		}
	}), nil))
	d.again(t, "one can't be read", hidden, replaced{replaced: 2, changed: 1}, 5000)
	if !strings.Contains(text.String(), "class-0/000004.bin") {
		t.Errorf("no warning names the file: %s", text.String())
	}
	if err := os.Rename(gone+"~", gone); err != nil {
		t.Fatal(err)
	}
	d.served(t, d.again(t, "it can", in, replaced{replaced: 1, changed: 1}, 5000), 2)
}

type writer func(b []byte)

func (w writer) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
}

// TestInodesWithinBudget: a cache whose budget has no room for inodes, because an earlier version made it, works without them.
func TestInodesWithinBudget(t *testing.T) {
	d := sameSizes(t, 60)
	in := ingest.Options{Job: samplerJob(3, 16, 2, false), Block: 128 << 10, Memory: 64 << 20, Budget: 8 << 20, Dirs: []string{filepath.Join(t.TempDir(), "cache")}}
	o := d.again(t, "first", in, replaced{}, d.total)
	path := filepath.Join(in.Dirs[0], cache.InodesName)
	state := filepath.Join(in.Dirs[0], "importance-x")
	if err := errors.Join(os.Remove(path), os.WriteFile(state, nil, 0o600), os.Truncate(state, 8<<20)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		d.again(t, "no room", in, replaced{}, 0)
	}
	if _, err := os.Lstat(filepath.Join(in.Dirs[0], cache.ListingName)); err != nil {
		t.Errorf("the record of the listing is gone, so each listing looks at every file: %v", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file was made all the same: %v", err)
	}
	d.served(t, o, 0)
	if err := os.Remove(state); err != nil {
		t.Fatal(err)
	}
	d.again(t, "room", in, replaced{}, 0)
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
}
