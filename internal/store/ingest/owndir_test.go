package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"lcache/internal/trust"
)

// TestDirectoryOfAnother: an empty directory of another user is refused before anything is written to it. The error
// has the command that makes a private one.
func TestDirectoryOfAnother(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give a directory to another user")
	}
	src, dir := t.TempDir(), filepath.Join(t.TempDir(), "scratch")
	if err := errors.Join(os.WriteFile(filepath.Join(src, "1"), []byte("sample"), 0o600), os.Mkdir(dir, 0o755), os.Chown(dir, 61001, 61001)); err != nil {
		t.Fatal(err)
	}
	_, err := Run(context.Background(), Options{Source: src, Dirs: []string{dir}, Logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), dir+" belongs to user 61001") || !strings.Contains(err.Error(), "run mkdir -p -m 700 "+dir+"/lcache-0, and give it as --cache") {
		t.Errorf("got %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("made %v, %v", entries, err)
	}
}

// TestOwnDirectory checks the advice for each kind of directory.
func TestOwnDirectory(t *testing.T) {
	dir := t.TempDir()
	cacheIn := filepath.Join(dir, "cache")
	if err := errors.Join(os.Mkdir(cacheIn, 0o700), os.WriteFile(filepath.Join(cacheIn, "FORMAT"), nil, 0o600), os.Mkdir(filepath.Join(dir, "empty"), 0o700)); err != nil {
		t.Fatal(err)
	}
	other := errors.New("another error")
	if err := ownDirectory(other); err != other {
		t.Errorf("another error: %v", err)
	}
	for _, c := range []struct {
		name, want string
		mode       uint32
	}{
		{"empty", "chmod -R go-w ", 0o775},
		{"empty", fmt.Sprintf("mkdir -p -m 700 %s/empty/lcache-%d", dir, os.Geteuid()), 0o777},
		{"cache", "chmod -R go-w ", 0o777},
	} {
		path := filepath.Join(dir, c.name)
		if err := syscall.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		if err := ownDirectory(trust.Dir(path)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with mode %04o: got %v, want %s", c.name, c.mode, err, c.want)
		}
	}
}
