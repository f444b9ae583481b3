//go:build 386 || arm || mips || mipsle

package engine

// Offsets in a cache and numbers of samples are ints, and need 64 bits. This import is of no package: on a processor of 32 bits a build stops here, before it compiles anything.
import _ "lcache/needs/a/64-bit/processor"
