package doctor

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestLook(t *testing.T) {
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
	r, err := Read(t.Context(), ReadOptions{Source: dir, Time: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
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
	r, err := Read(t.Context(), ReadOptions{Source: "tar:" + dir + "/{0..0}.tar", Time: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if r.Files != samples || r.Bytes != samples*bytes || r.Kind == "" || len(r.Readers) != 2 {
		t.Fatalf("%+v", r)
	}
	for _, got := range r.Readers {
		if got.Files == 0 || got.Bytes != got.Files*bytes || got.Failed != 0 {
			t.Errorf("%+v", got)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	dir := t.TempDir()
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
