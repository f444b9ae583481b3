package ingest_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lcache/internal/store/cache"
	"lcache/internal/store/cachedir"
	"lcache/internal/store/ingest"
	"lcache/logfile"
)

// stage is a source, and a root of caches that are named as lcache run names them.
type stage struct {
	t            *testing.T
	source, root string
}

func newStage(t *testing.T, names ...string) *stage {
	s := &stage{t, filepath.Join(t.TempDir(), "train"), t.TempDir()}
	for _, name := range names {
		s.write(name)
	}
	return s
}

func (s *stage) write(name string) {
	s.t.Helper()
	path := filepath.Join(s.source, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(name), 0o600)); err != nil {
		s.t.Fatal(err)
	}
}

// folder returns the cache of a filter that removes files. Without a filter, it is the cache of all other filters.
func (s *stage) folder(exts ...string) string {
	return filepath.Join(s.root, cachedir.Folder(s.source, cachedir.Listing{Exts: exts}))
}

func (s *stage) options(exts ...string) ingest.Options {
	o := ingest.Options{Source: s.source, Dirs: []string{s.folder()}, Exts: exts}
	if len(exts) > 0 {
		filtered := o
		filtered.Dirs = []string{s.folder(exts...)}
		o.Filtered = &filtered
	}
	return o
}

// run ingests with a filter. It checks the used cache, the samples in it, and the number of samples read.
func (s *stage) run(what string, exts []string, dir string, samples, read int) *ingest.Report {
	s.t.Helper()
	r, err := ingest.Run(s.t.Context(), s.options(exts...))
	if err != nil {
		s.t.Fatalf("%s: %v", what, err)
	}
	if !slices.Equal(r.Dirs, []string{dir}) || r.Samples != samples || r.ReadSamples != int64(read) {
		s.t.Errorf("%s: %v, %d samples, %d read; want %s, %d, %d", what, r.Dirs, r.Samples, r.ReadSamples, dir, samples, read)
	}
	verified(s.t, dir, s.source, samples)
	return r
}

// caches compares the folders in the root.
func (s *stage) caches(what string, want ...string) {
	s.t.Helper()
	entries, err := os.ReadDir(s.root)
	var got []string
	for _, e := range entries {
		got = append(got, filepath.Join(s.root, e.Name()))
	}
	slices.Sort(want)
	if err != nil || !slices.Equal(got, want) {
		s.t.Errorf("%s: the root has %v, %v; want %v", what, got, err, want)
	}
}

