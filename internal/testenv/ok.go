package testenv

import "testing"

// OK returns a function that takes a result with its error and returns the result; an error ends the test.
func OK[T any](t testing.TB) func(x T, err error) T {
	return func(x T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
}
