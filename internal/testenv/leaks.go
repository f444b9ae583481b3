// Package testenv has the environment of tests in many packages: a check for leaks, folders for sources
// ([SourceDir]), and rules for the tests and cases to run ([Long], [WithoutRace], [AnyIO], [Some]). It is only for
// tests.
//
// A test fails if it leaks a goroutine, a file descriptor, or something that a [Count] counts, such as bytes mapped
// outside Go's heap. A package's TestMain calls [Run], which checks after all of its tests. [Check] checks after one
// test, and so names the test. Both wait a few seconds for resources that are still being released. The functions may
// be called concurrently.
package testenv

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// A Count is the number of some resource that tests must release.
type Count struct {
	What string // the unit, as in "bytes outside the heap"
	Now  func() int64
}

// patience limits the wait for resources that are still being released, such as a file that a goroutine closes later.
var patience = 5 * time.Second

// allowed are the folders of Allow.
var allowed struct {
	sync.Mutex
	folders []string
}

// Allow excludes files below a folder from the check of descriptors. It is for tests of hung files, which stay open
// until the process ends.
func Allow(folder string) {
	allowed.Lock()
	defer allowed.Unlock()
	allowed.folders = append(allowed.folders, folder+"/")
}

func isAllowed(target string) bool {
	allowed.Lock()
	defer allowed.Unlock()
	return slices.ContainsFunc(allowed.folders, func(folder string) bool { return strings.HasPrefix(target, folder) })
}

// Run runs the tests of a package and returns the exit code. If all tests pass but leak something, it reports that on
// stderr and returns 1. The counts must end at zero. Run also sets the umask to 022.
func Run(m interface{ Run() int }, counts ...Count) int {
	syscall.Umask(0o022) // otherwise t.TempDir would make directories that the group can write to, which caches refuse
	before, err := descriptors()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testenv:", err)
		return 1
	}
	if code := m.Run(); code != 0 {
		return code
	}
	left := wait(func() error {
		return errors.Join(goleak.Find(), newDescriptors(before), more(counts, make([]int64, len(counts))))
	})
	if left == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "testenv: the tests pass, but leak:\n%v\n", left)
	return 1
}

// Check fails t if the counts are higher at its end than now. Call it before t registers any cleanup. It is not for
// tests that run in parallel with others.
func Check(t testing.TB, counts ...Count) {
	t.Helper()
	before := make([]int64, len(counts))
	for i, c := range counts {
		before[i] = c.Now()
	}
	t.Cleanup(func() {
		if t.Failed() {
			return // a failed test may not have cleaned up
		}
		if err := wait(func() error { return more(counts, before) }); err != nil {
			t.Errorf("left behind: %v", err)
		}
	})
}

// wait calls find until it returns nil or patience is over. It returns the last result.
func wait(find func() error) error {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if err := find(); err == nil || time.Now().After(end) {
			return err
		}
	}
}

// more returns an error for each count that is greater than before.
func more(counts []Count, before []int64) error {
	var errs []error
	for i, c := range counts {
		if n := c.Now() - before[i]; n > 0 {
			errs = append(errs, fmt.Errorf("%d %s", n, c.What))
		}
	}
	return errors.Join(errs...)
}

// descriptors maps each open file descriptor to its target.
func descriptors() (map[string]string, error) {
	// The runtime's poller keeps descriptors that it opens with the first pipe or socket.
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(r.Close(), w.Close()); err != nil {
		return nil, err
	}
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list file descriptors: %w", err)
	}
	open := map[string]string{}
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil { // otherwise it was the descriptor of the directory itself
			open[e.Name()] = target
		}
	}
	return open, nil
}

func newDescriptors(before map[string]string) error {
	now, err := descriptors()
	errs := []error{err}
	for _, fd := range slices.Sorted(maps.Keys(now)) {
		if before[fd] != now[fd] && !isAllowed(now[fd]) {
			errs = append(errs, fmt.Errorf("file descriptor %s, %s", fd, now[fd]))
		}
	}
	return errors.Join(errs...)
}
