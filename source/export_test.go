package source

import (
	"time"

	"golang.org/x/sys/unix"
)

// SetSettled sets the minimum age of a folder's last change, so that a test's folders count as settled at once.
func SetSettled(d time.Duration) (old time.Duration) {
	old, settled = settled, d
	return old
}

// SetFlowTrusted sets the time for which a flow is continued without checking its shard.
func SetFlowTrusted(d time.Duration) (old time.Duration) {
	old, flowTrusted = flowTrusted, d
	return old
}

// SetNumbering makes a test's file system, by its magic number, count as one without stable inodes.
func SetNumbering(kinds []int64) (old []int64) {
	old, numbering = numbering, kinds
	return old
}

// WithoutOpenat2 makes a source open its files as on a kernel, or under a seccomp profile, without openat2.
func WithoutOpenat2(s Source) {
	s.(*dir).openat2 = func(int, string, *unix.OpenHow) (int, error) { return -1, unix.ENOSYS }
}

// ParseList parses a list of files.
func ParseList(text []byte, at string) (folder string, names []string, err error) {
	l, err := parseList(text, at)
	if err != nil {
		return "", nil, err
	}
	return l.folder, l.names, nil
}
