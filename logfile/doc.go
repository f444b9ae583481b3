// Package logfile keeps bytes in blocks on local disks, and finds them again after a crash.
//
// A [Store] owns the arena (one preallocated file on each disk, cut into arena blocks, called places in the code and on disk), the list
// of free places, up to two [Logfile]s, and one set of [Packages]. A Logfile is a set of segments. Each segment is a string of bytes to
// which samples are appended, cut into blocks that are written to any free place. Each Logfile has a journal, which records the place
// of each block and the samples that begin in it.
//
// The package knows places and bytes, but not orders: callers decide which segment a sample belongs to, and when a block is not
// needed. It does not verify samples either. The bytes that it returns may be stale or torn after a crash, and the caller accepts a
// sample only if its checksum matches. Disk errors do not make Append fail: blocks that can't be written become holes, and their samples
// are reported as lost. A disk that fails or hangs is quarantined and probed until it works again. Meanwhile nothing is written to it, and
// reads from it return at once.
//
// All methods may be called concurrently, unless their comments say otherwise. Appends to one segment wait for each other.
package logfile
