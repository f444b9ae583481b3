package source_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lcache/sample"
	"lcache/source"
	"lcache/source/s3test"
	"lcache/source/sourcetest"
)

// bucket is a folder of the gateway's bucket, as the Mutator of a source.
type bucket struct {
	*s3test.Gateway
	prefix string
}

func (b bucket) Write(name string, data []byte) error   { return b.Put(b.prefix+name, data) }
func (b bucket) Replace(name string, data []byte) error { return b.Put(b.prefix+name, data) }
func (b bucket) Remove(name string) error               { return b.Gateway.Remove(b.prefix + name) }

// Lacks: an object that is written again with the same bytes has the same version. Keys are UTF-8. The gateway turns
// keys into paths, in which two slashes are one, and does not list control characters. Package s3 tests the keys.
func (b bucket) Lacks() []string {
	return []string{sourcetest.ReplacedAlike, "Names", "PartsNames", "Unlisted"}
}

func openRemote(t *testing.T, src string, opts source.Options) source.Source {
	t.Helper()
	s, err := source.Open(src, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestS3(t *testing.T) {
	g := s3test.Start(t)
	var n atomic.Int64
	fixture := func(opts source.Options) func(t *testing.T, files map[string][]byte) (source.Source, sourcetest.Mutator) {
		return func(t *testing.T, files map[string][]byte) (source.Source, sourcetest.Mutator) {
			b := bucket{g, fmt.Sprintf("set %d/", n.Add(1))}
			keyed := map[string][]byte{}
			for name, data := range files {
				keyed[b.prefix+name] = data
			}
			g.Fill(t, keyed)
			opts.S3 = source.S3{Endpoint: g.URL, Region: s3test.Region}
			return openRemote(t, "s3://"+s3test.Bucket+"/"+b.prefix, opts), b
		}
	}
	sourcetest.Run(t, fixture(source.Options{}))
	sourcetest.RunParts(t, fixture(source.Options{Group: source.GroupStem}))
	s, _ := fixture(source.Options{})(t, map[string][]byte{"c/x": {1}})
	for _, name := range []string{"", "no", "c", "c/", "c/y"} {
		if err := s.Read(t.Context(), sample.Entry{Name: name, Size: 1}, make([]byte, 1)); !errors.Is(err, source.ErrGone) {
			t.Errorf("Read %q, which is not there: %v", name, err)
		}
	}
}

// TestS3ListsAsADirectoryDoes: the listing of a bucket equals that of a directory with the same files, whatever the
// options.
func TestS3ListsAsADirectoryDoes(t *testing.T) {
	g := s3test.Start(t)
	dir := t.TempDir()
	names := []string{"a/1.jpg", "a/1.json", "a/2.png", "a/sub/3.jpg", "a-b/1.jpg", "a/sub-x/1.jpg", "b/1.txt", "top.jpg", "zero.jpg", "B/é.jpg"}
	files := map[string][]byte{}
	for i, name := range names {
		files["x/"+name] = sourcetest.Content(byte(i), 100*i)
		path := dir + "/" + name
		if err := errors.Join(os.MkdirAll(path[:strings.LastIndexByte(path, '/')], 0o700), os.WriteFile(path, files["x/"+name], 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	g.Fill(t, files)
	if err := g.Put("x/b/folder/", nil); err != nil { // some tools create one for each folder
		t.Fatal(err)
	}
	labels := t.TempDir() + "/labels.csv"
	if err := os.WriteFile(labels, []byte("name,label\nb/1.txt,7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]source.Options{"plain": {}, "flat": {Flat: true}, "ext": {Exts: []string{".jpg"}}, "empty": {Exts: []string{".jpg"}, AllowEmpty: true},
		"group": {Group: source.GroupStem}, "flat group": {Group: source.GroupStem, Flat: true}, "none": {Exts: []string{"nothing"}}, "labels": {Exts: []string{".txt"}, Labels: labels}} {
		of, err := source.Relist(t.Context(), openRemote(t, dir, o), nil, nil)
		o.S3 = source.S3{Endpoint: g.URL, Region: s3test.Region}
		src := "s3://" + s3test.Bucket + "/x"
		remote := openRemote(t, src, o)
		gotClasses, got, gotErr := remote.List(t.Context(), nil)
		if err != nil || gotErr != nil {
			if err == nil || gotErr == nil || strings.ReplaceAll(gotErr.Error(), src+"/", dir) != err.Error() {
				t.Errorf("%s: error is %v, that of the directory %v", name, gotErr, err)
			}
			continue
		}
		classes, entries := of.Classes, of.Entries
		for _, list := range [][]sample.Entry{entries, got} {
			for i := range list {
				list[i].Version, list[i].Inode = 0, sample.NoInode
			}
		}
		if l, err := source.Relist(t.Context(), remote, nil, nil); err != nil || l.LeftOut != of.LeftOut {
			t.Errorf("%s: %d are left out, of the directory %d; %v", name, l.LeftOut, of.LeftOut, err)
		}
		if !reflect.DeepEqual(got, entries) || !reflect.DeepEqual(gotClasses, classes) {
			t.Errorf("%s: %q\n%+v, want %q\n%+v", name, gotClasses, got, classes, entries)
		}
	}
}

// site is a web server with a list, as the Mutator of a source.
type site struct {
	mu     sync.Mutex // guards the fields that follow
	files  map[string][]byte
	etags  map[string]int
	order  []string
	ranges bool
	lines  func(name string, data []byte, etag string) string
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := strings.TrimPrefix(r.URL.Path, "/data/")
	if name == "LIST" {
		for _, n := range s.order {
			if data, ok := s.files[n]; ok {
				fmt.Fprintln(w, s.lines(n, data, fmt.Sprint(s.etags[n])))
			}
		}
		return
	}
	data, ok := s.files[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("ETag", fmt.Sprintf(`"%d"`, s.etags[name]))
	if !s.ranges {
		r.Header.Del("Range")
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}

func (s *site) Write(name string, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.files[name]; !known {
		s.order = append(s.order, name)
	}
	s.files[name] = data
	s.etags[name] += 1000
	return nil
}
func (s *site) Replace(name string, data []byte) error { return s.Write(name, data) }
func (s *site) Remove(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.files, name)
	return nil
}

// Lacks: a list defines the order, and names are addresses.
func (s *site) Lacks() []string { return []string{"Order", "Flat", "Names", "Parts", "PartsNames"} }

func TestWeb(t *testing.T) {
	for name, c := range map[string]struct {
		ranges bool
		lines  func(name string, data []byte, etag string) string
	}{
		"bare list, ranges":    {true, func(n string, _ []byte, _ string) string { return n }},
		"bare list, no ranges": {false, func(n string, _ []byte, _ string) string { return n }},
		"full list":            {true, func(n string, d []byte, e string) string { return fmt.Sprintf("%s\t%d\t\t%s", n, len(d), e) }},
	} {
		fixture := func(opts source.Options) func(t *testing.T, files map[string][]byte) (source.Source, sourcetest.Mutator) {
			return func(t *testing.T, files map[string][]byte) (source.Source, sourcetest.Mutator) {
				s := &site{files: map[string][]byte{}, etags: map[string]int{}, ranges: c.ranges, lines: c.lines}
				for n, data := range files {
					s.Write(n, data)
				}
				srv := httptest.NewServer(s)
				t.Cleanup(srv.Close)
				return openRemote(t, srv.URL+"/data/LIST", opts), s
			}
		}
		t.Run(name, func(t *testing.T) {
			sourcetest.Run(t, fixture(source.Options{}))
			sourcetest.RunParts(t, fixture(source.Options{Group: source.GroupStem}))
		})
	}
}

func TestWebLists(t *testing.T) {
	list := ""
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/LIST" {
			fmt.Fprint(w, list)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(strings.Repeat("x", len(r.URL.Path))))
	}))
	defer srv.Close()
	for _, c := range []struct {
		list string
		opts source.Options
		want string // classes, then name=label:size of each sample; or the error after the source's name
	}{
		{"b/2\na/1\n", source.Options{}, "[a b] b/2=1:4 a/1=0:4"},
		{"b/2\na/1\n", source.Options{Flat: true}, "[] b/2=0:4 a/1=0:4"},
		{"2/x\n10/x\n", source.Options{}, "[10 2] 2/x=1:4 10/x=0:5"},
		{"x\ny\t9\n", source.Options{}, "[] x=0:2 y=0:9"},
		{"x\t\tdog\ny\t\tcat\n", source.Options{}, "[cat dog] x=1:2 y=0:2"},
		{"x\t\t7\ny\t\t-1\n", source.Options{}, "[] x=7:2 y=-1:2"},
		{"x.jpg\nx.json\ny.jpg\n", source.Options{Exts: []string{"jpg"}}, "[] x.jpg=0:6 y.jpg=0:6"},
		{"a/x.jpg\nb/y.jpg\na/x.cls\n", source.Options{Group: source.GroupStem}, "[a b] a/x=0:16 b/y=1:8"},
		{"a/x\ny\n", source.Options{}, "line 2 has no folder, which would be its class, but other lines have: give each line a label, or list the source flat"},
		{"x\t\tdog\ny\n", source.Options{}, "line 2 has no label, but other lines have: give each line one, or list the source flat"},
		{"x\t\tdog\ny\t\t3\n", source.Options{}, `line 2: label "3", but earlier labels are text: make all of them numbers, or all of them text`},
		{"http://elsewhere.invalid/x\n", source.Options{}, "line 1: it is on another host than the list (elsewhere.invalid): give --http-allow-other-hosts if that is meant"},
		{"x\t5000000000\n", source.Options{}, `list sample "x": it has 5000000000 bytes, and a sample must have less than 4 GiB: split it`},
		{"", source.Options{}, "no samples: it holds no file"},
		{"<html>", source.Options{}, "it is a web page, not a list: check the address, and whether a proxy or a login stands between"},
	} {
		list = c.list
		classes, entries, err := openRemote(t, srv.URL+"/LIST", c.opts).List(t.Context(), nil)
		got := fmt.Sprint(classes)
		for _, e := range entries {
			got += fmt.Sprintf(" %s=%d:%d", e.Name, e.Label, e.Size)
		}
		if err != nil {
			got = strings.TrimPrefix(err.Error(), fmt.Sprintf("list source %q: ", srv.URL+"/LIST"))
		}
		if got != c.want {
			t.Errorf("%q:\n%s, want\n%s", c.list, got, c.want)
		}
	}
}

func TestRemoteNames(t *testing.T) {
	for src, want := range map[string]string{
		"s3://me:hush@b/p":               `open source "s3://b/p": its bucket has a character that no bucket's name has: give s3://BUCKET/PREFIX/, and credentials by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or --s3-profile`,
		"s3://b/p?sig=hush":              `open source "s3://b/p": it has a query: give s3://BUCKET/PREFIX/`,
		"https://me:hush@host/list":      `open source "https://host/list": it has a user or a password: only servers that need none can be read`,
		"https://host/list?t=hush":       `open source "https://host/list": it has a query: give an address without one`,
		"ftp://me:hush@host/list?t=hush": `open source "ftp://host/list": scheme ftp:// is unknown: give a directory, tar:PATTERN, s3://BUCKET/PREFIX/ or https://HOST/PATH/LIST`,
	} {
		if _, err := source.Open(src, source.Options{}); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want\n%s", src, err, want)
		}
	}
	for _, src := range []string{"s3://KEY:hu/sh@b/p", "s3://KEY:hu?sh@b/p", "s3://KEY:h@hu/sh@b/p", "s3://KEY:hu/sh", "https://me:hu/sh@host/list", "tar:s3://KEY:hu/sh@b/{a,b}.tar", "ftp://me:hu/sh@host"} {
		if _, err := source.Open(src, source.Options{}); err == nil || strings.Contains(err.Error(), "hu") || strings.Contains(err.Error(), "sh@") {
			t.Errorf("%s: %v, want an error without any of its password", src, err)
		}
	}
	if !source.Same("s3://b/p", "s3://b/p/") || source.Same("s3://b/p", "s3://b/q") {
		t.Error("s3://b/p and s3://b/p/ are the same source, and s3://b/q is another one")
	}
	for name, want := range map[string]string{"s3://b": "s3://b/", "s3://b//": "s3://b/", "s3://b//a//": "s3://b//a/"} { // a key may begin with a slash
		if got := source.Canonical(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}
