package ingest_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/gzip"

	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/source"
)

// noRanges is a web server of files without ranges, which counts the GETs for each.
type noRanges struct {
	files map[string][]byte
	hold  func(name string, n int) // called before the n-th GET of a file is answered, from 1

	mu   sync.Mutex // guards the field that follows
	gets map[string]int
}

func (s *noRanges) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	data, ok := s.files[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Last-Modified", "Tue, 14 Nov 2023 22:13:20 GMT")
	w.Header().Set("Content-Length", fmt.Sprint(len(data)))
	if r.Method == http.MethodHead {
		return
	}
	s.mu.Lock()
	s.gets[name]++
	n := s.gets[name]
	s.mu.Unlock()
	if s.hold != nil {
		s.hold(name, n)
	}
	w.Write(data)
}

// taken gives the counts of GETs, and forgets them.
func (s *noRanges) taken() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.gets = map[string]int{} }()
	return s.gets
}

func serveWithoutRanges(t *testing.T, files map[string][]byte) (*noRanges, string) {
	t.Helper()
	s := &noRanges{files: files, gets: map[string]int{}}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return s, "tar:" + srv.URL + "/"
}

func gzipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(data)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// verified compares a whole cache with its source, byte for byte.
func verified(t *testing.T, dir, src string, samples int) {
	t.Helper()
	r, err := cache.Verify(t.Context(), cache.VerifyOptions{Dirs: []string{dir}, Against: src})
	if err != nil || r.Good != samples || r.Different+r.Uncompared+r.Missing+r.Corrupt > 0 {
		t.Errorf("%s against %s: %+v, %v", dir, src, r, err)
	}
}

// TestShardsWithoutRanges: shards of a server without ranges are read twice, each time from front to back: for their
// indexes, and for their samples. The cost line says so before. Later only changed shards are read again.
func TestShardsWithoutRanges(t *testing.T) {
	files, total := map[string][]byte{}, int64(0)
	for i := range 4 {
		b := tarOf(t, byte(40*i), 60, 100_000) // two pieces each
		files[fmt.Sprintf("t-%d.tar", i)], total = b, total+int64(len(b))
	}
	web, url := serveWithoutRanges(t, files)
	src, dir := url+"t-{0..3}.tar", filepath.Join(t.TempDir(), "cache")
	var costs []ingest.Cost
	o := ingest.Options{Source: src, Dirs: []string{dir}, Cost: func(c ingest.Cost) { costs = append(costs, c) }}
	r, err := ingest.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	want := ingest.Cost{Listed: 5, Shards: 4, Bytes: total, Index: 4, Gets: 4}
	if len(costs) != 1 || costs[0] != want || r.StoredSamples != 240 || r.Remote.Requests != want.Listed+want.Index+want.Gets {
		t.Errorf("told %+v, want %+v; asked %+v, stored %d", costs, want, r.Remote, r.StoredSamples)
	}
	if got := fmt.Sprint(web.taken()); got != "map[t-0.tar:3 t-1.tar:2 t-2.tar:2 t-3.tar:2]" { // the first request shows that the server has no ranges
		t.Errorf("GETs: %s", got)
	}
	verified(t, dir, src, 240)
	if got := fmt.Sprint(web.taken()); got != "map[t-0.tar:1 t-1.tar:1 t-2.tar:1 t-3.tar:1]" {
		t.Errorf("GETs of verify: %s", got)
	}
	files["t-2.tar"] = tarOf(t, 7, 61, 100_000)
	if r, err = ingest.Run(t.Context(), o); err != nil || r.ReadSamples != 61 || r.StoredSamples != 241 {
		t.Errorf("one shard has changed: %+v, %v", r, err)
	}
	if got := fmt.Sprint(web.taken()); got != "map[t-0.tar:1 t-2.tar:2]" {
		t.Errorf("GETs when one has changed: %s", got)
	}
}

// TestStreamsGoOn: an interrupted ingest of shards without random access continues. No shard that was read completely
// is read again.
func TestStreamsGoOn(t *testing.T) {
	files := map[string][]byte{}
	for i := range 6 {
		files[fmt.Sprintf("t-%d.tar.gz", i)] = gzipped(t, tarOf(t, byte(40*i), 40, 50_000))
	}
	web, url := serveWithoutRanges(t, files)
	src, dir := url+"t-{0..5}.tar.gz", filepath.Join(t.TempDir(), "cache")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stuck := make(chan struct{})
	web.hold = func(name string, n int) {
		if name == "t-3.tar.gz" && n == 2 { // to read its samples
			<-stuck
		}
	}
	o := ingest.Options{Source: src, Dirs: []string{dir}, Stream: true, Jobs: 1}
	o.Progress = func(p cache.Progress) {
		if p.Samples == 3*40 {
			cancel()
		}
	}
	if _, err := ingest.Run(ctx, o); err == nil {
		t.Fatal("it was not broken off")
	}
	close(stuck)
	web.taken()
	o.Stream, o.Progress = false, nil // the settings of the first ingest are stored
	r, err := ingest.Run(t.Context(), o)
	if err != nil || r.StoredSamples != 240 || r.Already+r.ReadSamples != 240 || r.Already < 80 {
		t.Fatalf("%+v, %v", r, err)
	}
	gets := web.taken()
	for i, most := range []int{0, 0, 1, 1, 1, 1} { // the first request shows that the server has no ranges
		name := fmt.Sprintf("t-%d.tar.gz", i)
		if n := gets[name]; i == 0 && n > 1 || i > 0 && n > most {
			t.Errorf("%d requests for %s", n, name)
		}
	}
	verified(t, dir, src, 240)
}

