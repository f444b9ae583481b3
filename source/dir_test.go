package source_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"lcache/sample"
	"lcache/source"
	"lcache/source/sourcetest"
)

// tree is a directory of a test, and the Mutator for it.
type tree struct {
	dir   string
	clock time.Time // time of the last write: each write gets a different one, whatever the kernel's clock can distinguish
}

func newTree(t testing.TB, files map[string][]byte) *tree {
	t.Helper()
	tr := &tree{dir: t.TempDir(), clock: time.Unix(1_700_000_000, 123_456_789)}
	for name, data := range files {
		if err := tr.Write(name, data); err != nil {
			t.Fatal(err)
		}
	}
	return tr
}

func (tr *tree) path(name string) string { return tr.dir + "/" + name }

func (tr *tree) Write(name string, data []byte) error {
	p := tr.path(name)
	if err := os.MkdirAll(filepath.Dir(p), 0o777); err != nil {
		return err
	}
	tr.clock = tr.clock.Add(time.Nanosecond)
	return errors.Join(os.WriteFile(p, data, 0o666), os.Chtimes(p, tr.clock, tr.clock))
}

func (tr *tree) Replace(name string, data []byte) error {
	return errors.Join(tr.Write(name+".other", data), os.Rename(tr.path(name+".other"), tr.path(name)))
}

func (tr *tree) Remove(name string) error { return os.Remove(tr.path(name)) }

func (tr *tree) open(t testing.TB, opts source.Options) source.Source {
	t.Helper()
	s, err := source.Open(tr.dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func files(names ...string) map[string][]byte {
	m := make(map[string][]byte)
	for i, n := range names {
		m[n] = sourcetest.Content(byte(i), 10+i)
	}
	return m
}

func TestDir(t *testing.T) {
	for _, jobs := range []int{1, 0, 64} {
		t.Run(fmt.Sprintf("jobs=%d", jobs), func(t *testing.T) {
			sourcetest.Run(t, func(t *testing.T, files map[string][]byte) (source.Source, sourcetest.Mutator) {
				tr := newTree(t, files)
				return tr.open(t, source.Options{Jobs: jobs}), tr
			})
		})
	}
}

func TestDirWithoutOpenat2(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T, files map[string][]byte) (source.Source, sourcetest.Mutator) {
		tr := newTree(t, files)
		s := tr.open(t, source.Options{})
		source.WithoutOpenat2(s)
		return s, tr
	})
}

func TestDirParts(t *testing.T) {
	sourcetest.RunParts(t, func(t *testing.T, files map[string][]byte) (source.Source, sourcetest.Mutator) {
		tr := newTree(t, files)
		return tr.open(t, source.Options{Group: source.GroupStem}), tr
	})
	tr := newTree(t, files("a.jpg", "a.json", "d/a.jpg", "d/a.txt", "d/b.txt"))
	for _, tt := range []struct {
		opts source.Options
		want string
	}{
		{source.Options{Flat: true}, "a=0 d/a=0 d/b=0"},
		{source.Options{Flat: true, Exts: []string{"jpg"}}, "a=0 d/a=0"},
		{source.Options{Exts: []string{"txt"}}, "d/a=0 d/b=0"},
	} {
		tt.opts.Group = source.GroupStem
		_, entries, err := tr.open(t, tt.opts).List(t.Context(), nil)
		if got := names(entries); err != nil || got != tt.want {
			t.Errorf("%+v: got %s, %v; want %s", tt.opts, got, err, tt.want)
		}
	}
	if _, err := source.Open(tr.dir, source.Options{Group: "folder"}); err == nil || !strings.Contains(err.Error(), "only by stem") {
		t.Errorf("another way to group: %v", err)
	}
}

func names(entries []sample.Entry) string {
	var list []string
	for _, e := range entries {
		list = append(list, fmt.Sprintf("%s=%d", e.Name, e.Label))
	}
	return strings.Join(list, " ")
}

