package cachedir

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// put writes files into dir, given as name, content, name, content ….
func put(t *testing.T, dir string, texts ...string) {
	t.Helper()
	for i := 0; i < len(texts); i += 2 {
		path := filepath.Join(dir, texts[i])
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(texts[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

const job = `{"schema": 1, "source": "/data/train", "exts": [".jpg"], "memory": 7, "job": {"epochs": 3}}`

func format(part, parts int) string {
	b := make([]byte, 64)
	copy(b, "LCACHEF\n")
	binary.LittleEndian.PutUint32(b[48:], uint32(parts))
	binary.LittleEndian.PutUint32(b[52:], uint32(part))
	return string(b)
}

// hold locks a file as a process that uses the cache does.
func hold(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
}

func TestReevaluate(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "job.json", job, "FORMAT", format(1, 3), "arena", strings.Repeat("x", 100_000), "LOCK", "4711\n", "notes", strings.Repeat("x", 500_000))
	old := time.Now().Add(-time.Hour).Truncate(time.Second)
	for _, name := range []string{"job.json", "LOCK"} {
		if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Look(dir)
	if err != nil {
		t.Fatal(err)
	}
	if c.Source != "/data/train" || c.Part != 1 || c.Parts != 3 || c.Pid != 0 || !c.LastUse.Equal(old) || c.Memory != 7 || !slices.Equal(c.Exts, []string{".jpg"}) {
		t.Errorf("got %+v", c)
	}
	if c.Bytes < 100_000 || c.Bytes > 200_000 {
		t.Errorf("got %d bytes, want the disk space of lcache's files only", c.Bytes)
	}
	hold(t, filepath.Join(dir, "LOCK"))
	if c, err = Look(dir); err != nil || c.Pid != 4711 || time.Since(c.LastUse) > time.Minute {
		t.Errorf("in use: got %+v, %v", c, err)
	}
}

func TestLookRefuses(t *testing.T) {
	root := t.TempDir()
	put(t, root, "file", "x", "empty/x", "", "other/job.json", `{"schema": 1}`, "list/job.json", `[]`, "short/FORMAT", "LCA", "linked/x", "", "real/job.json", job)
	if err := os.Symlink(filepath.Join(root, "real/job.json"), filepath.Join(root, "linked/job.json")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"file", "empty", "other", "list", "short", "linked"} {
		if _, err := Look(filepath.Join(root, name)); !errors.Is(err, ErrNotCache) {
			t.Errorf("%s: got %v", name, err)
		}
		if _, _, err := Remove(filepath.Join(root, name)); !errors.Is(err, ErrNotCache) {
			t.Errorf("remove %s: got %v", name, err)
		}
	}
	if _, err := Look(filepath.Join(root, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("none: got %v", err)
	}
}

func TestList(t *testing.T) {
	root := t.TempDir()
	put(t, root, "b/job.json", job, "a/FORMAT", format(1, 2), "c/notes", "", "file", "")
	found, err := List(root)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range found {
		names = append(names, filepath.Base(c.Dir))
	}
	if !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("got %v", names)
	}
	if found, err = List(filepath.Join(root, "b")); err != nil || len(found) != 1 {
		t.Errorf("of a cache itself: got %v, %v", found, err)
	}
	if _, err = List(filepath.Join(root, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of nothing: got %v", err)
	}
}

// TestListAll: a missing root has no caches, and a cache that is in a root is listed once.
func TestListAll(t *testing.T) {
	root, elsewhere := t.TempDir(), t.TempDir()
	put(t, root, "a/job.json", job)
	put(t, elsewhere, "b/job.json", job, "c/notes", "")
	found, err := ListAll([]string{root, filepath.Join(root, "none")}, []string{filepath.Join(root, "a"), filepath.Join(elsewhere, "b"), filepath.Join(elsewhere, "c"), filepath.Join(elsewhere, "none")})
	if err != nil || len(found) != 2 || found[0].Dir != filepath.Join(root, "a") || found[1].Dir != filepath.Join(elsewhere, "b") {
		t.Errorf("got %+v, %v", found, err)
	}
	if found, err = ListAll(nil, nil); err != nil || found == nil || len(found) != 0 {
		t.Errorf("of nothing: got %v, %v", found, err)
	}
}

// TestRemoveAll: all directories are checked before the first is changed.
func TestRemoveAll(t *testing.T) {
	root := t.TempDir()
	put(t, root, "a/job.json", job, "b/job.json", job, "b/notes", "mine", "used/job.json", job, "used/LOCK", "4711\n", "other/notes", "")
	hold(t, filepath.Join(root, "used", "LOCK"))
	a, b := filepath.Join(root, "a"), filepath.Join(root, "b")
	used := new(InUse)
	if done, err := RemoveAll([]string{a, filepath.Join(root, "used")}); !errors.As(err, &used) || used.Pid != 4711 || len(done) > 0 {
		t.Errorf("one is in use: removed %v, %v", done, err)
	}
	if _, err := RemoveAll([]string{a, filepath.Join(root, "other")}); !errors.Is(err, ErrNotCache) || !strings.HasSuffix(err.Error(), "; nothing was removed") {
		t.Errorf("one is not a cache: %v", err)
	}
	if _, err := RemoveAll([]string{root}); err == nil || !strings.Contains(err.Error(), "it holds caches: give one of") {
		t.Errorf("a root: %v", err)
	}
	done, err := RemoveAll([]string{a, b})
	if err != nil || len(done) != 2 || done[0].Dir != a || done[0].Left == nil || !slices.Equal(done[1].Left, []string{"notes"}) {
		t.Errorf("removed %+v, %v", done, err)
	}
}

func TestRemove(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "c")
	var all []string
	for _, name := range files {
		all = append(all, name, "x")
	}
	name := strings.Repeat("n", 64) // maximum length of the name of a job's importance
	put(t, dir, append(all, "job.json", job, "importance-"+name, "x", "importance-"+name+".new", "x", "importance-7.a_b", "x")...)
	c, left, err := Remove(dir)
	if err != nil || len(left) > 0 || c.Bytes == 0 {
		t.Fatalf("got %+v, %v, %v", c, left, err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}

// TestRemoveLeaves: files that lcache did not make stay: a file, a folder, even one with a name of lcache's, and the
// target of a link with such a name.
func TestRemoveLeaves(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "job.json", job, "LOCK", "", "notes.txt", "x", "more/arena", "x", "sums/x", "x", "importance-", "x", "importance-.x", "x", "importance-"+strings.Repeat("n", 65), "x", "line-2", "x")
	outside := filepath.Join(t.TempDir(), "outside")
	put(t, filepath.Dir(outside), "outside", "x")
	if err := os.Symlink(outside, filepath.Join(dir, "arena")); err != nil {
		t.Fatal(err)
	}
	_, left, err := Remove(dir)
	if err != nil || !slices.Equal(left, []string{"importance-", "importance-.x", "importance-" + strings.Repeat("n", 65), "line-2", "more", "notes.txt", "sums"}) {
		t.Fatalf("left %v, %v", left, err)
	}
	for _, path := range []string{filepath.Join(dir, "notes.txt"), filepath.Join(dir, "more/arena"), filepath.Join(dir, "sums/x"), filepath.Join(dir, "LOCK"), outside} {
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"job.json", "arena"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", name, err)
		}
	}
}

func TestRemoveInUse(t *testing.T) {
	for name, text := range map[string]string{"LOCK": "4711\n", "open.lock": "4711: listing, 34 %"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			put(t, dir, "job.json", job, "LOCK", "", "open.lock", "", name, text)
			hold(t, filepath.Join(dir, name))
			var use *InUse
			if _, _, err := Remove(dir); !errors.As(err, &use) || use.Pid != 4711 {
				t.Errorf("got %v", err)
			}
			if _, err := os.Lstat(filepath.Join(dir, "job.json")); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRemoveLink(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "c/job.json", job)
	if err := os.Symlink("c", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Remove(filepath.Join(dir, "link")); err == nil || !strings.HasSuffix(err.Error(), "/link is a link: give the directory that it leads to, "+dir+"/c") {
		t.Errorf("got %v", err)
	}
}

// TestLink: a cache is not used through a link; links above it do not matter.
func TestLink(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "root/c/job.json", job, "other/x", "")
	for link, target := range map[string]string{"link": "root/c", "up": "root", "root/more": "c", "root/else": "../other", "nothing": "no"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	var wrong *LinkError
	for _, name := range []string{"link", "link/", "up/more", "root/../link", "nothing", "nothing/"} {
		if err := CheckLink(dir + "/" + name); !errors.As(err, &wrong) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"root/c", "up/c", "up/c/", "new", "up/new", "root/c/."} {
		if err := CheckLink(dir + "/" + name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if c, err := Look(dir + "/link"); !errors.As(err, &wrong) || wrong.Target != dir+"/root/c" || c.Source == "" {
		t.Errorf("Look: %+v, %v", c, err)
	}
	if _, err := List(dir + "/link"); !errors.As(err, &wrong) {
		t.Errorf("List of a link to a cache: %v", err)
	}
	found, err := List(dir + "/up")
	if err != nil || len(found) != 2 || found[0].Link != "" || found[1].Link != dir+"/root/c" || found[1].Source != "" {
		t.Errorf("List: %+v, %v", found, err)
	}
}

// TestFolder has the same examples as the Python client's test, so lcache.open finds the caches of lcache run, and
// the reverse.
func TestFolder(t *testing.T) {
	var elsewhere Listing
	elsewhere.Remote.S3.Endpoint = "http://minio:9000"
	for _, c := range []struct {
		source string
		as     Listing
		want   string
	}{
		{"/data/train", Listing{}, "train-198aece3"},
		{"/data/train", Listing{Exts: []string{".jpg", ".png"}}, "train-cabd17d3"},
		{"/data/train", Listing{Exts: []string{"jpg"}, Flat: true}, "train-34cd0918"},
		{"/data/train", Listing{Flat: true}, "train-413d6274"},
		{"/data/train", Listing{Flat: true, Labels: "/data/train.csv"}, "train-7bb474a8"},
		{"/", Listing{}, "root-8a5edab2"},
		{"/d/ä b", Listing{}, "ä_b-59a74698"},
		{"/x/f\xff", Listing{}, "f_-c9e270a2"},
		{"s3://bucket/imagenet/train", Listing{}, "train-416a9d1d"},
		{"tar:/data/train-{000..146}.tar", Listing{}, "train-_000..146_.tar-32d075a5"},
		{"tar:/d/a.tar", Listing{FirstPart: "png"}, "a.tar-12ffc80c"},
		{"arrow:/d/x-*.arrow", Listing{Flat: true, RecordFlags: map[string]string{"label-column": "y", "columns": "a,b"}}, "x-_.arrow-0b7cd7fc"},
		{"s3://bucket/train/", elsewhere, "train-7d45d937"},
		{"/x/" + strings.Repeat("n", 100), Listing{}, strings.Repeat("n", 80) + "-abcccf57"},
	} {
		if got := Folder(c.source, c.as); got != c.want {
			t.Errorf("%q %+v: got %s, want %s", c.source, c.as, got, c.want)
		}
	}
}

func TestDefaultRoot(t *testing.T) {
	t.Setenv("HOME", "/home/u")
	for _, c := range []struct{ xdg, root, from string }{
		{"/x", "/x/lcache", "$XDG_CACHE_HOME"},
		{"", "/home/u/.cache/lcache", "your home"},
		{"relative", "/home/u/.cache/lcache", "your home"},
	} {
		t.Setenv("XDG_CACHE_HOME", c.xdg)
		if root, from, err := DefaultRoot(); err != nil || root != c.root || from != c.from {
			t.Errorf("%q: got %s, %s, %v", c.xdg, root, from, err)
		}
	}
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	if _, _, err := DefaultRoot(); err == nil || !strings.Contains(err.Error(), "give --cache ROOT") {
		t.Errorf("without a home: got %v", err)
	}
}
