package testenv

import (
	"os"
	"testing"
)

// Short reports whether tests run only a few of their cases: with -short, and under the race detector, which slows
// everything down five to ten times. The detector looks for concurrent goroutines, and these are the same in each
// case of a test.
func Short() bool { return Race || testing.Short() }

// Pick returns short if tests run only a few of their cases; otherwise full.
func Pick[T any](full, short T) T {
	if Short() {
		return short
	}
	return full
}

// Some returns n of the cases, evenly spaced, if tests run only a few of their cases; otherwise all.
func Some[T any](cases []T, n int) []T {
	if !Short() || len(cases) <= n {
		return cases
	}
	list := make([]T, n)
	for k := range list {
		list[k] = cases[k*len(cases)/n]
	}
	return list
}

// One returns only case k (modulo their number) if tests run only a few of their cases; otherwise all. A loop over k
// so combines each of its cases with one of these.
func One[T any](cases []T, k int) []T {
	if !Short() {
		return cases
	}
	return cases[k%len(cases):][:1]
}

// Timed reports whether tests also assert times, which depend on the speed of the machine. make test-faults
// PARTS=times sets LCACHE_IDLE for that. make test does not, because its tests keep the CPUs busy.
func Timed() bool { return os.Getenv("LCACHE_IDLE") != "" }

// Long skips t under go test -short. It is for tests that take more than a second.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("skipped with -short: takes more than a second")
	}
}

// WithoutRace skips t under the race detector. It is for tests that compute or damage files in one goroutine, only read this repository, or count memory.
func WithoutRace(t testing.TB) {
	t.Helper()
	if Race {
		t.Skip("skipped under the race detector, which has nothing to find here")
	}
}

// AnyIO skips t if LCACHE_IO=pread. It is for tests that behave the same with every kind of I/O, and that run all of their cases under the race detector.
func AnyIO(t testing.TB) {
	t.Helper()
	if os.Getenv("LCACHE_IO") == "pread" {
		t.Skip("skipped on pread: behaves the same with every kind of I/O")
	}
}