func TestDirOptions(t *testing.T) {
	tr := newTree(t, files("top.jpg", "top.txt", "b/1.JPG", "b/2.txt", "a/x.jpeg", "a/deep/y.jpg", "a/jpg", ".git/z.jpg"))
	tests := []struct {
		opts source.Options
		want string
	}{
		{source.Options{}, ".git/z.jpg=0 a/jpg=1 a/x.jpeg=1 a/deep/y.jpg=1 b/1.JPG=2 b/2.txt=2"},
		{source.Options{Exts: []string{"jpg"}}, ".git/z.jpg=0 a/deep/y.jpg=1 b/1.JPG=2"},
		{source.Options{Exts: []string{".JPG", "jpeg"}}, ".git/z.jpg=0 a/x.jpeg=1 a/deep/y.jpg=1 b/1.JPG=2"},
		{source.Options{Flat: true}, "top.jpg=0 top.txt=0 .git/z.jpg=0 a/jpg=0 a/x.jpeg=0 a/deep/y.jpg=0 b/1.JPG=0 b/2.txt=0"},
		{source.Options{Flat: true, Exts: []string{"txt"}}, "top.txt=0 b/2.txt=0"},
	}
	for _, tt := range tests {
		_, entries, err := tr.open(t, tt.opts).List(t.Context(), nil)
		if got := names(entries); err != nil || got != tt.want {
			t.Errorf("%+v: %v\n got %s\nwant %s", tt.opts, err, got, tt.want)
		}
	}
}

// TestAllowEmpty: class folders without a wanted file count as classes in the labels of the others.
func TestAllowEmpty(t *testing.T) {
	tr := newTree(t, files("b/1.jpg", "c/2.txt", "d/3.jpg"))
	if err := os.MkdirAll(tr.path("a/sub"), 0o777); err != nil {
		t.Fatal(err)
	}
	classes, entries, err := tr.open(t, source.Options{AllowEmpty: true, Exts: []string{"jpg"}}).List(t.Context(), nil)
	if got := names(entries); err != nil || got != "b/1.jpg=1 d/3.jpg=3" || !slices.Equal(classes, []string{"a", "b", "c", "d"}) {
		t.Errorf("got %s with classes %v, %v", got, classes, err)
	}
	if _, _, err = tr.open(t, source.Options{AllowEmpty: true, Exts: []string{"png"}}).List(t.Context(), nil); !errors.Is(err, source.ErrEmpty) {
		t.Errorf("no sample at all: %v, want ErrEmpty", err)
	}
}

