package source_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"lcache/source"
)

// TestRemoved: a listing counts the files that would be samples without its extensions, for every kind of source. A
// file next to class folders is never a sample.
func TestRemoved(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "a/1.jpg\t10\t0\te1\na/2.txt\t10\t0\te2\na/3.JPG\t10\t0\te3\n")
	}))
	defer srv.Close()
	classes := newTree(t, files("a/1.jpg", "a/deep/2.png", "b/3.jpg", "b/4.txt", "b/noext", "README", "top.txt"))
	loose := newTree(t, files("1.jpg", "2.JPG", "3.txt"))
	grouped := newTree(t, files("a/1.jpg", "a/1.json", "a/2.jpg", "a/2.json"))
	tars := shards(t, map[string]string{"a.tar": "__meta__/a.txt x.jpg x.json README", "b.tar": "x.jpg x.seg.txt"})
	for name, c := range map[string]struct {
		src  string
		opts source.Options
		want int
	}{
		"no filter":                {classes.dir, source.Options{}, 0},
		"some in class folders":    {classes.dir, source.Options{Exts: []string{"jpg"}}, 3},
		"more in class folders":    {classes.dir, source.Options{Exts: []string{"jpg", ".png", "txt"}}, 1},
		"flat":                     {classes.dir, source.Options{Exts: []string{"jpg"}, Flat: true}, 5},
		"without folders":          {loose.dir, source.Options{Exts: []string{"jpg"}}, 1},
		"without folders, none":    {loose.dir, source.Options{Exts: []string{"jpg", "txt"}}, 0},
		"parts":                    {grouped.dir, source.Options{Exts: []string{"jpg"}, Group: source.GroupStem}, 2},
		"shards":                   {"tar:" + tars.dir + "/{a,b}.tar", source.Options{Exts: []string{"jpg"}}, 2},
		"shards, none":             {"tar:" + tars.dir + "/{a,b}.tar", source.Options{Exts: []string{"jpg", "json", "txt"}}, 0},
		"list of a web server":     {srv.URL + "/LIST", source.Options{Exts: []string{"jpg"}}, 1},
		"list of a server, none":   {srv.URL + "/LIST", source.Options{Exts: []string{"jpg", "txt"}}, 0},
		"list of a server, no ext": {srv.URL + "/LIST", source.Options{}, 0},
	} {
		s, err := source.Open(c.src, c.opts)
		if err != nil {
			t.Fatal(err)
		}
		if l, err := source.Relist(t.Context(), s, nil, nil); err != nil || l.Removed != c.want {
			t.Errorf("%s: removed %+v, want %d; %v", name, l, c.want, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestRemovedAgain: a filter that removed nothing from the listing before is compared only with the changed folders.
func TestRemovedAgain(t *testing.T) {
	old := source.SetSettled(-time.Hour)
	defer source.SetSettled(old)
	tr := newTree(t, files("a/1.jpg", "b/2.jpg"))
	first, _ := relist(t, tr.open(t, source.Options{}), nil, nil)
	s := tr.open(t, source.Options{Exts: []string{".jpg"}})
	if again, _ := relist(t, s, first, first.Entries); !again.Same || again.Removed != 0 {
		t.Errorf("again: %+v", again)
	}
	if err := tr.Write("b/3.txt", []byte(strings.Repeat("x", 10))); err != nil {
		t.Fatal(err)
	}
	tr.renew(t, "b")
	if again, _ := relist(t, s, first, first.Entries); again.Removed != 1 {
		t.Errorf("with another file: %+v", again)
	}
}
