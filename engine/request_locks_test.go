package engine

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
)

// lockTaken is a line of the source code that takes a lock, and how often it did.
type lockTaken struct {
	at   string // file:line, from the module's folder
	lock string // as e.mu
	n    int
}

// isOfImportance matches the files that only importance uses.
var isOfImportance = regexp.MustCompile(`^(internal/importance|drawn|importance)/|^engine/(importance|packag|units)`)

var (
	coveredBlock = regexp.MustCompile(`^lcache/(\S+):(\d+)\.(\d+),(\d+)\.(\d+) \d+ (\d+)$`)
	takesLock    = regexp.MustCompile(`(\w[\w.]*)\.(?:R?Lock|TryLock)\(\)`)
)

// locksOf runs BenchmarkRequest in a process of its own, and counts by code coverage how often each line takes a lock: exact, and without any cost where nothing is counted.
func locksOf(t *testing.T, which string, requests int) (taken []lockTaken) {
	t.Helper()
	profile := filepath.Join(t.TempDir(), "coverage")
	covered := []string{"engine", "internal/serve/...", "internal/importance/..."}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-run", "^$", "-bench", "^BenchmarkRequest$/^"+which+"$", "-benchtime", strconv.Itoa(requests)+"x",
		"-covermode", "atomic", "-coverpkg", "lcache/"+strings.Join(covered, ",lcache/"), "-coverprofile", profile, ".")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	text, err := os.ReadFile(profile)
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string][][]byte{}
	for line := range strings.Lines(string(text)) {
		m := coveredBlock.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		file := m[1]
		var at [5]int
		for i := range at {
			at[i], _ = strconv.Atoi(m[2+i])
		}
		if sources[file] == nil {
			source, err := os.ReadFile(filepath.Join("..", file))
			if err != nil {
				t.Fatal(err)
			}
			sources[file] = bytes.Split(source, []byte("\n"))
		}
		for n := at[0]; n <= at[2]; n++ {
			for _, found := range takesLock.FindAllSubmatchIndex(sources[file][n-1], -1) {
				column := found[0] + 1
				if at[4] > 0 && (n > at[0] || column >= at[1]) && (n < at[2] || column < at[3]) {
					taken = append(taken, lockTaken{fmt.Sprintf("%s:%d", file, n), string(sources[file][n-1][found[2]:found[3]]), at[4]})
				}
			}
		}
	}
	slices.SortFunc(taken, func(a, b lockTaken) int { return cmp.Or(b.n-a.n, cmp.Compare(a.at, b.at)) })
	return taken
}

// TestLocksOfARequest: a request takes Engine.mu twice, when it begins and when it is done, and once more each time that it waits; a job without importance takes no lock of importance. -v lists the locks.
func TestLocksOfARequest(t *testing.T) {
	testenv.Long(t)
	testenv.WithoutRace(t)
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("needs the go command")
	}
	const requests = 1000
	for _, c := range []struct {
		which      string
		importance bool
	}{{"plain", false}, {"importance", true}} {
		taken := locksOf(t, c.which, requests)
		ofImportance, inWindow := 0, 0
		for _, l := range taken {
			if isOfImportance.MatchString(l.at) {
				ofImportance += l.n
			}
			if l.lock == "e.mu" && strings.HasPrefix(l.at, "engine/window.go:") && l.n >= requests {
				inWindow += l.n
			}
			if l.n >= requests/10 {
				t.Logf("%s: %5.2f times a request %s at %s", c.which, float64(l.n)/requests, l.lock, l.at)
			}
		}
		if c.importance != (ofImportance >= requests) || !c.importance && ofImportance > 10 { // some are taken once, when an engine is opened or closed
			t.Errorf("%s: locks of importance were taken %d times in %d requests", c.which, ofImportance, requests)
		}
		if inWindow < 2*requests || inWindow > 2*requests+requests/50 { // two requests where an epoch ends
			t.Errorf("%s: Engine.mu was taken %d times for the beginning and the end of %d requests, want 2 each", c.which, inWindow, requests)
		}
	}
}

// TestPlainRequestsAllocateNothingForImportance looks at all allocations of an epoch of a job without importance.
func TestPlainRequestsAllocateNothingForImportance(t *testing.T) {
	testenv.WithoutRace(t)
	d := makeDataset(t, 2000, func(r *rand.Rand, _ int) int { return 100 + r.IntN(900) })
	j := samplerJob(2, 50, 1, false)
	o, _ := ingested(t, d, ingest.Options{Job: j})
	e := open(t, o)
	defer closeEngine(t, e)
	was := runtime.MemProfileRate
	runtime.MemProfileRate = 1 // every allocation
	defer func() { runtime.MemProfileRate = was }()
	before := allocationsFor(isOfImportance)
	d.readEpochs(t, e, j, 0, 2)
	if after := allocationsFor(isOfImportance); after != before {
		t.Errorf("%d allocations for importance in two epochs without any", after-before)
	}
	if all := allocationsFor(regexp.MustCompile(`^engine/window.go`)); all == 0 {
		t.Error("no allocation of a request was seen: the test shows nothing")
	}
}

// allocationsFor counts the allocations so far below a function in some files.
func allocationsFor(files *regexp.Regexp) (n int64) {
	runtime.GC() // the profile is that of the last collection but one
	runtime.GC()
	records := make([]runtime.MemProfileRecord, 1<<16)
	k, ok := runtime.MemProfile(records, true)
	if !ok {
		return -1
	}
	_, here, _, _ := runtime.Caller(0)
	root := strings.TrimSuffix(here, "engine/request_locks_test.go")
	for _, r := range records[:k] {
		frames := runtime.CallersFrames(r.Stack())
		for {
			f, more := frames.Next()
			if files.MatchString(strings.TrimPrefix(f.File, root)) {
				n += r.AllocObjects
				break
			}
			if !more {
				break
			}
		}
	}
	return n
}
