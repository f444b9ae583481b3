package engine

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
)

// shared holds data that many tests only read: datasets, and caches that each test gets a copy of. Without it, making the files would take most of
// the time. All of it is removed when the tests have ended.
var shared struct {
	sync.Mutex
	dir      string         // of the caches
	remove   []func() error // of the sources
	datasets map[string]*dataset
	caches   map[string]Options
}

// sharedFolder returns a folder for a cache that stays until all tests have ended. shared is locked.
func sharedFolder(t testing.TB) string {
	t.Helper()
	if shared.dir == "" {
		dir, err := os.MkdirTemp("", "lcache-engine-*")
		if err != nil {
			t.Fatal(err)
		}
		shared.dir, shared.caches = dir, map[string]Options{}
	}
	return filepath.Join(shared.dir, fmt.Sprintf("cache %d", len(shared.caches)))
}

func removeShared() {
	for _, remove := range append(shared.remove, func() error { return os.RemoveAll(shared.dir) }) {
		if err := remove(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// sharedDataset returns the dataset of this name. The first caller makes it. Nobody changes its source.
func sharedDataset(t testing.TB, name string, n int, size func(r *rand.Rand, i int) int, content func(r *rand.Rand, i int, b []byte)) *dataset {
	t.Helper()
	givesBack(t)
	shared.Lock()
	defer shared.Unlock()
	if shared.datasets == nil {
		shared.datasets = map[string]*dataset{}
	}
	if shared.datasets[name] == nil {
		dir, remove, err := testenv.MakeSourceDir()
		if err != nil {
			t.Fatal(err)
		}
		shared.remove = append(shared.remove, remove)
		shared.datasets[name] = makeDatasetIn(t, dir, n, size, content)
	}
	return shared.datasets[name]
}

// photos returns n samples of about 13 KB that don't compress. Nobody changes their source.
func photos(t testing.TB, n int) *dataset {
	t.Helper()
	return sharedDataset(t, fmt.Sprint("photos ", n), n, sizeOfPhoto, noisy)
}

func sizeOfPhoto(r *rand.Rand, _ int) int { return 12_000 + r.IntN(3000) }

// sharedCache returns a copy of a cache that was made by these options. The first caller lets fill make it, in one directory.
func sharedCache(t *testing.T, in ingest.Options, fill func(ingest.Options) Options) Options {
	t.Helper()
	name := fmt.Sprintf("%+v", in)
	shared.Lock()
	defer shared.Unlock()
	dir := sharedFolder(t)
	o, made := shared.caches[name]
	if !made {
		in.Dirs = []string{dir}
		o = fill(in)
		o.Logger = nil // of the test that made it
		shared.caches[name] = o
	}
	from := o.Dirs[0]
	o.Dirs, o.Logger = []string{filepath.Join(t.TempDir(), "cache")}, testLogger(t)
	copyCache(t, from, o.Dirs[0])
	return o
}
