// Package sourcetest tests the contract of [source.Source]. The tests of each kind of source call [Run].
package sourcetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"lcache/sample"
	"lcache/source"
)

// Mutator changes the data of a source. Each call changes the sample's version.
type Mutator interface {
	Write(name string, data []byte) error   // changes the sample in place
	Replace(name string, data []byte) error // puts another object in its place
	Remove(name string) error
}

// Limits are things that a kind of source can't do. A Mutator may have a method Limits.
type Limits struct {
	OwnOrder bool                     // its order and classes differ from ImageFolder's
	Together bool                     // samples are in shards: none changes without the others, and a removed one counts as changed
	Name     func(file string) string // returns the sample of a file; "": none. nil: each file is a sample of the same name
	Stored   func(data []byte) []byte // returns the bytes of a sample whose file has data, for formats that can't hold any bytes. nil: they are the same
}

func limits(m Mutator) Limits {
	l := Limits{}
	if limited, ok := m.(interface{ Limits() Limits }); ok {
		l = limited.Limits()
	}
	if l.Name == nil {
		l.Name = func(file string) string { return file }
	}
	if l.Stored == nil {
		l.Stored = func(data []byte) []byte { return data }
	}
	return l
}

// Lacking is a Mutator of a kind of source that can't do everything that directories can. It names the tests that do
// not apply.
type Lacking interface{ Lacks() []string }

// ReplacedAlike is the name of the tests in which an object is replaced by another one with the same bytes.
const ReplacedAlike = "replaced alike"

// lacks reports whether a test does not apply to a kind of source.
func lacks(m Mutator, test string) bool {
	l, ok := m.(Lacking)
	return ok && slices.Contains(l.Lacks(), test)
}

// holding returns the fixture, or skips the test if it does not apply to the kind of source.
func holding(test string, f fixture) fixture {
	return func(t *testing.T, files map[string][]byte) (source.Source, Mutator) {
		s, m := f(t, files)
		if lacks(m, test) {
			t.Skipf("%T does not do this", m)
		}
		return s, m
	}
}

// Run tests a kind of source. newSource makes one with the given files (keys with "/" between their elements) and
// closes it at the end of the test.
func Run(t *testing.T, newSource func(t *testing.T, files map[string][]byte) (source.Source, Mutator)) {
	tests := []struct {
		name string
		run  func(t *testing.T, f fixture)
	}{
		{"Order", testOrder},
		{"Flat", testFlat},
		{"Bytes", testBytes},
		{"Names", testNames},
		{"Progress", testProgress},
		{"Concurrent", testConcurrent},
		{"Changed", testChanged},
		{"Relist", testRelist},
		{"Cancel", testCancel},
		{"WrongRoom", testWrongRoom},
		{"Unlisted", testUnlisted},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ignore := goleak.IgnoreCurrent()
			t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
			tt.run(t, holding(tt.name, newSource))
		})
	}
}

type fixture func(t *testing.T, files map[string][]byte) (source.Source, Mutator)

