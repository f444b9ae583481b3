//go:build race

package lanes

// Race says whether the race detector is in.
const Race = true
