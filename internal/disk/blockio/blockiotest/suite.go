// Package blockiotest has the conformance suite of block I/O engines.
//
// Run takes a function that opens an engine, and checks the guarantees of package blockio: contents, order of events, ends of files,
// alignment, faults, and the drain at Close. Mem returns memory for direct I/O. Everything here is for tests and may be called
// concurrently.
package blockiotest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
)

// patience is for waits that should end at once: only a bug uses it up.
const patience = 20 * time.Second

// unit is a length and offset that every alignment divides.
const unit = 4096

// Run runs the suite. It calls open for each part, and closes the returned IO.
func Run(t *testing.T, open func(t *testing.T) *blockio.IO) {
	parts := []struct {
		name string
		run  func(t *testing.T, io *blockio.IO)
	}{
		{"round trip", roundTrip},
		{"many in flight", manyInFlight},
		{"many submitters", manySubmitters},
		{"end of file", endOfFile},
		{"alignment", alignment},
		{"submit in Done", submitInDone},
		{"Done outside Submit", doneOutsideSubmit},
		{"empty buffer", emptyBuffer},
		{"close drains", closeDrains},
		{"closed", closed},
		{"file closed in flight", fileClosedInFlight},
		{"context ends", contextEnds},
		{"faults", faults},
		{"lost transfers", lost},
		{"nth operation fails", nthFails},
		{"concurrent failures", allFail},
		{"registered memory", registered},
	}
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) {
			io := open(t)
			t.Cleanup(func() {
				blockio.Inject(io, nil)
				if err := io.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
			p.run(t, io)
		})
	}
}

// Mem returns n bytes of aligned memory, which is freed when the test has ended and its IO is closed. Call it before opening the IO, or have
// nothing in flight at the end.
func Mem(t testing.TB, n int) []byte {
	t.Helper()
	b, err := blockio.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := blockio.Free(b); err != nil {
			t.Error(err)
		}
	})
	return b
}

// newFile makes a file of n reserved bytes.
func newFile(t *testing.T, io *blockio.IO, n int64) *blockio.File {
	t.Helper()
	f, err := io.OpenFile(filepath.Join(t.TempDir(), "file"), true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if n > 0 {
		if err := f.Allocate(n); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// fill writes the expected bytes at off of a file: every 8 bytes encode their offset and the seed.
func fill(b []byte, off int64, seed byte) {
	for i := range b {
		p := off + int64(i)
		b[i] = byte(p>>(8*(p&3))) ^ byte(p>>9) ^ seed
	}
}

func checkFill(b []byte, off int64, seed byte) error {
	for i := range b {
		p := off + int64(i)
		if want := byte(p>>(8*(p&3))) ^ byte(p>>9) ^ seed; b[i] != want {
			return fmt.Errorf("byte %d is %#x, want %#x", p, b[i], want)
		}
	}
	return nil
}

func mustWrite(t *testing.T, io *blockio.IO, f *blockio.File, off int64, b []byte) {
	t.Helper()
	if err := io.Write(context.Background(), f, off, b); err != nil {
		t.Fatal(err)
	}
}

func mustRead(t *testing.T, io *blockio.IO, f *blockio.File, off int64, b []byte) {
	t.Helper()
	if err := io.Read(context.Background(), f, off, b); err != nil {
		t.Fatal(err)
	}
}

// want checks that err is the target; nil for no error.
func want(t *testing.T, what string, err, target error) {
	t.Helper()
	if target == nil && err != nil || target != nil && !errors.Is(err, target) {
		t.Errorf("%s: got error %v, want %v", what, err, target)
	}
}

// tally collects the number of Done calls of n operations, and their errors.
type tally struct {
	results chan result
	n       int
}

type result struct {
	i   int
	err error
}

func newTally(n int) *tally { return &tally{make(chan result, 2*n), n} }

func (c *tally) done(i int) func(*blockio.Op, error) {
	return func(_ *blockio.Op, err error) { c.results <- result{i, err} }
}

// wait returns the error of each operation. If one ends twice, or never, the test fails.
func (c *tally) wait(t *testing.T) []error {
	t.Helper()
	errs, seen := make([]error, c.n), make([]bool, c.n)
	timeout := time.After(patience)
	for k := range c.n {
		select {
		case r := <-c.results:
			if seen[r.i] {
				t.Fatalf("operation %d ended twice", r.i)
			}
			errs[r.i], seen[r.i] = r.err, true
		case <-timeout:
			t.Fatalf("only %d of %d operations have ended", k, c.n)
		}
	}
	return errs
}

func (c *tally) waitAll(t *testing.T, target error) {
	t.Helper()
	for i, err := range c.wait(t) {
		want(t, fmt.Sprintf("operation %d", i), err, target)
	}
}

func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("%s did not come", what)
	}
}
