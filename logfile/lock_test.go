package logfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lcache/internal/trust"
)

// TestLockSaysWhenItEnds: the error for a locked directory names the process that holds it, and when that process will exit.
func TestLockSaysWhenItEnds(t *testing.T) {
	dir := t.TempDir()
	l, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	pid := os.Getpid()
	busy := func() *BusyError {
		t.Helper()
		_, err := Lock(dir)
		b := new(BusyError)
		if !errors.As(err, &b) || b.Pid != pid || b.Dir != dir {
			t.Fatalf("a second lock: %v", err)
		}
		return b
	}
	if got, want := busy().Error(), fmt.Sprintf("%s is in use by process %d: stop it with lcache stop %d, or use another cache", dir, pid, pid); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	l.SetEnds(time.Now().Add(42900 * time.Millisecond))
	if got, want := busy().Error(), fmt.Sprintf("%s is in use by process %d, which has no client and exits in 43 s: stop it with lcache stop %d, or use another cache", dir, pid, pid); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	l.SetEnds(time.Now().Add(-time.Hour)) // just now: it is ending
	if got := busy(); time.Until(got.Ends) > 0 {
		t.Errorf("ends at %v", got.Ends)
	}
	l.SetEnds(time.Time{})
	if got := busy(); !got.Ends.IsZero() {
		t.Errorf("with a client it ends at %v", got.Ends)
	}
	for _, torn := range []string{"", "x", fmt.Sprint(pid) + "\nends", fmt.Sprint(pid) + "\nends 2026-11-"} {
		if err := os.WriteFile(filepath.Join(dir, lockName), []byte(torn), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(filepath.Join(dir, lockName))
		if err != nil {
			t.Fatal(err)
		}
		if got, ends := readHolder(f); !ends.IsZero() || len(torn) > 2 && got != pid {
			t.Errorf("%q is read as process %d that ends at %v", torn, got, ends)
		}
		f.Close()
	}
}

// TestLockSaysThatItWasStopped: clients find that in the file after the process has ended, until another one takes the directory.
func TestLockSaysThatItWasStopped(t *testing.T) {
	dir := t.TempDir()
	l, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	pid := fmt.Sprintf("%d\n", os.Getpid())
	says := func(want string) {
		t.Helper()
		if got, err := os.ReadFile(filepath.Join(dir, lockName)); err != nil || string(got) != want {
			t.Errorf("the file has %q, %v, want %q", got, err, want)
		}
	}
	l.SetEnds(time.Now().Add(time.Hour))
	l.SetStopped()
	says(pid + "stopped\n")
	l.SetEnds(time.Now().Add(time.Hour)) // its last client leaves
	l.SetEnds(time.Time{})
	says(pid + "stopped\n")
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	says(pid + "stopped\n")
	if l, err = Lock(dir); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	says(pid)
}

// TestLockAdvice: the error for a lock file that can't be opened says what to do.
func TestLockAdvice(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&fs.PathError{Op: "open", Path: "/c/LOCK", Err: unix.EACCES}, "another user made this cache"},
		{&fs.PathError{Op: "open", Path: "/c/LOCK", Err: unix.EROFS}, "can be written"},
		{&trust.Error{Path: "/c/LOCK", Owner: 7}, ""}, // says it itself
		{&fs.PathError{Op: "open", Path: "/c/LOCK", Err: unix.EIO}, ""},
	} {
		if got := lockAdvice(c.err); !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}

// TestLockRemoved: where each holder removes the file before it gives the directory back, there is still one holder at a time.
func TestLockRemoved(t *testing.T) {
	dir := t.TempDir()
	var holders, held atomic.Int32
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 3000 {
				l, err := Lock(dir)
				if err != nil {
					continue
				}
				if n := holders.Add(1); n != 1 {
					t.Errorf("%d at a time", n)
				}
				held.Add(1)
				runtime.Gosched()
				holders.Add(-1)
				if err := errors.Join(l.Remove(), l.Close()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if held.Load() == 0 {
		t.Error("no goroutine got the lock")
	}
}
