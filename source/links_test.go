package source_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lcache/sample"
	"lcache/source"
	"lcache/source/sourcetest"
)

// linked returns a source with links to a folder outside it.
func linked(t testing.TB, in, out map[string][]byte, links map[string]string) (in1, out1 *tree) {
	t.Helper()
	in1, out1 = newTree(t, in), newTree(t, out)
	for name, target := range links {
		relink(t, in1, strings.ReplaceAll(target, "OUT", out1.dir), name)
	}
	return in1, out1
}

// relink is like ln -sfn.
func relink(t testing.TB, tr *tree, target, name string) {
	t.Helper()
	p := tr.path(name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o777), os.Symlink(target, p+".new"), os.Rename(p+".new", p)); err != nil {
		t.Fatal(err)
	}
}

func listed(t testing.TB, s source.Source) []sample.Entry {
	t.Helper()
	_, entries, err := s.List(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// TestLinks has layouts that people use. The order is that of sorted(os.walk(class, followlinks=True)).
func TestLinks(t *testing.T) {
	for _, c := range []struct {
		name    string
		in, out []string
		links   map[string]string
		opts    source.Options
		want    string
		outside int
	}{
		{"class folders", []string{"b/1"}, []string{"x/1", "x/d/2"}, map[string]string{"a": "OUT/x", "c": "b"}, source.Options{}, "a/1=0 a/d/2=0 b/1=1 c/1=2", 2},
		{"all classes", nil, []string{"x/1", "y/2"}, map[string]string{"a": "OUT/y", "b": "OUT/x"}, source.Options{}, "a/2=0 b/1=1", 2},
		{"files", []string{"a/0", "b/9"}, []string{"blob"}, map[string]string{"a/1": "OUT/blob", "b/2": "../a/0"}, source.Options{}, "a/0=0 a/1=0 b/2=1 b/9=1", 1},
		{"hidden", []string{"a/0"}, []string{".h/x", ".f"}, map[string]string{"a/.d": "OUT/.h", "a/.f": "OUT/.f"}, source.Options{}, "a/.f=0 a/0=0 a/.d/x=0", 2},
		{"diamond", []string{"a/d/1"}, nil, map[string]string{"a/e": "d", "b": "a/d", "a/f": "d/1"}, source.Options{}, "a/f=0 a/d/1=0 a/e/1=0 b/1=1", 0},
		{"links to links", []string{"a/0"}, []string{"x"}, map[string]string{"a/1": "2", "a/2": "../k", "k": "OUT/x"}, source.Options{}, "a/0=0 a/1=0 a/2=0", 2},
		{"back into the source", []string{"a/0"}, nil, map[string]string{"a/1": "../../001/a/0"}, source.Options{}, "a/0=0 a/1=0", 1},
		{"extensions", []string{"a/0.jpg"}, []string{"b1", "x/2.jpg", "x/2.txt"}, map[string]string{"a/1.jpg": "OUT/b1", "a/d.jpg": "OUT/x", "a/r.txt": "OUT/b1"}, source.Options{Exts: []string{"jpg"}}, "a/0.jpg=0 a/1.jpg=0 a/d.jpg/2.jpg=0", 2},
		{"flat", nil, []string{"b1", "b2"}, map[string]string{"1": "OUT/b1", "d/2": "OUT/b2"}, source.Options{Flat: true}, "1=0 d/2=0", 2},
		{"group", []string{"a/1.txt"}, []string{"b1", "b2", "b3"}, map[string]string{"a/1.jpg": "OUT/b1", "a/2.jpg": "OUT/b2", "a/2.txt": "OUT/b3"}, source.Options{Group: source.GroupStem}, "a/1=0 a/2=0", 2},
		{"files outside classes", []string{"a/0"}, []string{"r"}, map[string]string{"README": "OUT/r"}, source.Options{}, "a/0=0", 0},
	} {
		for _, without := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				tr, _ := linked(t, files(c.in...), files(c.out...), c.links)
				s := tr.open(t, c.opts)
				if without {
					source.WithoutOpenat2(s)
				}
				l, _ := relist(t, s, nil, nil)
				if got := names(l.Entries); got != c.want || l.Outside != c.outside {
					t.Fatalf("%d outside\n got %s\nwant %s and %d", l.Outside, got, c.want, c.outside)
				}
				for _, e := range l.Entries {
					got := make([]byte, e.Size)
					err := s.Read(t.Context(), e, got)
					if want, readErr := os.ReadFile(tr.path(e.Name)); err != nil || e.Parts == nil && (readErr != nil || !bytes.Equal(got, want)) {
						t.Errorf("Read %q: %v, %v", e.Name, err, readErr)
					}
				}
				strict := c.opts
				strict.NoFollowLinks = true
				if _, _, err := tr.open(t, strict).List(t.Context(), nil); c.outside > 0 && (err == nil || !strings.Contains(err.Error(), "leaves the source")) || c.outside == 0 && c.name != "files outside classes" && err != nil {
					t.Errorf("without links that leave: %v", err)
				}
			})
		}
	}
}

