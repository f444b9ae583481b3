package disk

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
)

// bed is the Files of a small cache, with their inputs.
type bed struct {
	t *testing.T
	*Files
	asleep  []string // jobs that are not connected
	stopped []string
	free    uint64 // bytes above the free-space reserve; 0: no limit
	now     time.Time
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{t: t, now: time.Now()}
	dir := testenv.SourceDir(t)
	for i := range 16 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), make([]byte, 1000), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	in := ingest.Options{Source: dir, Dirs: []string{filepath.Join(t.TempDir(), "cache")}, Block: 128 << 10, Memory: 64 << 20, Job: schedule.Job{World: 1}}
	if _, err := ingest.Run(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	statfs := func(dir string, st *unix.Statfs_t) error {
		if b.free == 0 {
			return unix.Statfs(dir, st)
		}
		*st = unix.Statfs_t{Bsize: 1, Blocks: 20e9, Bavail: 1e9 + b.free} // the reserve is a twentieth
		return nil
	}
	c, err := cache.Open(cache.Options{Dirs: in.Dirs, Memory: in.Memory, IO: cache.IO{Statfs: statfs}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	b.Files = New(Options{Cache: c, Now: func() time.Time { return b.now }, Asleep: func() (jobs []Job) {
		for _, name := range b.asleep {
			jobs = append(jobs, Job{Name: name, Stop: func(error) { b.stopped = append(b.stopped, name); b.GiveBack(name) }})
		}
		return jobs
	}})
	return b
}

// save creates a job's file of a size and age.
func (b *bed) save(name string, bytes int64, age time.Duration) {
	b.t.Helper()
	err := errors.Join(os.WriteFile(b.Path(name), nil, 0o600), os.Truncate(b.Path(name), bytes), os.Chtimes(b.Path(name), time.Time{}, b.now.Add(-age)))
	if err != nil {
		b.t.Fatal(err)
	}
}

// names lists the files, oldest first.
func (b *bed) names() (names []string) {
	b.t.Helper()
	files, err := b.list()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range files {
		names = append(names, f.name)
	}
	return names
}

func (b *bed) refused(err error, text string) {
	b.t.Helper()
	var argument *deliver.ArgumentError
	if !errors.As(err, &argument) || !strings.Contains(err.Error(), text) {
		b.t.Errorf("%v, want %q", err, text)
	}
}

// TestTake: the oldest files make room, but only as many as needed. After them, jobs that are not connected make
// room. If all together are too few, none is removed.
func TestTake(t *testing.T) {
	b := newBed(t)
	half := b.o.Cache.StateRoom() / 2 / 4096 * 4096
	b.save("older", half, 2*time.Hour)
	b.save("old", half, time.Hour)
	if err := b.Take("a"); err != nil {
		t.Fatal(err)
	}
	if got := b.names(); !slices.Equal(got, []string{"old"}) {
		t.Errorf("%q are left, want the newer file", got)
	}
	if err := b.Grow("a", half/2-4096); err != nil {
		t.Error(err)
	}
	if err := b.Grow("a", half); err == nil || !strings.Contains(err.Error(), "the budget has no room for") {
		t.Errorf("a version that the budget has no room for: %v", err)
	}
	b.save("b", half, 0) // two versions of it take all of the room
	b.refused(b.Take("b"), "end another job with importance")
	if got := b.names(); !slices.Equal(got, []string{"old", "b"}) {
		t.Errorf("%q are left of old and b, although b has no room", got)
	}
	b.asleep = []string{"a"}
	if err := b.Take("b"); err != nil || !slices.Equal(b.stopped, []string{"a"}) || !slices.Equal(b.names(), []string{"b"}) {
		t.Errorf("%v; stopped: %q, files: %q", err, b.stopped, b.names())
	}
	b.GiveBack("b")
	b.asleep, b.free = nil, 5000
	b.refused(b.Take("c"), "above the free-space reserve: make room there")
}

// TestSweep: files that are older than 30 days are removed, unless the job has importance.
func TestSweep(t *testing.T) {
	b := newBed(t)
	for _, name := range []string{"used", "used.new", "old", "old.new"} {
		b.save(name, 1, 30*24*time.Hour+time.Minute)
	}
	b.save("young", 1, 30*24*time.Hour-time.Minute)
	if err := b.Take("used"); err != nil {
		t.Fatal(err)
	}
	if err := b.removeOld(); err != nil {
		t.Fatal(err)
	}
	if got := b.names(); !slices.Equal(got, []string{"used", "used.new", "young"}) && !slices.Equal(got, []string{"used.new", "used", "young"}) {
		t.Errorf("%q are left", got)
	}
}
