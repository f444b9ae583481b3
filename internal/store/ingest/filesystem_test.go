package ingest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"lcache/internal/store/cachedir"
)

// Tests may make caches in temporary folders that are in memory.
func init() { os.Setenv("LCACHE_TMPFS", "1") }

func TestRefuseMemory(t *testing.T) {
	var st unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &st); err != nil || st.Type != unix.TMPFS_MAGIC {
		t.Skip("/dev/shm is not a tmpfs here")
	}
	for value, refused := range map[string]bool{"": true, "0": true, "1": false} {
		t.Setenv("LCACHE_TMPFS", value)
		err := refuseFileSystem("/dev/shm")
		if got := err != nil; got != refused {
			t.Errorf("LCACHE_TMPFS=%s: got %v", value, err)
		}
		if refused && !strings.HasPrefix(err.Error(), "/dev/shm is in memory (tmpfs), which the cache would take from training: a cache belongs on a local SSD") {
			t.Errorf("got %v", err)
		}
	}
	if err := refuseFileSystem("/proc"); err != nil {
		t.Errorf("another file system: %v", err)
	}
}

// File systems that are only slow are not refused.
func TestRefuseNetwork(t *testing.T) {
	want := "/cache is on a network file system (nfs): a cache belongs on a local SSD; give another --cache"
	if err := refuseKind("/cache", "nfs", cachedir.Network); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	for _, nature := range []cachedir.Nature{cachedir.Local, cachedir.Copying, cachedir.Layered, cachedir.User, cachedir.Unknown} {
		if err := refuseKind("/cache", "any", nature); err != nil {
			t.Errorf("%s: %v", nature, err)
		}
	}
}

// TestRefuseInside: a cache inside its source is refused, also behind symbolic links, and also if its directory does not exist yet.
func TestRefuseInside(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"data/classes", "data-too"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"linked": "data", "data/out": "../data-too"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		cache, source string
		refused       bool
	}{
		{"data", "data", true}, {"data/classes", "data", true}, {"data/new/cache", "data", true}, {"linked/cache", "data", true}, {"data/cache", "linked", true},
		{"data-too", "data", false}, {"cache", "data", false}, {"data/cache", "data/classes", false}, {"data/out/cache", "data", false}, {"cache", "s3://bucket", false},
	} {
		err := refuseInside(filepath.Join(root, c.cache), filepath.Join(root, c.source))
		if got := err != nil; got != c.refused {
			t.Errorf("cache %s of %s: %v", c.cache, c.source, err)
		}
	}
	if err := refuseInside("/cache", "/"); err == nil {
		t.Error("everything is inside the root")
	}
}
