package doctor

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lcache/internal/store/cachedir"
)

func TestReevaluate(t *testing.T) {
	dir := t.TempDir()
	f, err := Look(t.Context(), Options{Dirs: []string{dir, filepath.Join(dir, "not/there")}, Engine: os.Getenv("LCACHE_IO"), NoDevice: true})
	if err != nil {
		t.Fatal(err)
	}
	if f.CPUs < 1 || f.Kernel == "" || f.Memory.Total == 0 || f.Ring.Engine == "" || f.Ring.Reason == "" || len(f.Places) != 2 {
		t.Errorf("%+v", f)
	}
	for i, p := range f.Places {
		if p.Seen != dir || p.ID == 0 || p.Kind == "" || p.Size == 0 || p.NoWrite != "" || p.Direct && (p.OffAlign < 1 || p.MemAlign < 1) || p.Device != nil {
			t.Errorf("place %d: %+v", i, p)
		}
	}
	if n := len(f.Checks()); n != 4+2*4+1 {
		t.Errorf("%d checks", n)
	}
	mustBeEmpty(t, dir)
}

func TestLookEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Look(ctx, Options{Dirs: []string{t.TempDir()}}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestLookAtReadOnly(t *testing.T) {
	p := lookAtPlace(os.DirFS("/"), "/proc/self")
	if p.NoWrite == "" || p.wrong() == "" || p.Direct {
		t.Errorf("%+v", p)
	}
}

// readSome reads a source for so long that all numbers of readers get something, however busy the machine is.
func readSome(t *testing.T, src string) *Reading {
	t.Helper()
	for length := 300 * time.Millisecond; ; length *= 2 {
		r, err := Read(t.Context(), ReadOptions{Source: src, Time: length})
		if isLate(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(r.Readers, func(r Reader) bool { return r.Files == 0 }) {
			return r
		}
	}
}

func isLate(err error) bool {
	return err != nil && strings.Contains(err.Error(), "too many files to list")
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	const files, bytes = 40, 3000
	for i := range files {
		path := filepath.Join(dir, fmt.Sprintf("c%d/%d", i%2, i))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, bytes), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := readSome(t, dir)
	if r.Files != files || r.Bytes != files*bytes || r.Source != dir || len(r.Readers) != 2 {
		t.Fatalf("%+v", r)
	}
	for i, readers := range []int{1, 32} {
		if got := r.Readers[i]; got.Readers != readers || got.Files == 0 || got.Bytes != got.Files*bytes || got.Failed != 0 || got.Seconds <= 0 {
			t.Errorf("%d readers: %+v", readers, got)
		}
	}
}

func TestReadShards(t *testing.T) {
	dir := t.TempDir()
	const samples, bytes = 10, 3000
	var b strings.Builder
	w := tar.NewWriter(&b)
	for i := range samples {
		for _, part := range []string{"jpg", "txt"} {
			if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%d.%s", i, part), Size: bytes / 2, Mode: 0o644}); err != nil {
				t.Fatal(err)
			}
			w.Write(make([]byte, bytes/2))
		}
	}
	if err := errors.Join(w.Close(), os.WriteFile(filepath.Join(dir, "0.tar"), []byte(b.String()), 0o644)); err != nil {
		t.Fatal(err)
	}
	r := readSome(t, "tar:"+dir+"/{0..0}.tar")
	if r.Files != samples || r.Bytes != samples*bytes || r.Kind == "" || len(r.Readers) != 2 {
		t.Fatalf("%+v", r)
	}
	for _, got := range r.Readers {
		if got.Files == 0 || got.Bytes != got.Files*bytes || got.Failed != 0 {
			t.Errorf("%+v", got)
		}
	}
}

func TestReadOverANetwork(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/LIST":
			fmt.Fprint(w, "a\t3000\nb\t1000\n")
		case "/denied":
			fmt.Fprint(w, "x\t3000\n")
		case "/a":
			w.Write(make([]byte, 3000))
		case "/b":
			w.Write(make([]byte, 1000))
		default:
			http.Error(w, "no", http.StatusForbidden)
		}
	}))
	defer srv.Close()
	r := readSome(t, srv.URL+"/LIST")
	if r.Files != 2 || r.Bytes != 4000 || r.Kind != "HTTP" || r.Nature != cachedir.Network || len(r.Readers) != 2 || r.Readers[1].Failed != 0 {
		t.Errorf("%+v", r)
	}
	src := srv.URL + "/denied"
	want := "none of the files in " + src + " that were tried could be read: read sample \"x\": " + strings.TrimPrefix(srv.URL, "http://") + " answers 403: lcache reads only public files from a web server"
	for length := 300 * time.Millisecond; ; length *= 2 {
		r, err := Read(t.Context(), ReadOptions{Source: src, Time: length})
		if isLate(err) || err == nil && r.Readers[0].Failed == 0 {
			continue // nothing was read so far
		}
		if err == nil || err.Error() != want {
			t.Errorf("%v\nwant %s", err, want)
		}
		break
	}
}

func TestReadRefuses(t *testing.T) {
	dir := t.TempDir()
	measured := Options{Dirs: []string{dir}, Progress: func(stage string) { t.Errorf("%s, before the source was opened", stage) }}
	if _, err := Examine(t.Context(), measured, ReadOptions{Source: filepath.Join(dir, "none")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a source that is missing: %v", err)
	}
	if _, err := Read(t.Context(), ReadOptions{Source: filepath.Join(dir, "none")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
	if _, err := Read(t.Context(), ReadOptions{Source: dir}); err == nil {
		t.Error("an empty folder was read")
	}
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Read(ctx, ReadOptions{Source: dir}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
