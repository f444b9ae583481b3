package source_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"lcache/source"
	"lcache/source/s3test"
	"lcache/source/sourcetest"
)

// packed compresses a file with gzip or zstd.
func packed(t testing.TB, packing string, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&b)
	if packing == "zst" {
		var err error
		if w, err = zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// packedShelf is a shelf with compressed shards. Its samples have the names of the compressed shards.
type packedShelf struct {
	*shelf
	packing string
	lacks   []string
}

func (s packedShelf) Lacks() []string { return s.lacks }
func (s packedShelf) Limits() sourcetest.Limits {
	l := s.shelf.Limits()
	name := l.Name
	l.Name = func(file string) string {
		return strings.Replace(name(file), ".tar/", ".tar."+s.packing+"/", 1)
	}
	return l
}

func (s packedShelf) Replace(name string, data []byte) error {
	if s.tree == nil {
		return s.Write(name, data)
	}
	at := s.path(shardOf(name) + "." + s.packing)
	return errors.Join(os.Rename(at, at+".old"), s.Write(name, data), os.Remove(at+".old"))
}

// packing makes a shelf compress its shards.
func packing(t testing.TB, s *shelf, packing string, lacks ...string) packedShelf {
	put := s.put
	if put == nil {
		put = s.tree.Write
	}
	s.put = func(name string, data []byte) error { return put(name+"."+packing, packed(t, packing, data)) }
	return packedShelf{s.fill(t), packing, lacks}
}

// TestStreams: shards that are compressed, or whose server does not support ranges, pass the tests of all sources.
func TestStreams(t *testing.T) {
	defer source.SetFlowTrusted(source.SetFlowTrusted(0)) // a change is noticed at the next read
	stream := source.Options{Stream: true}
	t.Run("folder", func(t *testing.T) {
		sourcetest.Run(t, func(t *testing.T, files map[string][]byte) (source.Source, sourcetest.Mutator) {
			s := packing(t, &shelf{tree: newTree(t, nil), files: maps.Clone(files)}, "gz")
			return openTar(t, s.dir+"/*.tar.gz", stream), s
		})
	})
	t.Run("bucket", func(t *testing.T) {
		g := s3test.Start(t)
		var n atomic.Int64
		sourcetest.Run(t, func(t *testing.T, files map[string][]byte) (source.Source, sourcetest.Mutator) {
			b := bucket{g, fmt.Sprintf("packed %d/", n.Add(1))}
			s := packing(t, &shelf{put: b.Write, files: maps.Clone(files)}, "zst", sourcetest.ReplacedAlike)
			return openRemote(t, "tar:s3://"+s3test.Bucket+"/"+b.prefix+packedBraces(files, "zst"), source.Options{Stream: true, Remote: source.Remote{S3: source.S3{Endpoint: g.URL, Region: s3test.Region}}}), s
		})
	})
	t.Run("web", func(t *testing.T) {
		sourcetest.Run(t, func(t *testing.T, files map[string][]byte) (source.Source, sourcetest.Mutator) {
			web, url := serveShards(t, nil)
			web.ranges = false
			s := (&shelf{put: web.Write, files: maps.Clone(files)}).fill(t)
			return openRemote(t, "tar:"+url+braces(files), source.Options{}), farShelf{s}
		})
	})
	t.Run("web, packed", func(t *testing.T) {
		sourcetest.Run(t, func(t *testing.T, files map[string][]byte) (source.Source, sourcetest.Mutator) {
			web, url := serveShards(t, nil)
			web.ranges = false
			s := packing(t, &shelf{put: web.Write, files: maps.Clone(files)}, "gz", sourcetest.ReplacedAlike)
			return openRemote(t, "tar:"+url+packedBraces(files, "gz"), stream), s
		})
	})
}

func packedBraces(files map[string][]byte, packing string) string {
	return braces(files) + "." + packing
}

// blocks is a server of one object without ranges, which counts GETs and can cut answers.
type blocks struct {
	mu   sync.Mutex // guards the fields that follow
	data []byte
	cut  func(n int64) int // bytes of the n-th answer, from 0; -1: all
	gets int64
}

func (b *blocks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	data, end := b.data, -1
	if r.Method == http.MethodGet {
		end = b.cut(b.gets)
		b.gets++
	}
	b.mu.Unlock()
	w.Header().Set("ETag", `"1"`)
	w.Header().Set("Content-Length", fmt.Sprint(len(data)))
	if r.Method == http.MethodHead {
		return
	}
	if end < 0 {
		end = len(data)
	}
	w.Write(data[:end])
	if end < len(data) {
		panic(http.ErrAbortHandler)
	}
}

// asked returns the number of GETs so far.
func (b *blocks) asked() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gets
}

