package source_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lcache/source"
)

// TestDifference runs the same cases as the Python client's rule.
func TestDifference(t *testing.T) {
	b, err := os.ReadFile("../testdata/listings.json")
	if err != nil {
		t.Fatal(err)
	}
	type flags struct { // Part is for the requested filter, FirstPart for the cache's
		Ext    []string
		Flat   bool
		Group  string
		Labels string

		Part      string
		FirstPart string `json:"first_part"`

		Records     [][2]string        // of the requested flags of a source of records; RecordFlags is for the cache's
		RecordFlags source.RecordFlags `json:"record_flags"`
	}
	var golden struct {
		Cases []struct {
			Why         string
			Named, Made flags
			Files       source.Counts
			Same        bool
		}
	}
	if err := json.Unmarshal(b, &golden); err != nil || len(golden.Cases) < 10 {
		t.Fatalf("%d cases: %v", len(golden.Cases), err)
	}
	options := func(f flags) source.Options {
		for _, r := range f.Records {
			if f.RecordFlags == nil {
				f.RecordFlags = source.RecordFlags{}
			}
			f.RecordFlags[r[0]] = r[1]
		}
		return source.Options{Records: f.RecordFlags, Exts: f.Ext, Flat: f.Flat, Group: f.Group, Labels: f.Labels, Part: f.Part + f.FirstPart}
	}
	for _, c := range golden.Cases {
		if differ := options(c.Named).Difference(options(c.Made), c.Files); (differ == "") != c.Same {
			t.Errorf("%s: differs in %q, want the same: %v", c.Why, differ, c.Same)
		}
	}
}

func TestDifferenceNamesBoth(t *testing.T) {
	named := source.Options{Exts: []string{".jpg"}, Group: source.GroupStem, Labels: "/a.csv"}
	got := named.Difference(source.Options{Flat: true}, nil)
	if want := "ext of any kind, not .jpg; flat true, not false; group none, not stem; labels of the folders, not /a.csv"; got != want {
		t.Errorf("got %s", got)
	}
}

// TestSame: a directory is the same under every name, and differs from all others.
func TestSame(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("a", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{dir + "/a", dir + "/a/", true}, {dir + "/a", dir + "/link", true}, {dir + "/a", dir + "/b", false}, {dir + "/a", dir + "/gone", false},
		{dir + "/gone", dir + "/gone", true}, {"s3://b/a", "s3://b/a", true}, {"s3://b/a", "s3://b/c", false}, {"s3://b/a", dir + "/a", false},
	} {
		if got := source.Same(c.a, c.b); got != c.same {
			t.Errorf("%s and %s: the same is %v", c.a, c.b, got)
		}
	}
	s, err := source.Open(dir+"/link", source.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if id, err := source.Identity(dir + "/a"); err != nil || id != s.Identity() || !strings.Contains(id, ":") {
		t.Errorf("identity %q, of the open one %q: %v", id, s.Identity(), err)
	}
}

func TestExtension(t *testing.T) {
	for name, want := range map[string]string{"a/b.JPG": ".jpg", "a.b/c": "", "a": "", "x.tar.gz": ".gz", ".hidden": ".hidden", "a.": "."} {
		if got := source.Extension(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
