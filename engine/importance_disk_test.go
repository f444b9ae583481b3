package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lcache/internal/importance/state"
	"lcache/internal/serve/deliver"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
)

// usedBytes returns the disk space of the files in a cache's directory.
func usedBytes(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		var st unix.Stat_t
		if unix.Lstat(filepath.Join(dir, entry.Name()), &st) == nil {
			bytes += st.Blocks * 512
		}
	}
	return bytes
}

// tiny is a cache of many small samples. An importance state is large compared with it.
func tiny(t *testing.T, budget int64) (Options, *ingest.Report) {
	t.Helper()
	d := makeDataset(t, 20_000, func(*rand.Rand, int) int { return 100 })
	return ingested(t, d, ingest.Options{Job: samplerJob(4, 16, 1, false), Block: 128 << 10, Memory: 200 << 20, Budget: budget, Layout: "static"})
}

// trial connects a job, and requests importance under a name.
func trial(t *testing.T, e *Engine, name string) (number int, err error) {
	t.Helper()
	if number, err = e.Join("job of " + name); err != nil {
		t.Fatal(err)
	}
	_, err = e.Importance(t.Context(), number, 0, "run", fmt.Appendf(nil, `{"method":"impact","name":%q,"cache":0,"params":{"s_share":0}}`, name))
	return number, err
}

// saved waits until the state of a name is on disk.
func saved(t *testing.T, dir, name string) {
	t.Helper()
	waitFor(t, "the state of "+name+" is saved", func() bool { return hasState(dir, name) })
}

func hasState(dir, name string) bool {
	_, err := os.Lstat(filepath.Join(dir, state.FilePrefix+name))
	return !errors.Is(err, fs.ErrNotExist)
}

// States of importance stay within the budget, however many names clients choose. The budget that the refusal names is enough for one more.
func TestStatesStayWithinTheBudget(t *testing.T) {
	o, rep := tiny(t, 0)
	e := open(t, o)
	refused, admitted := error(nil), 0
	for k := range 20 {
		name := fmt.Sprintf("trial-%d", k)
		if _, refused = trial(t, e, name); refused != nil {
			break
		}
		admitted++
		saved(t, o.Dirs[0], name)
	}
	if used := usedBytes(t, o.Dirs[0]); used > rep.BudgetBytes {
		t.Errorf("the cache takes %d bytes of a budget of %d", used, rep.BudgetBytes)
	}
	closeEngine(t, e)
	var argument *deliver.ArgumentError
	if !errors.As(refused, &argument) || admitted < 1 {
		t.Fatalf("%d of 20 names have a state, the next one got %v", admitted, refused)
	}
	number := regexp.MustCompile(`--budget (\d+)MiB`).FindStringSubmatch(refused.Error())
	if number == nil {
		t.Fatalf("got %v, want the budget that is needed", refused)
	}
	budget, _ := strconv.ParseInt(number[1], 10, 64)
	o, _ = tiny(t, budget<<20)
	e = open(t, o)
	defer closeEngine(t, e)
	for k := range admitted + 1 {
		if _, err := trial(t, e, fmt.Sprintf("trial-%d", k)); err != nil {
			t.Fatalf("with --budget %dMiB, job %d: %v", budget, k, err)
		}
	}
}

// A cache of an earlier version, whose budget has no room for states, opens and serves. The refusal of importance names a budget that is enough.
func TestCacheWithoutRoomForStates(t *testing.T) {
	d := makeDataset(t, 20_000, func(*rand.Rand, int) int { return 100 })
	in := ingest.Options{Job: samplerJob(4, 16, 1, false), Block: 128 << 10, Memory: 200 << 20, Budget: 30 << 20, Layout: "static"}
	o, rep := ingested(t, d, in)
	record, err := cache.ReadRecord(o.Dirs[0])
	if err != nil {
		t.Fatal(err)
	}
	record.Budget = rep.ArenaBytes + 1<<20
	if err := cache.WriteRecord(o.Dirs[0], record); err != nil {
		t.Fatal(err)
	}
	e := open(t, o)
	_, err = trial(t, e, "first")
	closeEngine(t, e)
	number := regexp.MustCompile(`--budget (\d+)MiB`).FindStringSubmatch(fmt.Sprint(err))
	if number == nil {
		t.Fatalf("got %v, want the budget that is needed", err)
	}
	budget, _ := strconv.ParseInt(number[1], 10, 64)
	in.Budget = budget << 20
	o, _ = ingested(t, d, in)
	e = open(t, o)
	defer closeEngine(t, e)
	if _, err := trial(t, e, "first"); err != nil {
		t.Errorf("with --budget %dMiB: %v", budget, err)
	}
}

