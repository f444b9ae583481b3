package source

import (
	"time"

	"golang.org/x/sys/unix"
)

// SetSettled lets a test's folders count as old enough for a record at once.
func SetSettled(d time.Duration) (old time.Duration) {
	old, settled = settled, d
	return old
}

// SetFlowTrusted sets for how long a flow is read on without a question whether its shard is still the same.
func SetFlowTrusted(d time.Duration) (old time.Duration) {
	old, flowTrusted = flowTrusted, d
	return old
}

// SetNumbering lets a test's file system, by its magic number, count as one without inodes of its own.
func SetNumbering(kinds []int64) (old []int64) {
	old, numbering = numbering, kinds
	return old
}

// WithoutOpenat2 lets a source find its files as on a kernel, or under a seccomp profile, that has no openat2.
func WithoutOpenat2(s Source) {
	s.(*dir).openat2 = func(int, string, *unix.OpenHow) (int, error) { return -1, unix.ENOSYS }
}