func recordOf(t *testing.T, dir string) cache.Record {
	t.Helper()
	r, err := cache.ReadRecord(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestFiltersThatRemoveNothing: filters that remove no file share the cache without a filter, whichever comes first.
func TestFiltersThatRemoveNothing(t *testing.T) {
	s := newStage(t, "a/1.jpg", "a/2.jpg", "b/3.png", "README")
	images, more := []string{".jpg", ".png"}, []string{"PNG", "jpg", "gif"}
	s.run("a new cache", images, s.folder(), 3, 3)
	s.run("without a filter", nil, s.folder(), 3, 0)
	s.run("another filter", more, s.folder(), 3, 0)
	s.caches("after all", s.folder())
	if r := recordOf(t, s.folder()); len(r.Exts) > 0 {
		t.Errorf("the filter %v is recorded", r.Exts)
	}
	s.write("b/4.png")
	s.run("a file more", images, s.folder(), 4, 1)
	s.caches("after all", s.folder())
}

// TestFilterThatRemoves: a filter that removes files has a separate cache. Each cache names the other when it is
// made, and both stay right when files come and go.
func TestFilterThatRemoves(t *testing.T) {
	for _, filteredFirst := range []bool{true, false} {
		s := newStage(t, "a/1.jpg", "a/2.jpg", "a/notes.txt")
		exts := []string{".jpg"}
		own := s.folder(exts...)
		var first, second *ingest.Report
		if filteredFirst {
			first = s.run("with the filter", exts, own, 2, 2)
			s.caches("after that", own)
			second = s.run("without", nil, s.folder(), 3, 3)
		} else {
			first = s.run("without", nil, s.folder(), 3, 3)
			second = s.run("with the filter", exts, own, 2, 2)
		}
		if len(first.Others) != 0 || len(second.Others) != 1 || second.Others[0].Dir != first.Dirs[0] || (len(second.Others[0].Exts) > 0) != filteredFirst {
			t.Errorf("filtered first: %t: the first names %v, the second %v", filteredFirst, first.Others, second.Others)
		}
		s.caches("after both", own, s.folder())
		if err := os.Remove(filepath.Join(s.source, "a/notes.txt")); err != nil {
			t.Fatal(err)
		}
		if again := s.run("it removes nothing any longer", exts, own, 2, 0); len(again.Others) != 0 {
			t.Errorf("an existing cache names other caches: %v", again.Others)
		}
		if _, err := cachedir.RemoveAll([]string{own}); err != nil {
			t.Fatal(err)
		}
		s.run("its own cache is removed", exts, s.folder(), 2, 0)
		s.caches("after that", s.folder())
		s.write("a/more.txt")
		s.run("a file that it removes", exts, own, 2, 2)
		s.run("without a filter", nil, s.folder(), 3, 1)
		s.caches("at last", own, s.folder())
	}
}

// TestFilteredCacheFound: a cache that an earlier version made under the filter's name is used, even if the filter
// removes no file.
func TestFilteredCacheFound(t *testing.T) {
	s := newStage(t, "a/1.jpg", "a/2.jpg")
	exts := []string{".jpg"}
	if _, err := ingest.Run(t.Context(), *s.options(exts...).Filtered); err != nil {
		t.Fatal(err)
	}
	s.run("again", exts, s.folder(exts...), 2, 0)
	s.write("a/3.txt")
	s.run("with a file that it removes", exts, s.folder(exts...), 2, 0)
	s.caches("after all", s.folder(exts...))
}

// TestFiltersThatCantBeCompared: clients compare a filter with the last extension of each file. So a filter with a
// double extension has a separate cache.
func TestFiltersThatCantBeCompared(t *testing.T) {
	s := newStage(t, "a/1.seg.png")
	exts := []string{".seg.png"}
	s.run("two extensions", exts, s.folder(exts...), 1, 1)
	s.caches("after that", s.folder(exts...))
}

// TestFilterOfACacheInUse: a cache in use by another process is compared by its last listing. If the filter removes
// files of it, the filter gets a separate cache at once.
func TestFilterOfACacheInUse(t *testing.T) {
	s := newStage(t, "a/1.jpg", "a/2.png")
	s.run("a new cache", nil, s.folder(), 2, 2)
	lock, err := logfile.Lock(s.folder())
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	s.run("it removes a file", []string{".jpg"}, s.folder(".jpg"), 1, 1)
	busy := new(logfile.BusyError)
	if _, err := ingest.Run(t.Context(), s.options(".jpg", ".png")); !errors.As(err, &busy) || busy.Dir != s.folder() {
		t.Errorf("a filter that removes no file: %v", err)
	}
	s.caches("after all", s.folder(), s.folder(".jpg"))
}

// TestFilterOfADamagedCache: a filter that removes no file makes a damaged cache again. Another filter leaves it
// alone.
func TestFilterOfADamagedCache(t *testing.T) {
	s := newStage(t, "a/1.jpg", "a/2.png")
	s.run("a new cache", nil, s.folder(), 2, 2)
	if err := os.WriteFile(filepath.Join(s.folder(), cache.RecordName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.run("it removes a file", []string{".jpg"}, s.folder(".jpg"), 1, 1)
	s.run("it removes nothing", []string{".jpg", ".png"}, s.folder(), 2, 2)
}

// TestFilterListsOnce: a source is listed once, even if another cache turns out to be the right one.
func TestFilterListsOnce(t *testing.T) {
	var lists atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := strings.Repeat(r.URL.Path, 10)
		if r.URL.Path == "/LIST" {
			lists.Add(1)
			text = "1.jpg\n2.txt\n"
		}
		http.ServeContent(w, r, "", time.Unix(1_700_000_000, 0), strings.NewReader(text))
	}))
	defer srv.Close()
	s := &stage{t, srv.URL + "/LIST", t.TempDir()}
	for _, c := range []struct {
		exts    []string
		samples int
		lists   int64
	}{{[]string{".jpg"}, 1, 1}, {[]string{".jpg", ".txt"}, 2, 1}, {[]string{".txt"}, 1, 1}} {
		before := lists.Load()
		if r, err := ingest.Run(t.Context(), s.options(c.exts...)); err != nil || r.Samples != c.samples || lists.Load()-before != c.lists {
			t.Errorf("%v: %+v, %v, %d listings", c.exts, r, err, lists.Load()-before)
		}
	}
	s.caches("after all", s.folder(), s.folder(".jpg"), s.folder(".txt"))
}

// TestFilterOfShards: the indexes of shards are kept for the final cache, and none is read again.
func TestFilterOfShards(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "a.tar"), tarOf(t, 1, 20, 3000), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &stage{t, "tar:" + folder + "/a.tar", t.TempDir()}
	for _, c := range []struct {
		exts    []string
		removes bool
	}{{[]string{"bin"}, true}, {[]string{"bin", "cls"}, false}, {nil, false}} {
		r, err := ingest.Run(t.Context(), s.options(c.exts...))
		if err != nil {
			t.Fatal(err)
		}
		want := s.folder()
		if c.removes {
			want = s.folder(c.exts...)
		}
		if r.Dirs[0] != want {
			t.Errorf("%v: %v, want %s", c.exts, r.Dirs, want)
		}
		if info, err := os.Stat(filepath.Join(want, cache.ShardsName)); err != nil || info.Size() == 0 {
			t.Errorf("%v: the indexes: %v, %v", c.exts, info, err)
		}
	}
}
