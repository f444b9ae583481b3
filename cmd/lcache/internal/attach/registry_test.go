package attach

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestRegistry(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "lcache")
	if found, err := Registered(dir); err != nil || len(found) != 0 {
		t.Fatalf("no registry: got %v, %v", found, err)
	}
	e, err := Register(dir, "some.sock", []string{"/nvme/train"})
	if err != nil {
		t.Fatal(err)
	}
	// What a killed server and a stranger leave there is skipped; the first is removed too.
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	stale := filepath.Join(dir, "stale.json")
	writeFile(t, stale, `{"pid": `+strconv.Itoa(gone.Process.Pid)+`, "socket": "/x"}`)
	writeFile(t, filepath.Join(dir, "garbage.json"), "{")
	writeFile(t, filepath.Join(dir, "note.txt"), "")

	found, err := Registered(dir)
	if err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs("some.sock")
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 || found[0].PID != os.Getpid() || found[0].Socket != here || found[0].Cache[0] != "/nvme/train" {
		t.Errorf("found %+v", found)
	}
	if _, err := os.Lstat(stale); err == nil {
		t.Error("the file of a process that is gone stays")
	}
	e.Remove()
	if found, err := Registered(dir); err != nil || len(found) != 0 {
		t.Errorf("after removal: got %v, %v", found, err)
	}
	var none *Entry
	none.Remove() // what register returns with an error
}

// TestForeignRegistry is why the folder is looked at before it is believed: anybody can make one in /tmp.
func TestForeignRegistry(t *testing.T) {
	open := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		open: "registry " + open + " can be written by other users: ",
		link: "registry " + link + " is not a directory of this user: ",
	} {
		if _, err := Registered(dir); err == nil || !strings.HasPrefix(err.Error(), want) || !strings.HasSuffix(err.Error(), ": remove it") {
			t.Errorf("registered: got %v, want %s", err, want)
		}
		if e, err := Register(dir, "s", nil); err == nil || !strings.HasPrefix(err.Error(), want) || e != nil {
			t.Errorf("register: got %v, want %s", err, want)
		}
	}
}

func TestDir(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/7")
	if got := Dir(); got != "/run/user/7/lcache" {
		t.Errorf("got %s", got)
	}
	t.Setenv("XDG_RUNTIME_DIR", "")
	if got, want := Dir(), filepath.Join(os.TempDir(), "lcache-"+strconv.Itoa(os.Getuid())); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestRegisterTwice: a process may have several servers, and each has a file of its own.
func TestRegisterTwice(t *testing.T) {
	dir := t.TempDir() + "/lcache"
	var entries []*Entry
	for _, socket := range []string{"/a", "/b", "/c"} {
		e, err := Register(dir, socket, nil)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	entries[1].Remove()
	found, err := Registered(dir)
	if err != nil || len(found) != 2 || found[0].Socket != "/a" || found[1].Socket != "/c" {
		t.Errorf("got %+v, %v", found, err)
	}
}
