// Package testenv is what tests of many packages need of their environment: a check that nothing is left behind, folders for sources ([SourceDir]), and which tests and cases run
// where ([Long], [WithoutRace], [AnyIO], [Some]). It is for tests alone.
//
// Tests fail that leave something: a goroutine, a file descriptor, or something that a [Count] counts, such as bytes mapped outside Go's heap. [Run] checks after all tests of a package
// and is called by its TestMain; [Check] checks after one test, and so names it. Both wait a few seconds for what ends by itself. The functions may be called concurrently.
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

// A Count is a number of things that tests must give back.
type Count struct {
	What string // the unit, as in "bytes outside the heap"
	Now  func() int64
}

// patience bounds the wait for what ends by itself, such as a file that a goroutine closes later.
var patience = 5 * time.Second

// allowed are the folders of Allow.
var allowed struct {
	sync.Mutex
	folders []string
}

// Allow excepts files below a folder from the check of descriptors. It is for tests of things that hang, which are left open until the process ends.
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

// Run runs the tests of a package and returns the exit code. Where all of them pass and something is left, it says so on stderr and returns 1. The
// counts must end at zero. The umask is 022 from then on.
func Run(m interface{ Run() int }, counts ...Count) int {
	syscall.Umask(0o022) // t.TempDir would make directories that the group can write, which caches refuse
	before, err := descriptors()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testenv:", err)
		return 1
	}
	if code := m.Run(); code != 0 {
		return code
	}
	left := errors.Join(goleak.Find(), wait(func() error {
		return errors.Join(newDescriptors(before), more(counts, make([]int64, len(counts))))
	}))
	if left == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "testenv: the tests pass and leave something behind:\n%v\n", left)
	return 1
}

// Check fails t if the counts are higher at its end than they are now. Call it before anything that t cleans up is made. It is not for tests that run at
// the same time as others.
func Check(t testing.TB, counts ...Count) {
	t.Helper()
	before := make([]int64, len(counts))
	for i, c := range counts {
		before[i] = c.Now()
	}
	t.Cleanup(func() {
		if t.Failed() {
			return // it may have left out its own cleaning up
		}
		if err := wait(func() error { return more(counts, before) }); err != nil {
			t.Errorf("left behind: %v", err)
		}
	})
}

// wait calls find until it finds nothing or patience is over, and returns what it found last.
func wait(find func() error) error {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if err := find(); err == nil || time.Now().After(end) {
			return err
		}
	}
}

// more returns an error for each count that is above its value before.
func more(counts []Count, before []int64) error {
	var errs []error
	for i, c := range counts {
		if n := c.Now() - before[i]; n > 0 {
			errs = append(errs, fmt.Errorf("%d %s", n, c.What))
		}
	}
	return errors.Join(errs...)
}

// descriptors maps each open file descriptor to what it refers to.
func descriptors() (map[string]string, error) {
	// The runtime's poller keeps descriptors of its own, which it opens with the first pipe or socket.
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
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil { // else it was that of the directory itself
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
