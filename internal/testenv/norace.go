//go:build !race

package testenv

// Race says whether the race detector is in.
const Race = false