// Content makes n bytes that differ between seeds and at every offset. Nobody else knows them before it returns: the race detector need not look at each.
//
//go:norace
func Content(seed byte, n int) []byte {
	b := make([]byte, n)
	x := uint32(seed) + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

func list(t *testing.T, s source.Source) ([]string, []sample.Entry) {
	t.Helper()
	classes, entries, err := s.List(t.Context(), nil)
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	return classes, entries
}

func read(t *testing.T, s source.Source, e sample.Entry) ([]byte, error) {
	t.Helper()
	dst := make([]byte, e.Size)
	err := s.Read(t.Context(), e, dst)
	return dst, err
}

func find(t *testing.T, entries []sample.Entry, name string) sample.Entry {
	t.Helper()
	for _, e := range entries {
		if e.Name == name {
			return e
		}
	}
	t.Fatalf("List has no %q", name)
	return sample.Entry{}
}

// wantSampleError checks that err names the sample, and has the given cause unless that is nil.
func wantSampleError(t *testing.T, err error, name string, cause error) {
	t.Helper()
	var se *source.SampleError
	if !errors.As(err, &se) || se.Name != name {
		t.Errorf("error is %v, want a SampleError of %q", err, name)
	} else if cause != nil && !errors.Is(err, cause) {
		t.Errorf("error is %v, want %v", err, cause)
	}
}

func testOrder(t *testing.T, f fixture) {
	// Folders sort by their whole path: "-" sorts before "/", so b/a-b is between b/a and b/a/z.
	want := []string{"B/1", "a/0", "a/10", "a/2", "b/x", "b/a/1", "b/a-b/1", "b/a/z/1", "b/ab/1", "é/1"}
	files := make(map[string][]byte)
	for i, name := range want {
		files[name] = Content(byte(i), i)
	}
	s, m := f(t, files)
	if limits(m).OwnOrder {
		return
	}
	classes, entries := list(t, s)
	if got := []string{"B", "a", "b", "é"}; !reflect.DeepEqual(classes, got) {
		t.Errorf("classes are %q, want %q", classes, got)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name)
		if class := classes[e.Label]; e.Name[:len(class)+1] != class+"/" {
			t.Errorf("%q has the label of %q", e.Name, class)
		}
		if int(e.Size) != len(files[e.Name]) {
			t.Errorf("%q has size %d, want %d", e.Name, e.Size, len(files[e.Name]))
		}
	}
	if !reflect.DeepEqual(names, want) {
		t.Errorf("order is\n%q, want\n%q", names, want)
	}
}

func testFlat(t *testing.T, f fixture) {
	s, m := f(t, map[string][]byte{"b": nil, "a": {1}, "B.x": {2}, ".hidden": {3}})
	if limits(m).OwnOrder {
		return
	}
	classes, entries := list(t, s)
	if len(classes) != 0 {
		t.Errorf("classes are %q, want none", classes)
	}
	want := []string{".hidden", "B.x", "a", "b"}
	for i, e := range entries {
		if i >= len(want) || e.Name != want[i] || e.Label != 0 {
			t.Errorf("sample %d is %q with label %d, want the order %q and 0", i, e.Name, e.Label, want)
		}
	}
	if len(entries) != len(want) {
		t.Errorf("%d samples, want %d", len(entries), len(want))
	}
}

func testBytes(t *testing.T, f fixture) {
	const mib = 1 << 20
	files := make(map[string][]byte)
	for i, size := range []int{0, 1, 2, 511, 4096, 4097, mib - 1, mib, mib + 1, 3*mib + 7} {
		files[fmt.Sprintf("c/%d", size)] = Content(byte(i), size)
	}
	s, m := f(t, files)
	wanted := named(m, files)
	_, entries := list(t, s)
	if len(entries) != len(files) {
		t.Fatalf("%d samples, want %d", len(entries), len(files))
	}
	for _, e := range entries {
		// Bytes around the buffer must not change.
		room := bytes.Repeat([]byte{0xA5}, int(e.Size)+16)
		if err := s.Read(t.Context(), e, room[8:8+e.Size]); err != nil {
			t.Errorf("Read %q: %v", e.Name, err)
		}
		if want := wanted[e.Name]; !bytes.Equal(room[8:8+e.Size], want) {
			t.Errorf("%q has other bytes", e.Name)
		}
		if bytes.Count(room[:8], []byte{0xA5}) != 8 || bytes.Count(room[8+e.Size:], []byte{0xA5}) != 8 {
			t.Errorf("Read of %q wrote outside its room", e.Name)
		}
	}
}

// OddNames are names that a source must pass through unchanged.
var OddNames = []string{
	"new\nline", "tab\t", " lead", "trail ", "-rf", "...", "..a", "back\\slash", "100%", "q?&=#", "quote'\"", "ümläut", "u\u0308", "日本", "🙂", "\x01\x7f", "*", "a:b", "NUL",
}

