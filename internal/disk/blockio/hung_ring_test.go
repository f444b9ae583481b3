package blockio

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRingThatHangs: if the kernel does not complete a transfer of the self-test, the pool is chosen after a while. Regression: Open waited without a
// limit.
func TestRingThatHangs(t *testing.T) {
	io, _ := openRing(t, 4)
	f, err := io.OpenFile(filepath.Join(t.TempDir(), "f"), true)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Allocate(4096), f.Close()); err != nil {
		t.Fatal(err)
	}
	for which := range int64(4) {
		for _, want := range []string{"auto", "uring"} {
			t.Run(fmt.Sprintf("%s, transfer %d", want, which), func(t *testing.T) { testRingThatHangs(t, want, which, f.path) })
		}
	}
}

func testRingThatHangs(t *testing.T, want string, which int64, path string) {
	io := &IO{direct: "auto", log: slog.New(slog.DiscardHandler), ops: newBacklog(4, 4)}
	hung := make(chan struct{})
	defer close(hung) // the ring ends
	Inject(io, func(n int64, _ *Op) Fault {
		if n == which {
			return Fault{Hold: hung}
		}
		return Fault{}
	})
	chosen := make(chan error, 1)
	go func() { chosen <- io.choose(want, 100*time.Millisecond) }()
	var err error
	select {
	case err = <-chosen:
	case <-time.After(20 * time.Second):
		t.Fatal("it is not decided which engine is used")
	}
	if want == "uring" {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want an error of the deadline", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer io.Close()
	if io.Name() != "pread" || !strings.Contains(io.Reason(), "self-test: the kernel did not complete it within") {
		t.Errorf("the engine is %s, because %s", io.Name(), io.Reason())
	}
	f, err := io.OpenFile(path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mem, err := Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer Free(mem)
	if err := io.Read(t.Context(), f, 0, mem); err != nil {
		t.Error(err)
	}
}