// TestStreamsHeldByTheBudget: an ingest of shards without random access is an error if the budget does not hold all
// of their samples. An existing cache stays. Other shards may take less.
func TestStreamsHeldByTheBudget(t *testing.T) {
	tr := t.TempDir()
	plain := tarOf(t, 3, 400, 100_000)
	for name, data := range map[string][]byte{"s.tar": plain, "s.tar.gz": gzipped(t, plain)} {
		if err := os.WriteFile(filepath.Join(tr, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	src, dir := "tar:"+tr+"/s.tar.gz", filepath.Join(t.TempDir(), "cache")
	o := ingest.Options{Source: src, Dirs: []string{dir}, Stream: true, Budget: 30 << 20, NoPrefill: true}
	_, err := ingest.Run(t.Context(), o)
	want := " of 400 samples, and 1 of 1 shard can only be read front to back, so the missing samples can't be read later: give --budget "
	if err == nil || !strings.HasPrefix(err.Error(), "budget of 32 MB holds ") && !strings.HasPrefix(err.Error(), "budget of 31 MB holds ") || !strings.Contains(err.Error(), want) {
		t.Errorf("%v\nwant …%s…", err, want)
	}
	o.Budget = 0
	r, err := ingest.Run(t.Context(), o) // also if the first epoch would read it
	if err != nil || r.StoredSamples != 400 {
		t.Fatalf("%+v, %v", r, err)
	}
	verified(t, dir, src, 400)
	o.Budget = 30 << 20
	if _, err := ingest.Run(t.Context(), o); err == nil {
		t.Error("a smaller budget was taken")
	}
	verified(t, dir, src, 400)
	other := ingest.Options{Source: "tar:" + tr + "/s.tar", Dirs: []string{filepath.Join(t.TempDir(), "cache")}, Budget: 30 << 20}
	if r, err := ingest.Run(t.Context(), other); err != nil || r.StoredSamples >= 400 {
		t.Errorf("with random access: %+v, %v", r, err)
	}
}

// TestEmptySamplesOfStreams: empty samples need no room, so the default budget holds shards that have some.
func TestEmptySamplesOfStreams(t *testing.T) {
	tr := t.TempDir()
	for name, size := range map[string]int{"some.tar.gz": 5000, "none.tar.gz": 0} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for i := range 20 {
			n := size * (i % 4)
			w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%02d.bin", i), Mode: 0o600, Size: int64(n)})
			w.Write(bytes.Repeat([]byte{byte(i)}, n))
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(tr, name), gzipped(t, b.Bytes()), 0o600); err != nil {
			t.Fatal(err)
		}
		src, dir := "tar:"+tr+"/"+name, filepath.Join(t.TempDir(), "cache")
		for range 2 { // the second one takes the cache that the first one made
			if _, err := ingest.Run(t.Context(), ingest.Options{Source: src, Dirs: []string{dir}, Stream: true}); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		verified(t, dir, src, 20)
	}
}

// TestPackedAsPlain: a cache of compressed shards has the same samples, labels and bytes as one of the same shards
// uncompressed. lz4 is tried on them too.
func TestPackedAsPlain(t *testing.T) {
	tr := t.TempDir()
	for i := range 3 {
		plain := tarOf(t, byte(50*i), 30, 20_000)
		for name, data := range map[string][]byte{fmt.Sprintf("s-%d.tar", i): plain, fmt.Sprintf("p-%d.tar.gz", i): gzipped(t, plain)} {
			if err := os.WriteFile(filepath.Join(tr, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	sums := func(src string, stream bool, compress string) (list []string) {
		t.Helper()
		dir := filepath.Join(t.TempDir(), "cache")
		if r, err := ingest.Run(t.Context(), ingest.Options{Source: src, Dirs: []string{dir}, Stream: stream, Compress: compress}); err != nil || r.StoredSamples != 90 {
			t.Fatalf("%+v, %v", r, err)
		}
		s, err := source.Open(src, source.Options{Stream: stream})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		_, entries, err := s.List(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			b := make([]byte, e.Size)
			if err := s.Read(t.Context(), e, b); err != nil {
				t.Fatal(err)
			}
			list = append(list, fmt.Sprintf("%s %d %x", e.Name[strings.LastIndexByte(e.Name, '/'):], e.Label, b[:40]))
		}
		verified(t, dir, src, 90)
		return list
	}
	want := sums("tar:"+tr+"/s-{0..2}.tar", false, "none")
	for _, compress := range []string{"none", "lz4"} {
		if got := sums("tar:"+tr+"/p-{0..2}.tar.gz", true, compress); !slices.Equal(got, want) {
			t.Errorf("compressed shards give other samples with --compress %s", compress)
		}
	}
}
