package source_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"lcache/source"
)

// TestLeftOut: a listing counts the files of a directory or of shards that have a wanted extension but belong to no
// sample. Hidden files and the file of labels do not count.
func TestLeftOut(t *testing.T) {
	labels := filepath.Join(t.TempDir(), "labels.csv")
	if err := os.WriteFile(labels, []byte("a/1.jpg,1\na/2.jpg,2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := newTree(t, files("a/1.jpg", "a/2.jpg", "top.jpg", "top.txt", "README", ".DS_Store"))
	labelled := newTree(t, files("a/1.jpg", "a/2.jpg", "README"))
	if err := os.Rename(labels, filepath.Join(labelled.dir, "labels.csv")); err != nil {
		t.Fatal(err)
	}
	loose := newTree(t, files("1.jpg", "2.jpg"))
	tars := shards(t, map[string]string{"a.tar": "__meta__/a.jpg x.jpg README ./._x.jpg", "b.tar": "x.jpg LICENSE"})
	for name, c := range map[string]struct {
		src  string
		opts source.Options
		want int
	}{
		"class folders":       {dir.dir, source.Options{}, 3},
		"one extension":       {dir.dir, source.Options{Exts: []string{"jpg"}}, 1},
		"parts":               {dir.dir, source.Options{Group: source.GroupStem}, 3},
		"labels of a file":    {labelled.dir, source.Options{Labels: filepath.Join(labelled.dir, "labels.csv")}, 1},
		"labels not used":     {labelled.dir, source.Options{}, 2},
		"flat":                {dir.dir, source.Options{Flat: true}, 0},
		"without folders":     {loose.dir, source.Options{}, 0},
		"shards":              {"tar:" + tars.dir + "/{a,b}.tar", source.Options{}, 3},
		"shards, flat":        {"tar:" + tars.dir + "/{a,b}.tar", source.Options{Flat: true}, 3},
		"shards, one is kept": {"tar:" + tars.dir + "/{a,b}.tar", source.Options{Exts: []string{"jpg"}}, 1},
	} {
		s, err := source.Open(c.src, c.opts)
		if err != nil {
			t.Fatal(err)
		}
		l, err := source.Relist(t.Context(), s, nil, nil)
		if err != nil || l.LeftOut != c.want {
			t.Errorf("%s: left out %+v, want %d; %v", name, l, c.want, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestLeftOutAgain: an unchanged folder is not read, so its files are not counted again.
func TestLeftOutAgain(t *testing.T) {
	old := source.SetSettled(-time.Hour)
	defer source.SetSettled(old)
	tr := newTree(t, files("a/1", "top"))
	s := tr.open(t, source.Options{})
	first, _ := relist(t, s, nil, nil)
	if again, _ := relist(t, s, first, first.Entries); first.LeftOut != 1 || !again.Same || again.LeftOut != source.Unknown {
		t.Errorf("left out %d, and again %d", first.LeftOut, again.LeftOut)
	}
	if err := tr.Write("top2", nil); err != nil {
		t.Fatal(err)
	}
	tr.renew(t, "")
	if again, _ := relist(t, s, first, first.Entries); again.LeftOut != 2 {
		t.Errorf("with another file %d are left out", again.LeftOut)
	}
}
