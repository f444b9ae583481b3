// Package logfile keeps bytes in blocks on local disks, and finds them again after a crash.
//
// A [Store] owns the arena (one preallocated file on each disk, cut into places of one block), the list of free places,
// and up to two [Logfile]s and one set of [Packages] that take their places from it. A Logfile is a set of segments; each is a string of bytes to
// which samples are appended, cut into blocks that are written to any free place. A journal for each Logfile says which
// block lies where and which samples begin in it.
//
// The package knows places and bytes, no orders: callers say which segment a sample belongs to, and when a block is no longer needed.
// It does not check samples either: bytes that it returns may be stale or torn after a crash, and the caller
// accepts a sample only if its checksum is right. No disk trouble makes Append fail: blocks that can't be written become
// holes and their samples are reported as lost. A disk that fails or hangs is put aside, probed, and taken back; meanwhile nothing is
// written there, and reads from it end at once.
//
// All methods may be called concurrently, except where they say otherwise. Appends to one segment queue behind one another.
package logfile
