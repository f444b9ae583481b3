package source_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"lcache/internal/testenv"
	"lcache/sample"
	"lcache/source"
)

// renew gives a folder another mtime, as a change does, whatever the kernel's clock can distinguish.
func (tr *tree) renew(t *testing.T, folder string) {
	t.Helper()
	tr.clock = tr.clock.Add(time.Second)
	if err := os.Chtimes(tr.path(folder), tr.clock, tr.clock); err != nil {
		t.Fatal(err)
	}
}

// TestRelist: after any change, a listing that reads only changed folders equals a full listing.
func TestRelist(t *testing.T) {
	testenv.Long(t)
	old := source.SetSettled(-time.Hour)
	defer source.SetSettled(old)
	type step struct {
		name    string
		change  func(tr *tree) error
		folders []string // folders whose times the change moves
		part    bool     // entries of the listing before are needed
	}
	steps := []step{
		{"nothing", func(*tree) error { return nil }, nil, false},
		{"a file more", func(tr *tree) error { return tr.Write("b/3", []byte("new")) }, []string{"b"}, true},
		{"a file less", func(tr *tree) error { return tr.Remove("a/x/1") }, []string{"a/x"}, true},
		{"replaced", func(tr *tree) error { return tr.Replace("b/1", []byte("other")) }, []string{"b"}, true},
		{"a folder more, deep", func(tr *tree) error { return tr.Write("a/y/z/1", []byte("deep")) }, []string{"a", "a/y", "a/y/z"}, true},
		{"a class more, first", func(tr *tree) error { return tr.Write("A/1", []byte("class")) }, []string{"", "A"}, true},
		{"a class less", func(tr *tree) error { return os.RemoveAll(tr.path("c")) }, []string{""}, true},
		{"a folder moved", func(tr *tree) error { return os.Rename(tr.path("a/y"), tr.path("b/y")) }, []string{"a", "b"}, true},
		{"a folder in another's place", func(tr *tree) error {
			return errors.Join(tr.Write("spare/1", []byte("spare")), os.RemoveAll(tr.path("a/x")), os.Rename(tr.path("spare"), tr.path("a/x")))
		}, []string{"a", ""}, true},
	}
	for _, opts := range []source.Options{{}, {Flat: true}, {Flat: true, Exts: []string{"1"}}} {
		tr := newTree(t, files("a/x/1", "a/x/2.1", "a/1", "b/1", "b/2", "c/1", "top.1"))
		s := tr.open(t, opts)
		last, _ := relist(t, s, nil, nil)
		entries := last.Entries
		for _, st := range steps {
			if err := st.change(tr); err != nil {
				t.Fatal(err)
			}
			for _, folder := range st.folders {
				tr.renew(t, folder)
			}
			classes, want, err := s.List(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			l, asked := relist(t, s, last, entries)
			if l.Same == st.part || asked > 0 && !st.part {
				t.Errorf("%+v, %s: same %v, asked %d times for the entries before", opts, st.name, l.Same, asked)
			}
			if l.Same {
				l.Entries, l.Classes = entries, classes
			}
			if !reflect.DeepEqual(l.Entries, want) || !slices.Equal(l.Classes, classes) {
				t.Errorf("%+v, %s:\n got %s\nwant %s", opts, st.name, names(l.Entries), names(want))
			}
			last, entries = l, l.Entries
		}
	}
}

// TestRelistLooksOnlyAtChangedFolders: a file that is written to in place is not noticed, because its folder is not
// read.
func TestRelistLooksOnlyAtChangedFolders(t *testing.T) {
	old := source.SetSettled(-time.Hour)
	defer source.SetSettled(old)
	tr := newTree(t, files("a/1", "b/1"))
	s := tr.open(t, source.Options{})
	first, _ := relist(t, s, nil, nil)
	if err := errors.Join(tr.Write("a/1", []byte("edited")), tr.Write("b/2", []byte("added"))); err != nil {
		t.Fatal(err)
	}
	tr.renew(t, "b")
	second, _ := relist(t, s, first, first.Entries)
	if got := names(second.Entries); got != "a/1=0 b/1=1 b/2=1" || second.Entries[0].Size != first.Entries[0].Size {
		t.Errorf("%s, a/1 has %d bytes", got, second.Entries[0].Size)
	}
	third, asked := relist(t, s, nil, nil)
	if asked != 0 || third.Entries[0].Size != 6 {
		t.Errorf("listed whole, a/1 has %d bytes", third.Entries[0].Size)
	}
}

// TestRelistFresh: a recent change may be followed by another one with the same time, so such a folder is listed
// again.
func TestRelistFresh(t *testing.T) {
	tr := newTree(t, files("a/1", "b/1"))
	s := tr.open(t, source.Options{})
	first, _ := relist(t, s, nil, nil)
	if again, _ := relist(t, s, first, first.Entries); again.Same {
		t.Error("folders of this moment were taken for unchanged")
	}
}

// TestRelistLabels: the file of labels is read every time. Without it, the folders determine the labels again.
func TestRelistLabels(t *testing.T) {
	old := source.SetSettled(-time.Hour)
	defer source.SetSettled(old)
	tr := newTree(t, files("a/1", "b/1"))
	path := filepath.Join(t.TempDir(), "labels.csv")
	first, _ := relist(t, tr.open(t, source.Options{}), nil, nil)
	for _, csv := range []string{"a/1,5\nb/1,6\n", "a/1,7\nb/1,6\n"} {
		if err := os.WriteFile(path, []byte(csv), 0o600); err != nil {
			t.Fatal(err)
		}
		l, _ := relist(t, tr.open(t, source.Options{Labels: path}), first, first.Entries)
		if want := "a/1=" + csv[4:5] + " b/1=6"; names(l.Entries) != want || l.Classes != nil {
			t.Errorf("got %s, want %s", names(l.Entries), want)
		}
		b := &source.Before{Folders: l.Folders, Labelled: true, Entries: func() ([]sample.Entry, error) { return l.Entries, nil }}
		back, err := source.Relist(t.Context(), tr.open(t, source.Options{}), b, nil)
		if err != nil || names(back.Entries) != "a/1=0 b/1=1" || len(back.Classes) != 2 {
			t.Errorf("without the file: %s, %v", names(back.Entries), err)
		}
	}
}

// relist lists again, and returns how often the entries before were needed.
func relist(t *testing.T, s source.Source, last *source.Listing, entries []sample.Entry) (l *source.Listing, asked int) {
	t.Helper()
	var b *source.Before
	if last != nil {
		b = &source.Before{Folders: last.Folders, Entries: func() ([]sample.Entry, error) { asked++; return entries, nil }}
	}
	l, err := source.Relist(t.Context(), s, b, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l, asked
}

func TestFoldersRecord(t *testing.T) {
	folders := []source.Folder{{Path: "", Inode: 7, Modified: -5, Changed: 1 << 60}, {Path: "a\n\xff", Inode: 1 << 63, Samples: 3}, {Path: strings.Repeat("é/", 40), Samples: 1 << 31}}
	of := [16]byte{3}
	b := source.EncodeFolders(folders, of)
	got, err := source.DecodeFolders(b, of, 3+1<<31)
	if err != nil || !reflect.DeepEqual(got, folders) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := source.DecodeFolders(b, of, 4); err == nil {
		t.Error("of another number of samples")
	}
	if _, err := source.DecodeFolders(b, [16]byte{4}, 3+1<<31); err == nil {
		t.Error("of another listing")
	}
	for i := range b {
		damaged := slices.Clone(b)
		damaged[i] ^= 0x10
		if _, err := source.DecodeFolders(damaged, of, 3+1<<31); err == nil {
			t.Errorf("byte %d flipped: taken", i)
		}
		if _, err := source.DecodeFolders(b[:i], of, 3+1<<31); err == nil {
			t.Errorf("cut to %d bytes: taken", i)
		}
	}
}
