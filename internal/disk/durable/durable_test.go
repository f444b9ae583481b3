package durable_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"lcache/internal/disk/durable"
	"lcache/internal/disk/durable/durabletest"
)

var (
	first  = bytes.Repeat([]byte("the first version. "), 1000)
	second = bytes.Repeat([]byte("second version! "), 2000)
)

// crashes calls do on a directory with an old file "f". It returns the possible states of f after a power cut at any
// step: "old", "new", "none" or "torn".
func crashes(t *testing.T, do func(path string, trace durable.Trace) error) (found []string) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, first, 0o600); err != nil {
		t.Fatal(err)
	}
	d := durabletest.New()
	d.Load(t, dir)
	r := rand.New(rand.NewPCG(1, 2))
	d.Step = func() {
		for n := range 60 {
			b, there := d.Crash(r, float64(n%3)/2)[path]
			found = append(found, name(b, there))
		}
	}
	if err := do(path, d.Trace); err != nil {
		t.Fatal(err)
	}
	d.Locked(d.Step)
	return found
}

func name(b []byte, there bool) string {
	switch {
	case !there:
		return "none"
	case bytes.Equal(b, first):
		return "old"
	case bytes.Equal(b, second):
		return "new"
	}
	return "torn"
}

func TestCrashReplace(t *testing.T) {
	for what, do := range map[string]func(path string, trace durable.Trace) error{
		"in one call": func(path string, trace durable.Trace) error { return trace.ReplaceFile(path, second) },
		"in pieces": func(path string, trace durable.Trace) error {
			return trace.Replace(path, func(v *durable.Version) error {
				if err := v.Reserve(int64(len(second))); err != nil {
					return err
				}
				_, err := v.Write(second[:5000])
				_, more := v.Write(second[5000:])
				_, over := v.WriteAt(second[:100], 0)
				return errors.Join(err, more, over)
			})
		},
		"by a durable file's name": func(path string, trace durable.Trace) error {
			if err := trace.ReplaceFile(path+".listed", second); err != nil {
				return err
			}
			return trace.Rename(path+".listed", path)
		},
	} {
		found := crashes(t, do)
		if slices.Contains(found, "torn") || slices.Contains(found, "none") {
			t.Errorf("%s: a crash leaves neither version", what)
		}
		if !slices.Contains(found, "old") || !slices.Contains(found, "new") || slices.Contains(found[len(found)-60:], "old") {
			t.Errorf("%s: want the old version at first, and only the new one at the end", what)
		}
	}
}

// A replacement without one of its syncs is detected by the same crashes. So TestCrashReplace does prove something.
func TestCrashesFindAMissingSync(t *testing.T) {
	for _, c := range []struct {
		without durable.Step
		want    string
	}{{durable.StepSynced, "torn"}, {durable.StepSyncedDir, "old"}} {
		found := crashes(t, func(path string, trace durable.Trace) error {
			return durable.Trace(func(change durable.Change) error {
				if change.Step == c.without {
					return nil
				}
				return trace(change)
			}).ReplaceFile(path, second)
		})
		if !slices.Contains(found[len(found)-60:], c.want) {
			t.Errorf("without %q no crash after the end leaves the file %s", c.without, c.want)
		}
	}
}

func TestRemove(t *testing.T) {
	found := crashes(t, func(path string, trace durable.Trace) error { return trace.Remove(path) })
	if slices.Contains(found, "torn") || !slices.Contains(found, "old") || slices.Contains(found[len(found)-60:], "old") {
		t.Error("a removal is not durable when it returns")
	}
	if err := durable.Trace(nil).Remove(filepath.Join(t.TempDir(), "none")); err != nil {
		t.Errorf("remove a file that is not there: %v", err)
	}
}

// Each step is refused once. The error is that step's. The file is the old one, or after the rename the new one. No
// temporary file stays.
func TestRefusedSteps(t *testing.T) {
	refusal := errors.New("refused")
	for nth := range 20 {
		path := filepath.Join(t.TempDir(), "f")
		if err := durable.ReplaceFile(path, first); err != nil {
			t.Fatal(err)
		}
		n, want := 0, "old"
		var refused fmt.Stringer
		err := durable.Trace(func(c durable.Change) error {
			if n++; n == nth+1 {
				refused = c.Step
				return refusal
			}
			if c.Step == durable.StepRename {
				want = "new"
			}
			return nil
		}).ReplaceFile(path, second)
		if refused == nil {
			if err != nil || nth < 6 {
				t.Errorf("%d steps, then %v", nth, err)
			}
			return
		}
		b, readErr := os.ReadFile(path)
		if got := name(b, readErr == nil); !errors.Is(err, refusal) || got != want {
			t.Errorf("%v refused: %v, the file is %s, want %s", refused, err, got, want)
		}
		if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
			t.Errorf("%v refused: the directory has %v, %v", refused, entries, err)
		}
	}
	t.Error("a replacement has no end")
}

// A write that fails at any point leaves only the old file.
func TestReplaceFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	boom := errors.New("boom")
	if err := durable.ReplaceFile(path, []byte("old")); err != nil {
		t.Fatal(err)
	}
	fails := map[string]func(v *durable.Version) error{
		"at once":      func(*durable.Version) error { return boom },
		"half written": func(v *durable.Version) error { v.Write([]byte("ne")); return boom },
		"sync":         func(v *durable.Version) error { v.Write([]byte("new")); return v.File.Close() }, // so Sync and Close fail
	}
	for name, fill := range fails {
		if err := durable.Replace(path, fill); err == nil {
			t.Errorf("%s: no error", name)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != "old" {
			t.Errorf("%s: file is %q, %v", name, b, err)
		}
		if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
			t.Errorf("%s: left %v, %v", name, list, err)
		}
	}
	// The leftover of a crash is removed.
	if err := os.WriteFile(path+".new", []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := durable.ReplaceFile(path, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "new" {
		t.Errorf("file is %q, %v", b, err)
	}
}

// The leftover of a crash under the temporary name is removed, even if it is a link that would lead the new bytes
// elsewhere.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "f"), filepath.Join(dir, "other")
	if err := os.Symlink(other, path+".new"); err != nil {
		t.Fatal(err)
	}
	if err := durable.ReplaceFile(path, second); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Lstat(path); err != nil || st.Mode() != 0o600 {
		t.Errorf("the new file is %v, %v", st, err)
	}
	if _, err := os.Lstat(other); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the link's target: %v", err)
	}
	if err := durable.ReplaceFile(filepath.Join(dir, "none", "f"), second); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in a directory that is not there: %v", err)
	}
}
