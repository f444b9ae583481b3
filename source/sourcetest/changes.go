package sourcetest

import (
	"bytes"
	"errors"
	"testing"

	"lcache/source"
)

func testChanged(t *testing.T, f fixture) {
	old := Content(1, 5000)
	tests := []struct {
		name   string
		change func(m Mutator, name string) error
		want   error
	}{
		{"same size", func(m Mutator, n string) error { return m.Write(n, Content(2, 5000)) }, source.ErrChanged},
		{"shrunk", func(m Mutator, n string) error { return m.Write(n, old[:100]) }, source.ErrChanged},
		{"emptied", func(m Mutator, n string) error { return m.Write(n, nil) }, source.ErrChanged},
		{"grown", func(m Mutator, n string) error { return m.Write(n, Content(1, 5001)) }, source.ErrChanged},
		{"replaced", func(m Mutator, n string) error { return m.Replace(n, Content(3, 5000)) }, source.ErrChanged},
		{"removed", func(m Mutator, n string) error { return m.Remove(n) }, source.ErrGone},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, m := f(t, map[string][]byte{"c/x": old, "c/y": old})
			_, entries := list(t, s)
			if err := tt.change(m, "c/x"); err != nil {
				t.Fatal(err)
			}
			can := limits(m)
			x, want := can.Name("c/x"), tt.want
			if can.Together {
				want = source.ErrChanged
			}
			_, err := read(t, s, find(t, entries, x))
			wantSampleError(t, err, x, want)
			if can.Together {
				return
			}
			if got, err := read(t, s, find(t, entries, "c/y")); err != nil || !bytes.Equal(got, old) {
				t.Errorf("its neighbour can't be read: %v", err)
			}
		})
	}
}

func testRelist(t *testing.T, f fixture) {
	s, m := f(t, map[string][]byte{"c/same": {1}, "c/changed": {2}, "c/gone": {3}})
	_, before := list(t, s)
	if err := errors.Join(m.Write("c/changed", []byte{4}), m.Remove("c/gone"), m.Write("c/new", []byte{5})); err != nil {
		t.Fatal(err)
	}
	_, after := list(t, s)
	can := limits(m)
	if len(after) != 3 || !can.Together && find(t, after, "c/same").Version != find(t, before, "c/same").Version {
		t.Errorf("listed again: %v, want c/same as it was among 3", after)
	}
	if changed := can.Name("c/changed"); find(t, after, changed).Version == find(t, before, changed).Version {
		t.Error("a changed sample kept its version")
	}
	for name, content := range map[string]byte{"c/same": 1, "c/changed": 4, "c/new": 5} {
		want := can.Stored([]byte{content})
		if got, err := read(t, s, find(t, after, can.Name(name))); err != nil || !bytes.Equal(got, want) {
			t.Errorf("Read %q after listing again: %v, %v, want %v", name, got, err, want)
		}
	}
}
