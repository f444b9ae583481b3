package source

import (
	"os"
	"time"
)

// SetSettled lets a test's folders count as old enough for a record at once.
func SetSettled(d time.Duration) (old time.Duration) {
	old, settled = settled, d
	return old
}

// WithoutOpenat2 lets a source find its files as on a kernel, or under a seccomp profile, that has no openat2.
func WithoutOpenat2(s Source) error {
	d := s.(*dir)
	null, err := os.Open("/dev/null")
	if err != nil {
		return err
	}
	old := d.top
	d.top = null
	return old.Close()
}
