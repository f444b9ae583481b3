package trust

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// otherUser is the id of a user without a name or files.
const otherUser = 61001

func write(t *testing.T, path string, mode fs.FileMode) string {
	t.Helper()
	if err := errors.Join(os.WriteFile(path, []byte("12345678"), 0o600), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
	return path
}

func makeDir(t *testing.T, path string, mode fs.FileMode) string {
	t.Helper()
	if err := errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
	return path
}

// isUntrusted checks that an error is an *Error, matches fs.ErrPermission, and has the path and the advice.
func isUntrusted(t *testing.T, err error, path string, advice ...string) {
	t.Helper()
	untrusted := new(Error)
	if !errors.As(err, &untrusted) || !errors.Is(err, fs.ErrPermission) || untrusted.Path != path {
		t.Errorf("%s: got %v, want an error of trust", path, err)
		return
	}
	for _, text := range append(advice, path, "user ", "another --cache") {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %q does not say %q", path, err, text)
		}
	}
}

// TestModes: a file that only its owner can write is trusted, even if all users can read it. A file that the group or
// others can write is not.
func TestModes(t *testing.T) {
	dir := t.TempDir()
	path := write(t, filepath.Join(dir, "f"), 0o600)
	for mode, trusted := range map[fs.FileMode]bool{0o600: true, 0o400: true, 0o644: true, 0o755: true, 0o620: false, 0o602: false, 0o666: false, 0o664: false} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		f, err := Open(path, os.O_RDONLY)
		if trusted {
			if err != nil || f.Close() != nil || File(path) != nil {
				t.Errorf("mode %04o: %v, %v", mode, err, File(path))
			}
			if b, err := ReadFile(path, 8); err != nil || string(b) != "12345678" {
				t.Errorf("mode %04o: read %q, %v", mode, b, err)
			}
			continue
		}
		isUntrusted(t, err, path, "chmod -R go-w")
		isUntrusted(t, File(path), path)
		_, err = ReadFile(path, 8)
		isUntrusted(t, err, path)
	}
	for mode, trusted := range map[fs.FileMode]bool{0o700: true, 0o710: true, 0o755: true, 0o755 | fs.ModeSetgid: true, 0o775: false, 0o777: false, 0o777 | fs.ModeSticky: false, 0o770: false} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if err := Dir(dir); trusted && err != nil {
			t.Errorf("directory of mode %v: %v", mode, err)
		} else if !trusted {
			isUntrusted(t, err, dir, "chmod -R go-w")
		}
	}
}

// TestOwners: another user's file is not trusted. Root trusts only root.
func TestOwners(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give files to another user")
	}
	dir := makeDir(t, filepath.Join(t.TempDir(), "d"), 0o755)
	path := write(t, filepath.Join(dir, "f"), 0o644)
	if err := errors.Join(os.Chown(dir, otherUser, otherUser), os.Chown(path, otherUser, otherUser)); err != nil {
		t.Fatal(err)
	}
	_, err := Open(path, os.O_RDONLY)
	isUntrusted(t, err, path, "chown -R 0 ", "sudo -u '#61001' ", "61001", "root trusts only")
	isUntrusted(t, Dir(dir), dir, "chown -R 0 ", "61001")
}

// TestRootIsTrusted: a user trusts the files of root, but not the files of a third user. The test runs itself as another
// user.
func TestRootIsTrusted(t *testing.T) {
	const variable = "TRUST_TEST_FOLDER"
	if dir := os.Getenv(variable); dir != "" {
		if _, err := ReadFile(filepath.Join(dir, "roots"), 8); err != nil || Dir(dir) != nil {
			t.Errorf("root's file and directory: got %v and %v, want both trusted", err, Dir(dir))
		}
		if _, err := ReadFile(filepath.Join(dir, "own"), 8); err != nil {
			t.Errorf("the user's own file: got %v, want it trusted", err)
		}
		path := filepath.Join(dir, "thirds")
		_, err := ReadFile(path, 8)
		isUntrusted(t, err, path, "not to user 61001", "have root run chown -R 61001 ")
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be two users")
	}
	dir := t.TempDir()
	for folder := dir; folder != os.TempDir() && folder != "/"; folder = filepath.Dir(folder) {
		if err := os.Chmod(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "roots"), 0o644)
	if err := errors.Join(os.Chown(write(t, filepath.Join(dir, "own"), 0o600), otherUser, otherUser), os.Chown(write(t, filepath.Join(dir, "thirds"), 0o644), otherUser+1, otherUser+1)); err != nil {
		t.Fatal(err)
	}
	again := exec.Command("/proc/self/exe", "-test.run=^TestRootIsTrusted$", "-test.v")
	again.Dir, again.Env = dir, append(os.Environ(), variable+"="+dir)
	again.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: otherUser, Gid: otherUser}}
	if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("as another user: %v\n%s", err, out)
	}
}

