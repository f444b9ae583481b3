package launch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"lcache/engine"
	"lcache/internal/store/cachedir"
	"lcache/internal/store/ingest"
)

// filtered is a run with a filter. It returns the opened source and the source of the result.
func filtered(t *testing.T, o Options, exts ...string) (*Opened, SourceResult) {
	t.Helper()
	o.Ingest.Exts, o.ListingGiven = exts, len(exts) > 0
	var opened *Opened
	o.Opened = func(_ int, o *Opened) { opened = o }
	r, err := Run(context.Background(), o)
	if err != nil || opened == nil {
		t.Fatalf("with %v: %+v, %v", exts, opened, err)
	}
	return opened, r.Sources[0]
}

// images replaces the files of the source by files with extensions.
func images(t *testing.T, o Options, names ...string) {
	t.Helper()
	if err := os.RemoveAll(o.Sources[0].Path); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := filepath.Join(o.Sources[0].Path, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(name), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

func (o Options) folder(exts ...string) string {
	return filepath.Join(o.Roots[0], cachedir.Folder(o.Sources[0].Path, cachedir.Listing{Exts: exts}))
}

// TestRunsShareACache: filters that remove nothing use the cache of a run without one; another filter gets its own, which names the first.
func TestRunsShareACache(t *testing.T) {
	o, _ := options(t, "true")
	images(t, o, "a/1.jpg", "a/2.png", "b/3.jpg")
	for _, c := range []struct {
		exts   []string
		dir    string
		others int
	}{
		{[]string{".jpg", ".png"}, o.folder(), 0},
		{nil, o.folder(), 0},
		{[]string{"png", "jpg"}, o.folder(), 0},
		{[]string{".jpg"}, o.folder(".jpg"), 1},
		{[]string{".jpg"}, o.folder(".jpg"), 0},
	} {
		if opened, _ := filtered(t, o, c.exts...); !slices.Equal(opened.Dirs, []string{c.dir}) || len(opened.Others) != c.others {
			t.Errorf("with %v: %+v, want %s", c.exts, opened, c.dir)
		}
	}
	if found, err := cachedir.List(o.Roots[0]); err != nil || len(found) != 2 {
		t.Errorf("%+v, %v", found, err)
	}
}

// TestRunFindsAFilteredCache: what an earlier version made under the name with the filter is used as it is.
func TestRunFindsAFilteredCache(t *testing.T) {
	o, _ := options(t, "true")
	images(t, o, "a/1.jpg")
	if _, err := ingest.Run(t.Context(), ingest.Options{Source: o.Sources[0].Path, Dirs: []string{o.folder(".jpg")}, Exts: []string{".jpg"}, IO: o.Ingest.IO}); err != nil {
		t.Fatal(err)
	}
	if opened, _ := filtered(t, o, ".jpg"); !slices.Equal(opened.Dirs, []string{o.folder(".jpg")}) {
		t.Errorf("opened %+v", opened)
	}
}

// TestRunWithAServer: run uses the server of the source's cache if the filter removes nothing. With another filter it makes a second cache.
func TestRunWithAServer(t *testing.T) {
	o, _ := options(t, "true")
	images(t, o, "a/1.jpg", "a/2.png")
	filtered(t, o)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	err := Serve(ctx, ServeOptions{Engine: engine.Options{Dirs: []string{o.folder()}, IO: o.Engine.IO}, Registry: o.Registry, Version: "test"}, func(Served) error {
		defer stop()
		if opened, _ := filtered(t, o, ".jpg", ".png"); opened.AttachedTo != os.Getpid() {
			t.Errorf("it removes nothing: %+v", opened)
		}
		if opened, s := filtered(t, o, ".jpg"); opened.AttachedTo != 0 || !slices.Equal(opened.Dirs, []string{o.folder(".jpg")}) || s.Status.Jobs[0].Samples != 1 {
			t.Errorf("it removes a file: %+v", opened)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