// TestLinksLongNames: a path with a link that is too long for one system call.
func TestLinksLongNames(t *testing.T) {
	elem := strings.Repeat("d", 250)
	tr, out := linked(t, files("a/0"), files("x"), nil)
	if err := out.Write("deep/leaf", []byte("deep")); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if err := errors.Join(os.Rename(out.path("deep"), out.path(elem)), os.Mkdir(out.path("deep"), 0o777), os.Rename(out.path(elem), out.path("deep/"+elem))); err != nil {
			t.Fatal(err)
		}
	}
	relink(t, tr, out.path("deep"), "b")
	s := tr.open(t, source.Options{})
	entries, dst := listed(t, s), make([]byte, 4)
	if e := entries[len(entries)-1]; len(e.Name) < 5000 || s.Read(t.Context(), e, dst) != nil || string(dst) != "deep" {
		t.Errorf("a name of %d bytes: %q", len(e.Name), dst)
	}
}

// retarget has the ways in which a link can come to lead to another file of the same size and time.
var retarget = []struct {
	name string
	do   func(t *testing.T, in, out *tree)
}{
	{"link set to another file", func(t *testing.T, in, out *tree) { relink(t, in, out.path("v2/x"), "a/file") }},
	{"link set to another folder", func(t *testing.T, in, out *tree) { relink(t, in, out.path("v2"), "b") }},
	{"link on the way", func(t *testing.T, in, out *tree) { relink(t, out, "v2", "now") }},
	{"file replaced", func(t *testing.T, in, out *tree) {
		if err := os.Rename(out.path("v2/x"), out.path("v1/x")); err != nil {
			t.Fatal(err)
		}
	}},
	{"folder replaced", func(t *testing.T, in, out *tree) {
		if err := errors.Join(os.Rename(out.path("v1"), out.path("v0")), os.Rename(out.path("v2"), out.path("v1"))); err != nil {
			t.Fatal(err)
		}
	}},
	{"link replaced by a file", func(t *testing.T, in, out *tree) {
		if err := errors.Join(os.Remove(in.path("a/file")), os.Link(out.path("v2/x"), in.path("a/file"))); err != nil {
			t.Fatal(err)
		}
	}},
	{"file replaced by a link", func(t *testing.T, in, out *tree) { relink(t, in, out.path("v2/x"), "a/plain") }},
}

