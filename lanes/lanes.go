// Package lanes says which of its cases a test runs where the race detector is in, which makes everything five to ten times as slow. CI passes the tests of the packages that read and
// write twice: with the race detector on io_uring, and without it on pread. A test of many cases has all of them there, and a fixed choice under the detector, where what counts is
// what goroutines do at the same time: that is the same in each of its cases. The functions may be called concurrently.
package lanes

// Some returns n of the cases, spread evenly, where the race detector is in; else all.
func Some[T any](cases []T, n int) []T {
	if !Race || len(cases) <= n {
		return cases
	}
	list := make([]T, n)
	for k := range list {
		list[k] = cases[k*len(cases)/n]
	}
	return list
}

// Turn returns one of the cases, the k-th in turn, where the race detector is in; else all. So each of them meets some of another kind.
func Turn[T any](cases []T, k int) []T {
	if !Race {
		return cases
	}
	return cases[k%len(cases):][:1]
}

// Count is how often something drawn is done: few times where the race detector is in, else many times.
func Count(many, few int) int {
	if Race {
		return few
	}
	return many
}