// All ways in which a listing fails. Each error is one line with a word that names the file, and a word that says
// what to do.
func TestDirListErrors(t *testing.T) {
	tests := []struct {
		name  string
		make  func(tr *tree) error
		opts  source.Options
		wants []string
	}{
		{"nothing", func(*tree) error { return nil }, source.Options{}, []string{"no samples"}},
		{"nothing of this kind", func(tr *tree) error { return tr.Write("a/x.txt", nil) }, source.Options{Flat: true, Exts: []string{"jpg"}}, []string{"no samples", ".jpg"}},
		{"empty class", func(tr *tree) error {
			return errors.Join(tr.Write("a/x", nil), os.MkdirAll(tr.path("empty/sub"), 0o777))
		}, source.Options{}, []string{`"empty"`, "torchvision", "remove the folder"}},
		{"fifo", func(tr *tree) error {
			return errors.Join(tr.Write("a/x", nil), syscall.Mkfifo(tr.path("a/pipe"), 0o666))
		}, source.Options{}, []string{`"a/pipe"`, "not a regular file", "remove it"}},
		{"link to nothing", func(tr *tree) error { return errors.Join(tr.Write("a/x", nil), os.Symlink("no", tr.path("a/l"))) }, source.Options{}, []string{`link "a/l" leads to nothing`, "bring back its target", "remove the link;"}},
		{"links to nothing", func(tr *tree) error {
			err := tr.Write("a/b/x", nil)
			for _, l := range []string{"a/4", "a/3", "a/b/2.png", "a/1", "a/b/5", "class"} {
				err = errors.Join(err, os.Symlink("../../no/file", tr.path(l)))
			}
			return err
		}, source.Options{}, []string{`6 links lead to nothing: "a/1", "a/3", "a/4", and so 3 more: `, "bring back their targets", "remove the links;"}},
		{"links to nothing that may be folders", func(tr *tree) error {
			return errors.Join(tr.Write("a/x.jpg", nil), os.Symlink("no", tr.path("a/y.txt")), os.Symlink("no", tr.path("b")), os.Symlink("no", tr.path("a/z.jpg")), os.Symlink("no", tr.path("LICENSE.md")))
		}, source.Options{Exts: []string{"jpg"}}, []string{`2 links lead to nothing: "a/z.jpg", "b": `}},
		{"link through a file", func(tr *tree) error { return errors.Join(tr.Write("a/x", nil), os.Symlink("x/y", tr.path("a/l"))) }, source.Options{}, []string{`link "a/l" leads to nothing`}},
		{"link to itself", func(tr *tree) error { return errors.Join(tr.Write("a/x", nil), os.Symlink("l", tr.path("a/l"))) }, source.Options{}, []string{`"a/l"`, "remove the link"}},
		{"loop", func(tr *tree) error { return errors.Join(tr.Write("a/b/x", nil), os.Symlink("..", tr.path("a/b/up"))) }, source.Options{}, []string{`link "a/b/up" makes a loop`, `"a"`, "remove the link"}},
		{"loop through the outside", func(tr *tree) error {
			out := filepath.Join(filepath.Dir(tr.dir), "out")
			return errors.Join(os.MkdirAll(out+"/o", 0o777), os.Symlink(tr.dir, out+"/o/back"), tr.Write("a/x", nil), os.Symlink(out, tr.path("a/out")))
		}, source.Options{}, []string{`link "a/out/o/back" makes a loop`, "the source", "remove the link"}},
		{"fifo behind a link", func(tr *tree) error {
			pipe := filepath.Join(filepath.Dir(tr.dir), "pipe")
			return errors.Join(tr.Write("a/x", nil), syscall.Mkfifo(pipe, 0o666), os.Symlink(pipe, tr.path("a/pipe")))
		}, source.Options{}, []string{`"a/pipe"`, "not a regular file"}},
		{"device behind a link", func(tr *tree) error {
			return errors.Join(tr.Write("a/x", nil), os.Symlink("/dev/tty", tr.path("a/tty")))
		}, source.Options{}, []string{`"a/tty"`, "not a regular file"}},
		{"link out", func(tr *tree) error {
			return errors.Join(tr.Write("a/x", nil), os.Symlink("../../..", tr.path("a/out")))
		}, source.Options{NoFollowLinks: true}, []string{`"a/out"`, "leaves the source"}},
		{"absolute link at the top", func(tr *tree) error { return errors.Join(tr.Write("a/x", nil), os.Symlink("/etc", tr.path("etc"))) }, source.Options{NoFollowLinks: true}, []string{`"etc"`, "leaves the source"}},
		{"4 GiB", func(tr *tree) error { return errors.Join(tr.Write("a/big", nil), os.Truncate(tr.path("a/big"), 4<<30)) }, source.Options{}, []string{`"a/big"`, "4 GiB", "split it"}},
		{"fifo in a flat source", func(tr *tree) error { return syscall.Mkfifo(tr.path("pipe"), 0o666) }, source.Options{}, []string{`"pipe"`, "not a regular file"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tr := newTree(t, nil)
			if err := tt.make(tr); err != nil {
				t.Fatal(err)
			}
			_, entries, err := tr.open(t, tt.opts).List(t.Context(), nil)
			if err == nil || entries != nil {
				t.Fatalf("List gave %d samples and error %v", len(entries), err)
			}
			for _, want := range append(tt.wants, tr.dir) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error has more than one line: %q", err)
			}
		})
	}
}

// A file next to the class folders is not a sample, so it can't make a listing fail. With --ext, neither can a file
// with another extension. A link without a target may have been a folder, unless its name has an extension.
func TestDirIgnores(t *testing.T) {
	tr := newTree(t, files("a/x.jpg", "README"))
	err := errors.Join(syscall.Mkfifo(tr.path("pipe"), 0o666), os.Symlink("no", tr.path("broken.md")), syscall.Mkfifo(tr.path("a/pipe"), 0o666), os.Symlink("no", tr.path("a/broken.txt")))
	if err != nil {
		t.Fatal(err)
	}
	classes, entries, err := tr.open(t, source.Options{Exts: []string{"jpg"}}).List(t.Context(), nil)
	if err != nil || names(entries) != "a/x.jpg=0" || len(classes) != 1 {
		t.Errorf("List: %s in %q, %v", names(entries), classes, err)
	}
}