// versions makes two folders that differ only in the bytes of their files, and a source with links to the first.
func versions(t *testing.T) (in, out *tree) {
	in, out = linked(t, nil, nil, nil)
	at := time.Unix(1_600_000_000, 0)
	for _, name := range []string{"v1/x", "v2/x", "a/plain"} {
		tr := out
		if name == "a/plain" {
			tr = in
		}
		if err := errors.Join(tr.Write(name, []byte(name[:2])), os.Chtimes(tr.path(name), at, at)); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range []string{"v1", "v2"} { // like cp -a
		if err := os.Chtimes(out.path(v), at, at); err != nil {
			t.Fatal(err)
		}
	}
	relink(t, out, "v1", "now")
	relink(t, in, out.path("v1/x"), "a/file")
	relink(t, in, out.path("now/x"), "a/chain.1")
	relink(t, in, out.path("now"), "a/dir")
	relink(t, in, out.path("v1"), "b")
	return in, out
}

// TestLinksVersion: a link to another file of the same size and time is a change, for a read and for the next
// listing.
func TestLinksVersion(t *testing.T) {
	old := source.SetSettled(-time.Hour)
	defer source.SetSettled(old)
	for _, c := range retarget {
		for _, opts := range []source.Options{{}, {Flat: true}, {Group: source.GroupStem}} {
			for _, without := range []bool{false, true} {
				t.Run(c.name, func(t *testing.T) {
					in, out := versions(t)
					s := in.open(t, opts)
					if without {
						source.WithoutOpenat2(s)
					}
					first, _ := relist(t, s, nil, nil)
					bytesOf := map[string]string{}
					for _, e := range first.Entries {
						got, err := os.ReadFile(in.path(e.Name))
						if e.Parts != nil && e.Parts[0].Ext != "" {
							got, err = os.ReadFile(in.path(e.Name + "." + e.Parts[0].Ext))
						}
						if err != nil {
							t.Fatal(err)
						}
						bytesOf[e.Name] = string(got)
					}
					if again, _ := relist(t, s, first, first.Entries); !again.Same {
						t.Error("nothing changed, and the listing is another one")
					}
					c.do(t, in, out)
					changed := 0
					for _, e := range first.Entries {
						got := make([]byte, e.Size)
						switch err := s.Read(t.Context(), e, got); {
						case errors.Is(err, source.ErrChanged):
							changed++
						case err != nil || string(got) != bytesOf[e.Name]:
							t.Errorf("Read %q: %q, %v", e.Name, got, err)
						}
					}
					if changed == 0 {
						t.Error("no read noticed")
					}
					second, _ := relist(t, s, first, first.Entries)
					if whole := listed(t, s); second.Same || !reflect.DeepEqual(second.Entries, whole) {
						t.Errorf("listed again: the same %v\n got %v\nwant %v", second.Same, second.Entries, whole)
					}
					differ := 0
					for i, e := range second.Entries {
						if e.Version != first.Entries[i].Version {
							differ++
						}
						if err := s.Read(t.Context(), e, make([]byte, e.Size)); err != nil {
							t.Errorf("Read %q after listing again: %v", e.Name, err)
						}
					}
					if differ != changed {
						t.Errorf("%d samples have another version, reads found %d changed", differ, changed)
					}
				})
			}
		}
	}
}

// TestLinksNumbering: on file systems where inodes prove nothing, a sample is the same as long as its size and time
// are.
func TestLinksNumbering(t *testing.T) {
	in, out := versions(t)
	var st unix.Statfs_t
	if err := unix.Statfs(out.dir, &st); err != nil {
		t.Fatal(err)
	}
	defer source.SetNumbering(source.SetNumbering([]int64{int64(st.Type)}))
	s := in.open(t, source.Options{})
	first := listed(t, s)
	relink(t, out, "v2", "now")
	relink(t, in, out.path("v2/x"), "a/file")
	for i, e := range listed(t, s) {
		if err := s.Read(t.Context(), first[i], make([]byte, e.Size)); err != nil || e.Version != first[i].Version {
			t.Errorf("%q: version %d, %d before; %v", e.Name, e.Version, first[i].Version, err)
		}
	}
	relink(t, in, out.path("later"), "a/file")
	if err := out.Write("later", []byte("v1")); err != nil {
		t.Fatal(err)
	}
	if again := listed(t, s); again[1].Name != "a/file" || again[1].Version == first[1].Version {
		t.Errorf("another time: %v, %v before", again[1], first[1])
	}
}

// TestLinksRelist: a change behind a link is found by a listing that skips unchanged folders.
func TestLinksRelist(t *testing.T) {
	old := source.SetSettled(-time.Hour)
	defer source.SetSettled(old)
	in, out := linked(t, files("a/0", "b/1", "b/n/o/5"), files("f", "g", "d/2", "e/3"), map[string]string{"a/f": "OUT/f", "a/k": "OUT/k", "c": "OUT/d", "b/d": "OUT/d"})
	relink(t, out, "g", "k")
	s := in.open(t, source.Options{})
	last, _ := relist(t, s, nil, nil)
	entries := last.Entries
	const same = "to the same folder, by another way"
	for _, step := range []struct {
		name   string
		change func() error
	}{
		{"edited in place", func() error { return out.Write("f", []byte("other")) }},
		{"grown", func() error { return out.Write("g", []byte("much more of it")) }},
		{"a file more", func() error {
			return errors.Join(out.Write("d/4", nil), os.Chtimes(out.path("d"), out.clock, out.clock))
		}},
		{"the link on the way leads to a folder", func() error { return errors.Join(os.Remove(out.path("k")), os.Symlink("e", out.path("k"))) }},
		{same, func() error {
			return errors.Join(os.Symlink("e", out.path("l")), os.Remove(out.path("k")), os.Symlink("l", out.path("k")))
		}},
		{"to a file again", func() error { return errors.Join(os.Remove(out.path("k")), os.Symlink("g", out.path("k"))) }},
		{"a folder with folders moved out, a link in its place", func() error {
			return errors.Join(os.Rename(in.path("b/n"), out.path("n")), os.Symlink(out.path("n"), in.path("b/n")))
		}},
		{"a folder moved into the source, a link in its place", func() error {
			return errors.Join(os.Rename(out.path("d"), in.path("z")), os.Symlink(in.path("z"), out.path("d")))
		}},
	} {
		if err := step.change(); err != nil {
			t.Fatal(err)
		}
		want := listed(t, s)
		l, _ := relist(t, s, last, entries)
		if l.Same {
			l.Entries = entries
		}
		if l.Same != (step.name == same) || !reflect.DeepEqual(l.Entries, want) {
			t.Errorf("%s: the same %v\n got %v\nwant %v", step.name, l.Same, l.Entries, want)
		}
		if again, _ := relist(t, s, l, l.Entries); !again.Same || again.Outside != l.Outside {
			t.Errorf("%s: not the same afterwards, or %d outside instead of %d", step.name, again.Outside, l.Outside)
		}
		last, entries = l, want
	}
	if err := errors.Join(os.Remove(out.path("k")), os.Symlink("nothing", out.path("k"))); err != nil {
		t.Fatal(err)
	}
	b := &source.Before{Folders: last.Folders, Entries: func() ([]sample.Entry, error) { return entries, nil }}
	if _, err := source.Relist(t.Context(), s, b, nil); err == nil || !strings.Contains(err.Error(), `link "a/k" leads to nothing`) {
		t.Errorf("a link to nothing by now: %v", err)
	}
}

// TestLinksPlanted: a read through a link returns only the listed file, and never waits.
func TestLinksPlanted(t *testing.T) {
	for _, c := range []struct{ target, want string }{
		{"/dev/null", "not a regular file"},
		{"OUT/pipe", "not a regular file"},
		{"OUT", "not a regular file"},
		{"OUT/no", "gone from the source"},
		{"x", "remove the link"},
		{"../../../../../../../etc/passwd", "changed since ingest"},
		{"OUT/other", "changed since ingest"},
	} {
		for _, without := range []bool{false, true} {
			in, out := linked(t, nil, files("blob", "other"), map[string]string{"a/x": "OUT/blob"})
			data := sourcetest.Content(0, 10)
			if err := errors.Join(syscall.Mkfifo(out.path("pipe"), 0o666), out.Write("blob", data), out.Write("other", data)); err != nil {
				t.Fatal(err)
			}
			s := in.open(t, source.Options{})
			if without {
				source.WithoutOpenat2(s)
			}
			e := listed(t, s)[0]
			relink(t, in, strings.ReplaceAll(c.target, "OUT", out.dir), "a/x")
			err := s.Read(t.Context(), e, make([]byte, e.Size))
			var se *source.SampleError
			if !errors.As(err, &se) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("link to %s: %v, want %q", c.target, err, c.want)
			}
		}
	}
}

// BenchmarkRelistLinks measures the second listing of a folder in which everything is a link.
func BenchmarkRelistLinks(b *testing.B) {
	const n = 100_000
	in, out := newTree(b, nil), newTree(b, nil)
	for i := range n {
		name := filepath.Join("blobs", string(rune('a'+i%26)), "blob") + string(rune('0'+i%10)) + "-" + time.Duration(i).String()
		if err := out.Write(name, nil); err != nil {
			b.Fatal(err)
		}
		if err := errors.Join(os.MkdirAll(in.path("a"), 0o777), os.Symlink(out.path(name), in.path("a/"+time.Duration(i).String()))); err != nil {
			b.Fatal(err)
		}
	}
	s := in.open(b, source.Options{})
	l, err := source.Relist(b.Context(), s, nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	before := &source.Before{Folders: l.Folders, Entries: func() ([]sample.Entry, error) { return l.Entries, nil }}
	for b.Loop() {
		if _, err := source.Relist(b.Context(), s, before, nil); err != nil {
			b.Fatal(err)
		}
	}
}