func testNames(t *testing.T, f fixture) {
	files := make(map[string][]byte)
	for i, name := range OddNames {
		files["c/"+name] = Content(byte(i), 10+i)
	}
	s, m := f(t, files)
	files = named(m, files)
	_, entries := list(t, s)
	for name, want := range files {
		if got, err := read(t, s, find(t, entries, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("Read %q: %d bytes, %v", name, len(got), err)
		}
	}
	if len(entries) != len(files) {
		t.Errorf("%d samples, want %d", len(entries), len(files))
	}
}

func testProgress(t *testing.T, f fixture) {
	files := make(map[string][]byte)
	for i := range 100 {
		files[fmt.Sprintf("c%d/%d", i%7, i)] = nil
	}
	s, _ := f(t, files)
	var inside atomic.Int32
	last, calls := 0, 0
	_, entries, err := s.List(t.Context(), func(n int) {
		if inside.Add(1) != 1 {
			t.Error("two calls of progress at a time")
		}
		last, calls = n, calls+1
		inside.Add(-1)
	})
	if err != nil || len(entries) != len(files) {
		t.Fatalf("List: %d samples, %v", len(entries), err)
	}
	if calls == 0 || last != len(files) {
		t.Errorf("progress ended at %d after %d calls, want %d", last, calls, len(files))
	}
}

// named returns the bytes of the files that become samples, by the names of the samples.
func named(m Mutator, files map[string][]byte) map[string][]byte {
	can, all := limits(m), map[string][]byte{}
	for file, data := range files {
		if name := can.Name(file); name != "" {
			all[name] = can.Stored(data)
		}
	}
	return all
}

func testConcurrent(t *testing.T, f fixture) {
	files := make(map[string][]byte)
	for i := range 40 {
		files[fmt.Sprintf("c%d/%d", i%3, i)] = Content(byte(i), 250*i)
	}
	s, m := f(t, files)
	files = named(m, files)
	_, entries := list(t, s)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range entries {
				e := entries[(i*7+g*5)%len(entries)]
				dst := make([]byte, e.Size)
				if err := s.Read(t.Context(), e, dst); err != nil || !bytes.Equal(dst, files[e.Name]) {
					t.Errorf("Read %q among others: %v", e.Name, err)
				}
			}
		})
	}
	wg.Go(func() {
		if _, again, err := s.List(t.Context(), nil); err != nil || !reflect.DeepEqual(again, entries) {
			t.Errorf("List among reads differs: %v", err)
		}
	})
	wg.Wait()
}

func testCancel(t *testing.T, f fixture) {
	s, _ := f(t, map[string][]byte{"c/x": Content(0, 1000)})
	_, entries := list(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 { // select chooses at random among ready channels
		err := s.Read(ctx, entries[0], make([]byte, entries[0].Size))
		var se *source.SampleError
		if !errors.Is(err, context.Canceled) || errors.As(err, &se) {
			t.Fatalf("Read when cancelled: %v, want the context's error and no SampleError", err)
		}
	}
	if _, _, err := s.List(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("List when cancelled: %v", err)
	}
}

func testWrongRoom(t *testing.T, f fixture) {
	s, _ := f(t, map[string][]byte{"c/x": Content(0, 1000)})
	_, entries := list(t, s)
	size := int(entries[0].Size)
	for _, n := range []int{0, size - 1, size + 1} {
		if err := s.Read(t.Context(), entries[0], make([]byte, n)); err == nil {
			t.Errorf("Read into %d bytes of a sample of %d gave no error", n, size)
		}
	}
}

func testUnlisted(t *testing.T, f fixture) {
	s, _ := f(t, map[string][]byte{"c/x": {1}})
	list(t, s)
	for _, name := range []string{"", ".", "..", "../c/x", "c", "c/x/y", "c/../../x", "/etc/passwd", "/c/x", "c/nul\x00", "c/\xff", "no"} {
		err := s.Read(t.Context(), sample.Entry{Name: name, Size: 1}, make([]byte, 1))
		wantSampleError(t, err, name, nil)
	}
}
