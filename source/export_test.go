package source

import "time"

// SetSettled lets a test's folders count as old enough for a record at once.
func SetSettled(d time.Duration) (old time.Duration) {
	old, settled = settled, d
	return old
}