func TestDirLinksWithin(t *testing.T) {
	tr := newTree(t, files("a/x", "b/deep/y"))
	if err := errors.Join(os.Symlink("../b/deep", tr.path("a/dir")), os.Symlink("../b/deep/y", tr.path("a/file")), os.Symlink("b", tr.path("c"))); err != nil {
		t.Fatal(err)
	}
	s := tr.open(t, source.Options{})
	_, entries, err := s.List(t.Context(), nil)
	if want := "a/file=0 a/x=0 a/dir/y=0 b/deep/y=1 c/deep/y=2"; err != nil || names(entries) != want {
		t.Fatalf("List: %v\n got %s\nwant %s", err, names(entries), want)
	}
	want, err := os.ReadFile(tr.path("b/deep/y"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		got := make([]byte, e.Size)
		if err := s.Read(t.Context(), e, got); err != nil || e.Name != "a/x" && !bytes.Equal(got, want) {
			t.Errorf("Read %q: %v", e.Name, err)
		}
	}
}

func TestDirLongNames(t *testing.T) {
	tr := newTree(t, files("short"))
	// Names of 64 KiB are too long for one system call, so the tree is made from its end: each folder is moved into a
	// new one.
	elem := strings.Repeat("d", 255)
	build := func(depth int, leaf string) string {
		if err := tr.Write("work/"+leaf, []byte("deep")); err != nil {
			t.Fatal(err)
		}
		for range depth {
			if err := errors.Join(os.Rename(tr.path("work"), tr.path(elem)), os.Mkdir(tr.path("work"), 0o777), os.Rename(tr.path(elem), tr.path("work/"+elem))); err != nil {
				t.Fatal(err)
			}
		}
		return "work/" + strings.Repeat(elem+"/", depth) + leaf
	}
	name := build(255, strings.Repeat("f", 200))
	s := tr.open(t, source.Options{Flat: true})
	_, entries, err := s.List(t.Context(), nil)
	if err != nil || len(entries) != 2 || entries[1].Name != name {
		t.Fatalf("List with a name of %d bytes: %d samples, %v", len(name), len(entries), err)
	}
	dst := make([]byte, 4)
	if err := s.Read(t.Context(), entries[1], dst); err != nil || string(dst) != "deep" {
		t.Errorf("Read of a name of %d bytes: %q, %v", len(name), dst, err)
	}
	if err := os.Rename(tr.path("work"), tr.path(strings.Repeat("w", 255))); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(tr.path("work"), 0o777), os.Rename(tr.path(strings.Repeat("w", 255)), tr.path("work/"+strings.Repeat("w", 255)))); err != nil {
		t.Fatal(err)
	}
	_, _, err = s.List(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "at most 65536") || len(err.Error()) > 1000 {
		t.Errorf("List with a name over 64 KiB: %.300v", err)
	}
}

func TestOpenErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := errors.Join(os.WriteFile(file, nil, 0o666), syscall.Mkfifo(file+".pipe", 0o666)); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		src  string
		opts source.Options
		want string
	}{
		{"tar:ftp://bucket/x-{000..9}.tar", source.Options{}, "ftp:// is unknown"},
		{"gs://bucket", source.Options{}, "gs:// is unknown"},
		{"", source.Options{}, "empty"},
		{file, source.Options{}, "it is a file: give a folder that has a file for each sample"},
		{file + ".pipe", source.Options{}, "not a directory"},
		{file + "/x", source.Options{}, "not a directory"},
		{file + ".no", source.Options{}, "check its path"},
		{"nul\x00", source.Options{}, "invalid argument"},
		{filepath.Dir(file), source.Options{Exts: []string{""}}, "extension"},
		{filepath.Dir(file), source.Options{Part: "jpg"}, "leave out --part"},
		{filepath.Dir(file), source.Options{Exts: []string{"a/b"}}, "extension"},
	}
	for _, tt := range tests {
		s, err := source.Open(tt.src, tt.opts)
		if err == nil {
			s.Close()
			t.Errorf("Open %q gave no error", tt.src)
		} else if !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Open %q: %v, want %q", tt.src, err, tt.want)
		}
	}
}

func TestString(t *testing.T) {
	tr := newTree(t, files("x"))
	s, err := source.Open(tr.dir+"//./", source.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.String() != tr.dir {
		t.Errorf("String is %q, want %q", s.String(), tr.dir)
	}
}
