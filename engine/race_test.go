//go:build race

package engine

// slow says that the race detector is in: tests that run over many cases do fewer of them.
const slow = true
