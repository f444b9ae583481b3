package cluster

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lcache/internal/errcode"
)

// write writes a file with exactly these permissions.
func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func testKey(t *testing.T) *Key {
	t.Helper()
	k, err := ReadKey(write(t, filepath.Join(t.TempDir(), "key"), NewKey(), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestKeysOfOneFileAreEqual(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "key"), NewKey(), 0o400)
	link := filepath.Join(t.TempDir(), "link") // as a Secret of Kubernetes is
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	a, err := ReadKey(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := ReadKey(link)
	if err != nil {
		t.Fatal(err)
	}
	if string(a.gossip) != string(b.gossip) || a.label != b.label || !a.authority.Equal(b.authority) {
		t.Error("one file gives two keys")
	}
	if other := testKey(t); string(a.gossip) == string(other.gossip) || a.label == other.label || a.authority.Equal(other.authority) {
		t.Error("two files give one key")
	}
	if len(a.gossip) != 32 || len(a.label) > 255 {
		t.Errorf("memberlist takes no key of %d bytes, or no label of %d", len(a.gossip), len(a.label))
	}
}

// TestLabel: the Python client computes the same label. Without a key there is none.
func TestLabel(t *testing.T) {
	k, err := ReadKey(write(t, filepath.Join(t.TempDir(), "key"), strings.Repeat("00", 31)+"01\n", 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if got, none := k.Label(), (*Key)(nil).Label(); got != "lcache-M2Qj08aMV4cDMQK8" || none != "" {
		t.Errorf("labels %q and %q", got, none)
	}
}

func TestBadKeyFiles(t *testing.T) {
	dir := t.TempDir()
	key := NewKey()
	for _, c := range []struct{ name, path, want string }{
		{"others may read it", write(t, dir+"/a", key, 0o644), "chmod 600"},
		{"others may write it", write(t, dir+"/b", key, 0o602), "chmod 600"},
		{"its group may write it", write(t, dir+"/c", key, 0o620), "chmod 600"},
		{"it is too short", write(t, dir+"/d", key[:62], 0o600), "lcache cluster key"},
		{"it is too long", write(t, dir+"/e", key+"00", 0o600), "lcache cluster key"},
		{"it is empty", write(t, dir+"/f", "", 0o600), "lcache cluster key"},
		{"it is a directory", dir, "not a regular file"},
		{"it is endless", "/dev/zero", "not a regular file"},
	} {
		_, err := ReadKey(c.path)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.path) {
			t.Errorf("%s: the error is %v, want the path and %q", c.name, err, c.want)
			continue
		}
		if code, _ := errcode.Of(err); code != errcode.ClusterKey {
			t.Errorf("%s: the code is %s", c.name, code)
		}
		if strings.Contains(err.Error(), strings.TrimSpace(key)) {
			t.Errorf("%s: the error tells the key", c.name)
		}
	}
	if _, err := ReadKey(dir + "/none"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "make one with lcache cluster key") {
		t.Errorf("no file: %v", err)
	}
}

// A key that root gives to a group is for a Secret with fsGroup. One that a user gives to a group is not: any member could be anybody.
func TestGroupReadsRootsKeyOnly(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	path := write(t, filepath.Join(t.TempDir(), "key"), NewKey(), 0o440)
	if _, err := ReadKey(path); err != nil {
		t.Errorf("root's key with mode 0440: %v", err)
	}
	if err := os.Chown(path, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadKey(path); err == nil || !strings.Contains(err.Error(), "12345") {
		t.Errorf("another user's key: %v", err)
	}
}