// TestOnlyRegularFiles: only regular files are opened, and a pipe does not block.
func TestOnlyRegularFiles(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	listener, err := net.Listen("unix", path("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := errors.Join(unix.Mkfifo(path("pipe"), 0o600), os.Symlink(write(t, path("file"), 0o600), path("link"))); err != nil {
		t.Fatal(err)
	}
	makeDir(t, path("folder"), 0o700)
	for _, name := range []string{"pipe", "link", "folder", "socket", "none"} {
		for _, flag := range []int{os.O_RDONLY, os.O_WRONLY, os.O_RDWR} {
			opened := make(chan error, 1)
			go func() {
				f, err := Open(path(name), flag)
				if err == nil {
					f.Close()
				}
				opened <- err
			}()
			select {
			case err := <-opened:
				if err == nil || !strings.Contains(err.Error(), path(name)) || errors.Is(err, fs.ErrNotExist) != (name == "none") {
					t.Errorf("%s, flag %d: %v", name, flag, err)
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("%s, flag %d: open waits", name, flag)
			}
		}
		if name != "none" && File(path(name)) != nil {
			t.Errorf("%s: %v", name, File(path(name)))
		}
	}
	if err := Dir(path("link")); err == nil {
		t.Error("a link as a directory")
	}
	if _, err := ReadFile(path("file"), 7); err == nil || !strings.Contains(err.Error(), "8 bytes") {
		t.Errorf("a file of 8 bytes, with a limit of 7: %v", err)
	}
}

// TestNewFiles: a new file is only for its owner, whatever the umask. Later calls on it wait for the disk, as for any
// file.
func TestNewFiles(t *testing.T) {
	old := unix.Umask(0)
	defer unix.Umask(old)
	path := filepath.Join(t.TempDir(), "f")
	f, err := Open(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || st.Mode() != 0o600 || f.Name() != path {
		t.Errorf("%s has mode %v, %v", f.Name(), st.Mode(), err)
	}
	fd, err := OpenFd(path, os.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 {
		t.Errorf("flags %#o, %v", flags, err)
	}
}

// TestOpenFolder: finds the folder above a cache in which every user can replace entries.
func TestOpenFolder(t *testing.T) {
	top := makeDir(t, filepath.Join(t.TempDir(), "top"), 0o755)
	middle := makeDir(t, filepath.Join(top, "middle"), 0o755)
	cache := filepath.Join(middle, "cache") // need not exist
	for _, c := range []struct {
		top, middle fs.FileMode
		want        string
	}{
		{0o755, 0o755, ""},
		{0o755, 0o775, ""},
		{0o755, 0o777 | fs.ModeSticky, ""},
		{0o777 | fs.ModeSticky, 0o755, ""},
		{0o777, 0o755, top},
		{0o777, 0o777, middle},
		{0o755, 0o773, middle},
	} {
		if err := errors.Join(os.Chmod(top, c.top), os.Chmod(middle, c.middle)); err != nil {
			t.Fatal(err)
		}
		if got := OpenFolder(cache); got != c.want {
			t.Errorf("%v above %v: got %q, want %q", c.top, c.middle, got, c.want)
		}
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(middle, link); err != nil {
		t.Fatal(err)
	}
	if got := OpenFolder(filepath.Join(link, "cache")); got != middle {
		t.Errorf("by a link: got %q, want %q", got, middle)
	}
}
