package testenv

import (
	"os"
	"testing"
)

// Short reports whether tests run few of their cases: under go test -short, and under the race detector, which makes everything five to ten times as slow. What
// the detector looks for is the same in each case of a test: goroutines that work at the same time. A run without both has all cases.
func Short() bool { return Race || testing.Short() }

// Pick returns short where tests run few of their cases, else full.
func Pick[T any](full, short T) T {
	if Short() {
		return short
	}
	return full
}

// Some returns n of the cases, spread evenly, where tests run few of their cases, else all.
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

// One returns one of the cases, the k-th in turn, where tests run few of their cases, else all. A loop over k so combines its own cases with all of these.
func One[T any](cases []T, k int) []T {
	if !Short() {
		return cases
	}
	return cases[k%len(cases):][:1]
}

// Long skips t under go test -short. It is for tests that take more than a second.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes more than a second: left out by -short")
	}
}

// WithoutRace skips t under the race detector. It is for tests that compute or damage files in one goroutine, only read this repository, or count memory.
func WithoutRace(t testing.TB) {
	t.Helper()
	if Race {
		t.Skip("left out under the race detector, which has nothing to find here")
	}
}

// AnyIO skips t where LCACHE_IO=pread. It is for tests that no kind of I/O makes different and that have all of their cases under the race detector.
func AnyIO(t testing.TB) {
	t.Helper()
	if os.Getenv("LCACHE_IO") == "pread" {
		t.Skip("left out on pread: no kind of I/O makes it different")
	}
}