// set changes the object and the cuts.
func (b *blocks) set(data []byte, cut func(n int64) int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data, b.cut = data, cut
}

// TestStreamWhenCancelled: a read with a cancelled context fails, even if another reader's flow already has the
// bytes.
func TestStreamWhenCancelled(t *testing.T) {
	var members []string
	for i := range 40 {
		members = append(members, fmt.Sprintf("d/%03d.cls=%d", i, i), fmt.Sprintf("d/%03d.jpg=%s", i, strings.Repeat(fmt.Sprint(i), 40_000)))
	}
	web := httptest.NewServer(&blocks{data: shard(t, members...), cut: func(int64) int { return -1 }})
	defer web.Close()
	s := openRemote(t, "tar:"+web.URL+"/s.tar", source.Options{})
	_, entries, err := s.List(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, entry := range entries[1:] {
		dst := make([]byte, entry.Size)
		if err := s.Read(cancelled, entry, dst); !errors.Is(err, context.Canceled) {
			t.Fatalf("%s, cancelled: %v", entry.Name, err)
		}
		if err := s.Read(t.Context(), entry, dst); err != nil {
			t.Fatalf("%s: %v", entry.Name, err)
		}
	}
}

// TestStreamReadsOnce: a reader that goes through a shard without ranges requests it once, even if answers break off;
// then it continues where it was. Reads at random give the same bytes.
func TestStreamReadsOnce(t *testing.T) {
	var members []string
	for i := range 400 {
		members = append(members, fmt.Sprintf("d/%03d.cls=%d", i, i), fmt.Sprintf("d/%03d.jpg=%s", i, strings.Repeat(fmt.Sprint(i), 4_000)))
	}
	data := shard(t, members...)
	b := &blocks{data: data, cut: func(int64) int { return -1 }}
	srv := httptest.NewServer(b)
	defer srv.Close()
	far := openRemote(t, "tar:"+srv.URL+"/s.tar", source.Options{Kept: filepath.Join(t.TempDir(), "shards")})
	tr := newTree(t, map[string][]byte{"s.tar": data})
	near := openTar(t, tr.dir+"/s.tar", source.Options{})
	_, want, err := near.List(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, got, err := far.List(t.Context(), nil)
	if err != nil || shapeOf(got) != shapeOf(want) {
		t.Fatalf("%d samples, %v; want %d", len(got), err, len(want))
	}
	if b.asked() != 2 { // the first request shows that the store does not serve ranges
		t.Errorf("the listing took %d GETs, want 2", b.asked())
	}
	told := 0
	moving := source.WithMoved(t.Context(), func() { told++ })
	check := func(i int) {
		t.Helper()
		x, y := make([]byte, got[i].Size), make([]byte, got[i].Size)
		if err := errors.Join(near.Read(t.Context(), want[i], x), far.Read(moving, got[i], y)); err != nil || !bytes.Equal(x, y) {
			t.Fatalf("%s: %v, or other bytes", got[i].Name, err)
		}
	}
	before := b.asked()
	for i := range got {
		check(i)
	}
	if b.asked() != before+1 {
		t.Errorf("%d GETs to read all samples in their order, want 1", b.asked()-before)
	}
	if told < len(data)>>20 {
		t.Errorf("of %d bytes it was told %d times that some came", len(data), told)
	}
	// Each answer breaks off a bit later than the one before, and once earlier.
	b.set(data, func(n int64) int {
		if at := int(n-before) * (len(data) / 5); n != before+3 && at < len(data) {
			return at
		}
		return -1
	})
	before = b.asked()
	for i := range got {
		check(i)
	}
	if n := b.asked() - before; n < 2 || n > 6 {
		t.Errorf("%d GETs where answers broke off", n)
	}
	b.set(data, func(int64) int { return -1 })
	before = b.asked()
	for range 20 {
		check(rand.IntN(len(got)))
	}
	if n := b.asked() - before; n > 20 {
		t.Errorf("%d GETs for 20 samples at random", n)
	}
}

// TestStreamChanged: a shard without ranges that has changed causes an error that names it.
func TestStreamChanged(t *testing.T) {
	data := shard(t, "a.jpg="+strings.Repeat("a", 3<<20), "b.jpg="+strings.Repeat("b", 3<<20))
	b := &blocks{data: data, cut: func(int64) int { return -1 }}
	srv := httptest.NewServer(b)
	defer srv.Close()
	s := openRemote(t, "tar:"+srv.URL+"/s.tar", source.Options{})
	_, list, err := s.List(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	b.set(shard(t, "a.jpg="+strings.Repeat("a", 3<<20), "b.jpg="+strings.Repeat("c", 4<<20)), b.cut)
	if err = s.Read(t.Context(), list[1], make([]byte, list[1].Size)); !errors.Is(err, source.ErrChanged) || !strings.Contains(err.Error(), `read sample "s.tar/b": shard "s.tar": changed since ingest`) {
		t.Errorf("it changed: %v", err)
	}
}

// TestStreamManyReaders: many readers of one shard without random access, in and out of order, get the right bytes
// with a bounded number of passes.
func TestStreamManyReaders(t *testing.T) {
	var members []string
	for i := range 300 {
		members = append(members, fmt.Sprintf("%03d.jpg=%s", i, strings.Repeat(fmt.Sprint(i), 1_000)))
	}
	plain := shard(t, members...)
	tr := newTree(t, map[string][]byte{"s.tar.zst": packed(t, "zst", plain)})
	s := openTar(t, tr.dir+"/s.tar.zst", source.Options{Stream: true})
	_, list, err := s.List(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for r := range 12 {
		wg.Go(func() {
			order := rand.Perm(len(list))[:15]
			if r%2 == 0 {
				order = []int{0, 1, 2, 100, 101, 299}
			}
			for _, i := range order {
				e := list[i]
				dst := make([]byte, e.Size)
				if err := s.Read(t.Context(), e, dst); err != nil || string(dst) != strings.Repeat(fmt.Sprint(i), 1_000) {
					t.Errorf("%s: %v, or other bytes", e.Name, err)
				}
			}
		})
	}
	wg.Wait()
}

// TestStreamErrors: without --stream a compressed shard is refused. With it, a truncated or damaged one is an error
// of the listing that names it.
func TestStreamErrors(t *testing.T) {
	data := shard(t, "a.jpg="+strings.Repeat("xyz", 300_000), "b.jpg=more")
	for name, c := range map[string]struct {
		file string
		data []byte
		want string
	}{
		"cut":     {"s.tar.gz", packed(t, "gz", data)[:500], `shard "s.tar.gz" is truncated: its gzip ends too early: copy or write it again`},
		"no end":  {"s.tar.gz", packed(t, "gz", data[:len(data)-5000]), ``},
		"no gzip": {"s.tar.gz", data, `shard "s.tar.gz" is not what its name says: it is not gzip: check the pattern`},
		"no zstd": {"s.tar.zst", data, `shard "s.tar.zst" is not what its name says: it is not zstd: check the pattern`},
		"no tar":  {"s.tar.gz", packed(t, "gz", bytes.Repeat([]byte("not a tar"), 1000)), `shard "s.tar.gz" is not a tar file: check the pattern`},
		"twice":   {"s.tar.gz", packed(t, "gz", packed(t, "gz", bytes.Repeat(sourcetest.Content(1, 5000), 1))), `shard "s.tar.gz" is compressed, and samples can't be read at random in it: unpack it (gunzip) and name the .tar, or give --stream to read it once, front to back`},
		"small":   {"s.tar.gz", packed(t, "gz", []byte("x")), `shard "s.tar.gz" is truncated: it has 1 bytes, and a tar has at least 512: copy or write it again`},
		"xz":      {"s.tar.xz", data, `shard "s.tar.xz" is compressed, and samples can't be read at random in it: unpack it (unxz), and name the .tar`},
	} {
		tr := newTree(t, map[string][]byte{c.file: c.data})
		s := openTar(t, tr.dir+"/"+c.file, source.Options{Stream: true})
		_, _, err := s.List(t.Context(), nil)
		if c.want == "" {
			c.want = `shard "s.tar.gz" is truncated: it ends after its member "a.jpg": copy or write it again`
		}
		want := fmt.Sprintf("list source %q: %s", "tar:"+tr.dir+"/"+c.file, c.want)
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v\nwant %s", name, err, want)
		}
	}
	if _, err := source.Open(t.TempDir(), source.Options{Stream: true}); err == nil || !strings.HasSuffix(err.Error(), ": only shards can be packed: leave out --stream") {
		t.Errorf("a folder: %v", err)
	}
}
