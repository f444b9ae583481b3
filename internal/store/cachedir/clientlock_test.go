package cachedir

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestClientLock: one process at a time has the lock, even if a client has removed the file meanwhile. Others can
// read the holder's activity.
func TestClientLock(t *testing.T) {
	dir := t.TempDir()
	take := func() *ClientLock {
		t.Helper()
		l, err := TakeClientLock(dir, "testing")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	first := take()
	if first == nil || take() != nil {
		t.Fatal("got the lock twice or not at all, want it once")
	}
	path := filepath.Join(dir, openName)
	if text, err := os.ReadFile(path); err != nil || string(text) != fmt.Sprintf("%d: testing", os.Getpid()) {
		t.Errorf("the file has %q, %v", text, err)
	}
	first.Close()
	again := take()
	if again == nil {
		t.Fatal("the lock was not given back")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	other := take() // of a new file
	if other == nil {
		t.Error("the lock of a removed file is held")
	}
	again.Close()
	other.Close()
	take().Close()

	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if l, err := TakeClientLock(dir, "testing"); l != nil || err == nil {
		t.Errorf("a file that other users can write: %v, %v", l, err)
	}
}
