//go:build 386 || arm || mips || mipsle

package engine

// Offsets in a cache and numbers of samples are ints of 64 bits. The imported package does not exist, so that a build for a 32-bit processor stops here,
// before it compiles anything.
import _ "lcache/needs/a/64-bit/processor"
