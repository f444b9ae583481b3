package engine

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lcache/internal/store/ingest"

	"github.com/zeebo/xxh3"
)

// contents returns the sums of all files below root except the locks.
func contents(t *testing.T, root string) map[string]uint64 {
	t.Helper()
	all := map[string]uint64{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == "LOCK" {
			return err
		}
		b, err := os.ReadFile(path)
		all[path] = xxh3.Hash(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A directory that is given to ingest may have another cache in it. Ingest must not remove that cache.
func TestIngestRefusesOthersDirectories(t *testing.T) {
	d := makeDataset(t, 60, func(r *rand.Rand, _ int) int { return r.IntN(20_000) })
	for _, tt := range []struct {
		name   string
		dirs   []string // each is "one", a cache, or part of a cache over "a" and "b", or over "c" and "d"
		budget int64    // another budget than these caches have, so that the cache would be made again
		names  string   // the directory that is said to be in the way
	}{
		{"a cache and a new directory", []string{"new", "one"}, 0, "one"},
		{"a part of a cache and a new directory", []string{"new", "b"}, 0, "b"},
		{"a cache and a part of another", []string{"a", "one"}, 0, "one"},
		{"parts of two caches", []string{"a", "d"}, 0, "d"},
		{"parts of two caches, with another budget", []string{"a", "d"}, 24 << 20, "d"},
		{"the other order", []string{"b", "a"}, 0, "b"},
		{"the second half alone", []string{"b"}, 0, "b"},
		{"the first half alone", []string{"a"}, 24 << 20, "a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			at := func(names ...string) (dirs []string) {
				for _, name := range names {
					dirs = append(dirs, filepath.Join(root, name))
				}
				return dirs
			}
			in := ingest.Options{Source: d.dir, Job: samplerJob(3, 8, 1, false), Block: 128 << 10, Memory: 24 << 20, IO: testIO()}
			for _, dirs := range [][]string{at("one"), at("a", "b"), at("c", "d")} {
				in.Dirs = dirs
				ingested(t, d, in)
			}
			before := contents(t, root)
			in.Dirs, in.Budget = at(tt.dirs...), tt.budget
			_, err := ingest.Run(context.Background(), in)
			if err == nil || !strings.Contains(err.Error(), filepath.Join(root, tt.names)) || !strings.Contains(err.Error(), "lcache rm") {
				t.Errorf("got %v, want that %s is in the way, and what to do", err, tt.names)
			}
			if after := contents(t, root); !maps.Equal(before, after) {
				t.Errorf("files were changed: there are %d, there were %d", len(after), len(before))
			}
		})
	}
}

// An ingest that is killed while it makes a cache, or makes it again, leaves directories that do not count as another cache.
func TestIngestTakesOverItsOwnDirectories(t *testing.T) {
	d := makeDataset(t, 60, func(r *rand.Rand, _ int) int { return r.IntN(20_000) })
	j := samplerJob(3, 8, 1, false)
	for name, gone := range map[string][]string{
		"making":                      {"a/job.json", "a/journal-0", "a/FORMAT"},
		"making, first of the arenas": {"a/job.json", "a/journal-0", "a/FORMAT", "b/FORMAT", "b/arena"},
		"clearing":                    {"a/job.json", "a/sums", "b/FORMAT", "b/arena"},
		"clearing, the last file":     {"a/job.json", "a/sums", "b/FORMAT", "b/arena", "a/FORMAT", "a/journal-0"},
	} {
		t.Run(name, func(t *testing.T) {
			dirs := twoDirs(t)
			o, _ := ingested(t, d, ingest.Options{Job: j, Dirs: dirs, Block: 128 << 10, Memory: 24 << 20})
			for _, path := range gone {
				if err := os.Remove(filepath.Join(filepath.Dir(dirs[0]), path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Fatal(err)
				}
			}
			ingested(t, d, ingest.Options{Job: j, Dirs: dirs, Block: 128 << 10, Memory: 24 << 20})
			e := open(t, o)
			d.readEpochs(t, e, j, 0, 1)
			if s := e.Status(); s.Cache.State != "normal" || s.Jobs[0].Misses != 0 {
				t.Errorf("%s, %d misses: want a whole cache", s.Cache.State, s.Jobs[0].Misses)
			}
			closeEngine(t, e)
		})
	}
}
