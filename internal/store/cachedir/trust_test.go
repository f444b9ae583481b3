package cachedir

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"lcache/internal/trust"
)

// TestUntrusted: if other users could have written to a cache, nothing of it is read or removed. A list shows it,
// with the reason.
func TestUntrusted(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "root/fine/job.json", job, "root/open/job.json", job, "root/open/arena", "samples", "root/file/FORMAT", format(0, 1), "root/file/importance-run", "values", "root/other/notes", "")
	for name, mode := range map[string]uint32{"open": 0o777, "file/importance-run": 0o660, "other": 0o777} {
		if err := syscall.Chmod(filepath.Join(dir, "root", name), mode); err != nil {
			t.Fatal(err)
		}
	}
	for name, at := range map[string]string{"open": "open", "file": "file/importance-run"} {
		path := filepath.Join(dir, "root", name)
		untrusted := new(trust.Error)
		if c, err := Look(path); !errors.As(err, &untrusted) || untrusted.Path != filepath.Join(dir, "root", at) || c.Source != "" || c.Bytes != 0 {
			t.Errorf("Look: %+v, %v", c, err)
		}
		if _, _, err := Remove(path); !errors.As(err, &untrusted) {
			t.Errorf("Remove: %v", err)
		}
		if _, err := RemoveAll([]string{filepath.Join(dir, "root/fine"), path}); !errors.As(err, &untrusted) {
			t.Errorf("RemoveAll: %v", err)
		}
		if err := CheckTrust(path); !errors.As(err, &untrusted) {
			t.Errorf("CheckTrust: %v", err)
		}
	}
	if _, err := Look(filepath.Join(dir, "root/other")); !errors.Is(err, ErrNotCache) {
		t.Errorf("a directory that is not a cache: got %v, want ErrNotCache", err)
	}
	found, err := List(filepath.Join(dir, "root"))
	if err != nil || len(found) != 3 || found[1].Source != "/data/train" || found[1].Untrusted != "" || found[0].Source != "" ||
		!strings.Contains(found[0].Untrusted, "importance-run can be written by other users") || !strings.Contains(found[2].Untrusted, "open can be written by other users") {
		t.Errorf("List: %+v, %v", found, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "root/open/arena")); err != nil {
		t.Error(err)
	}
	if err := CheckTrust(filepath.Join(dir, "new")); err != nil {
		t.Errorf("a directory that does not exist: %v", err)
	}
}

// TestWarnOfFolders: one line, however many directories of the cache are in such folders.
func TestWarnOfFolders(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "shared/a/job.json", job, "shared/b/job.json", job)
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	dirs := []string{filepath.Join(dir, "shared/a"), filepath.Join(dir, "shared/b")}
	for mode, lines := range map[uint32]int{0o755: 0, 0o775: 0, 0o1777: 0, 0o777: 1} {
		log.Reset()
		if err := syscall.Chmod(filepath.Join(dir, "shared"), mode); err != nil {
			t.Fatal(err)
		}
		WarnOfFolders(logger, dirs)
		if got := log.String(); strings.Count(got, "level=WARN") != lines || lines > 0 && (!strings.Contains(got, "folder="+dir+"/shared ") || !strings.Contains(got, "chmod +t")) {
			t.Errorf("mode %04o: logged %q", mode, got)
		}
	}
}