// Where room is needed, states of jobs that are not connected are removed, oldest first, and no other.
func TestOldestStatesMakeRoom(t *testing.T) {
	o, _ := tiny(t, 8<<20) // one state
	dir := o.Dirs[0]
	e := open(t, o)
	for k, name := range []string{"second", "first", "third"} { // one after the other: a name's job leaves before the next one comes
		number, err := trial(t, e, name)
		if err != nil {
			t.Fatalf("job %d: %v", k, err)
		}
		saved(t, dir, name)
		e.Leave(number)
	}
	closeEngine(t, e)
	const bytes = 700_000 // of 1.3 MB for one state that is being replaced
	for name, age := range map[string]time.Duration{"first": 3 * time.Hour, "second": 2 * time.Hour, "third": time.Hour} {
		path := filepath.Join(dir, state.FilePrefix+name)
		if err := os.WriteFile(path, make([]byte, bytes), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	e = open(t, o)
	defer closeEngine(t, e)
	if _, err := trial(t, e, "new"); err != nil {
		t.Fatal(err)
	}
	saved(t, dir, "new")
	if hasState(dir, "first") {
		t.Error("the oldest state is still there")
	}
	number, err := trial(t, e, "next")
	var argument *deliver.ArgumentError
	if !errors.As(err, &argument) {
		t.Errorf("got number %v, want an error: connected jobs fill the limit", err)
	}
	if e.Leave(number); !hasState(dir, "new") {
		t.Error("the state of a connected job was removed")
	}
}

// A job whose clients have left makes room for one that is connected.
func TestStateOfAJobThatLeftMakesRoom(t *testing.T) {
	o, _ := tiny(t, 8<<20)  // one state
	o.LateEpoch = time.Hour // it is not over
	e := open(t, o)
	defer closeEngine(t, e)
	first, err := trial(t, e, "first")
	if err != nil {
		t.Fatal(err)
	}
	saved(t, o.Dirs[0], "first")
	e.Leave(first)
	if _, err := trial(t, e, "second"); err != nil {
		t.Fatal(err)
	}
	saved(t, o.Dirs[0], "second")
	if hasState(o.Dirs[0], "first") {
		t.Error("both states are there")
	}
}

// The server removes states that were not used for 30 days when it starts.
func TestStatesAreRemovedAfter30Days(t *testing.T) {
	o, _ := tiny(t, 8<<20) // one state
	dir, written := o.Dirs[0], time.Now()
	for name, age := range map[string]time.Duration{"old": 2 * time.Hour, "old.new": 2 * time.Hour, "young": 0} {
		path := filepath.Join(dir, state.FilePrefix+name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, written.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	o.Now = func() time.Time { return written.Add(30*24*time.Hour - time.Hour) }
	e := open(t, o)
	defer closeEngine(t, e)
	waitFor(t, "old states are removed", func() bool { return !hasState(dir, "old") && !hasState(dir, "old.new") })
	if !hasState(dir, "young") {
		t.Error("a state of 30 days less an hour was removed")
	}
}

// A state is not begun if it would take the file system below its reserve.
func TestStateKeepsTheReserve(t *testing.T) {
	o, _ := tiny(t, 8<<20) // one state
	o.IO.Statfs = func(_ string, st *unix.Statfs_t) error {
		*st = unix.Statfs_t{Bsize: 4096, Blocks: 8e9 / 4096, Bavail: 244_200}
		return nil
	}
	e := open(t, o)
	defer closeEngine(t, e)
	var argument *deliver.ArgumentError
	if _, err := trial(t, e, "first"); !errors.As(err, &argument) || !regexp.MustCompile("free-space reserve: make room").MatchString(err.Error()) {
		t.Errorf("0.2 MB are free above the reserve, and a job got %v", err)
	}
}
