package testenv

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlaces: a folder is in memory if there is room, otherwise with the temporary files. It is empty, and removed
// after its test.
func TestPlaces(t *testing.T) {
	was, room := memory, least
	defer func() { memory, least = was, room }()
	temporary, other := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temporary)
	for _, c := range []struct {
		name, memory, want string
		least              int64
	}{
		{"room", other, other, 0},
		{"no room", other, temporary, math.MaxInt64},
		{"no such file system", filepath.Join(other, "none"), temporary, 0},
		{"no folder", "/proc", temporary, 0},
	} {
		memory, least = c.memory, c.least
		var dir string
		t.Run(c.name, func(t *testing.T) {
			dir = SourceDir(t)
			if files, err := os.ReadDir(dir); err != nil || len(files) > 0 || !strings.HasPrefix(dir, c.want+"/") {
				t.Errorf("%s has %v, %v; want a folder in %s", dir, files, err, c.want)
			}
			if err := os.WriteFile(filepath.Join(dir, "a"), []byte("a"), 0o600); err != nil {
				t.Fatal(err)
			}
		})
		if left, err := filepath.Glob(c.want + "/*"); err != nil || len(left) > 0 {
			t.Errorf("%s: left are %q, %v", c.name, left, err)
		}
	}
}
