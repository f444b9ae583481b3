package source_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"lcache/source"
	"lcache/source/sourcetest"
)

// TestDirReadPlanted: a sample that was replaced by something else is reported as changed, gone or refused. It is
// never read from elsewhere, and never hangs.
func TestDirReadPlanted(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("0123456789"), 0o666); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name  string
		plant func(path string) error
		want  string
	}{
		{"fifo", func(p string) error { return syscall.Mkfifo(p, 0o666) }, "not a regular file"},
		{"folder", func(p string) error { return os.Mkdir(p, 0o777) }, "not a regular file"},
		{"link out", func(p string) error { return os.Symlink(secret, p) }, "leaves the source"},
		{"link to nothing", func(p string) error { return os.Symlink("no", p) }, "gone from the source"},
		{"link to itself", func(p string) error { return os.Symlink("x", p) }, "remove the link"},
	}
	for i, tt := range append(tests, tests...) {
		t.Run(tt.name, func(t *testing.T) {
			tr := newTree(t, files("a/x", "a/y"))
			s := tr.open(t, source.Options{NoFollowLinks: true})
			if i >= len(tests) {
				source.WithoutOpenat2(s)
			}
			_, entries, err := s.List(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(tr.Remove("a/x"), tt.plant(tr.path("a/x"))); err != nil {
				t.Fatal(err)
			}
			dst := make([]byte, entries[0].Size)
			err = s.Read(t.Context(), entries[0], dst)
			var se *source.SampleError
			if !errors.As(err, &se) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), `"a/x"`) {
				t.Errorf("Read: %v, want %q", err, tt.want)
			}
		})
	}
}

// hook is a context that calls a function at its n-th check, which is between two chunks of a read. So the test has
// no race.
type hook struct {
	context.Context
	looks int
	then  func() error
}

func (h *hook) Err() error {
	if h.looks--; h.looks == 0 {
		return h.then()
	}
	return nil
}

func TestDirChangedWhileRead(t *testing.T) {
	const size = 3<<20 + 5
	tests := []struct {
		name string
		then func(tr *tree) error
		want error
	}{
		{"written", func(tr *tree) error { return tr.Write("a/x", sourcetest.Content(9, size)) }, source.ErrChanged},
		{"cut", func(tr *tree) error { return tr.Write("a/x", nil) }, source.ErrChanged},
		{"grown", func(tr *tree) error { return tr.Write("a/x", sourcetest.Content(9, size+1)) }, source.ErrChanged},
		{"cancelled", func(*tree) error { return context.Canceled }, context.Canceled},
		{"replaced", func(tr *tree) error { return tr.Replace("a/x", sourcetest.Content(9, size)) }, nil}, // the old file has the right bytes
		{"removed", func(tr *tree) error { return tr.Remove("a/x") }, nil},
	}
	for _, tt := range tests {
		for looks := 2; looks <= 5; looks++ { // the first check is before the open, then there is one before each of four chunks
			tr := newTree(t, map[string][]byte{"a/x": sourcetest.Content(1, size)})
			s := tr.open(t, source.Options{})
			_, entries, err := s.List(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			dst := make([]byte, size)
			err = s.Read(&hook{t.Context(), looks, func() error { return tt.then(tr) }}, entries[0], dst)
			if !errors.Is(err, tt.want) {
				t.Errorf("%s at look %d: %v, want %v", tt.name, looks, err, tt.want)
			}
			if err == nil && !bytes.Equal(dst, sourcetest.Content(1, size)) {
				t.Errorf("%s at look %d: other bytes than those listed, and no error", tt.name, looks)
			}
		}
	}
}

func TestDirUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root reads everything: run as another user")
	}
	tr := newTree(t, files("a/x", "b/y"))
	s := tr.open(t, source.Options{})
	_, entries, err := s.List(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(tr.path("a/x"), 0), os.Chmod(tr.path("b"), 0)); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(tr.path("b"), 0o777)
	if err := s.Read(t.Context(), entries[0], make([]byte, entries[0].Size)); !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "make it readable") {
		t.Errorf("Read of an unreadable file: %v", err)
	}
	if _, _, err := s.List(t.Context(), nil); !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("List of an unreadable folder: %v", err)
	}
}
