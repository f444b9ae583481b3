package launch

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// TestPlantedRecord: a job.json in a root that all can write makes the root a cache only if it is this user's: then opening it says what to do. Anybody else's would keep all from using the root.
func TestPlantedRecord(t *testing.T) {
	root := t.TempDir()
	if err := syscall.Chmod(root, 0o1777); err != nil {
		t.Fatal(err)
	}
	record := filepath.Join(root, "job.json")
	r := &run{Options: Options{Roots: []string{root}}}
	for mode, isCache := range map[uint32]bool{0o600: true, 0o666: false} {
		if err := os.WriteFile(record, []byte(`{"schema": 1, "source": "/data/train"}`), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Chmod(record, mode); err != nil {
			t.Fatal(err)
		}
		if dirs := r.home("/data/train").dirs; slices.Equal(dirs, []string{root}) != isCache {
			t.Errorf("job.json of mode %04o: the cache is in %v", mode, dirs)
		}
	}
}
