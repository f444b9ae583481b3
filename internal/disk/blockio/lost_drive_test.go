package blockio

import (
	"path/filepath"
	"testing"
	"time"
)

// TestSubmitWhileRegistering: registering holds the ring's lock, so a submitter finds it taken. Regression:
// operations that were submitted meanwhile stayed in the backlog until the next Submit.
func TestSubmitWhileRegistering(t *testing.T) {
	io, err := Open(Options{Engine: "uring"})
	if err != nil {
		t.Skip("no io_uring here: ", err)
	}
	defer io.Close()
	e, ok := io.engine.(*uring)
	if !ok {
		t.Fatalf("the engine is %T", io.engine)
	}
	f, err := io.OpenFile(filepath.Join(t.TempDir(), "f"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Allocate(1 << 20); err != nil {
		t.Fatal(err)
	}
	mem, err := Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer Free(mem)
	for _, holder := range []struct {
		name string
		do   func([]byte) error
	}{{"register", io.Register}, {"unregister", io.Unregister}} {
		done := make(chan error, 1)
		e.mu.Lock() // as the holder does
		io.Submit(&Op{File: f, Buf: mem[:4096], Done: func(_ *Op, err error) { done <- err }})
		e.mu.Unlock()
		if err := holder.do(mem); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("an operation submitted during %s was never carried out", holder.name)
		}
	}
}
