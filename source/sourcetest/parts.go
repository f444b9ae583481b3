package sourcetest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"lcache/sample"
	"lcache/source"
)

// RunParts tests a kind of source whose samples have parts: it must group files by stem, as [source.GroupStem] says.
// newSource is as in Run.
func RunParts(t *testing.T, newSource func(t *testing.T, files map[string][]byte) (source.Source, Mutator)) {
	t.Run("Parts", func(t *testing.T) { testParts(t, holding("Parts", newSource)) })
	t.Run("PartsNames", func(t *testing.T) { testPartsNames(t, holding("PartsNames", newSource)) })
	t.Run("PartsChanged", func(t *testing.T) { testPartsChanged(t, holding("PartsChanged", newSource)) })
	t.Run("PartsProgress", func(t *testing.T) { testPartsProgress(t, holding("PartsProgress", newSource)) })
}

// shape formats a listing: name, label, and each part with its size.
func shape(entries []sample.Entry) string {
	var b strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&b, "%q=%d", e.Name, e.Label)
		for _, p := range e.Parts {
			fmt.Fprintf(&b, " %q:%d", p.Ext, p.Size)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// checkBytes reads every sample and compares it with its concatenated files.
func checkBytes(t *testing.T, s source.Source, entries []sample.Entry, files map[string][]byte) {
	t.Helper()
	left := len(files)
	for _, e := range entries {
		var want []byte
		for _, p := range e.Parts {
			name := e.Name
			if p.Ext != "" {
				name += "." + p.Ext
			}
			data, ok := files[name]
			if !ok || len(data) != int(p.Size) {
				t.Errorf("%q has the part %q of %d bytes; file %q has %d, there: %v", e.Name, p.Ext, p.Size, name, len(data), ok)
			}
			want, left = append(want, data...), left-1
		}
		if got, err := read(t, s, e); err != nil || !bytes.Equal(got, want) {
			t.Errorf("Read %q: %d bytes, %v; want its files' %d", e.Name, len(got), err, len(want))
		}
	}
	if left != 0 {
		t.Errorf("%d files are in no sample", left)
	}
}

func testParts(t *testing.T, f fixture) {
	// The order is that of the first parts' files: "-" sorts before ".", so a-b comes before a. A file without a dot
	// comes before both.
	want := `"a/0"=0 "":1
"a/a-b"=0 "jpg":2
"a/a"=0 "jpg":3 "json":4 "seg.png":0 "txt":5
"a/b"=0 "":6 "jpg":1100000
"a/sub/a"=0 "jpg":7
"b/x"=1 "tar.gz":9
`
	files := map[string][]byte{}
	for name, n := range map[string]int{"a/0": 1, "a/a-b.jpg": 2, "a/a.jpg": 3, "a/a.json": 4, "a/a.seg.png": 0, "a/a.txt": 5, "a/b": 6, "a/b.jpg": 1100000,
		"a/sub/a.jpg": 7, "b/x.tar.gz": 9} {
		files[name] = Content(byte(n), n)
	}
	s, _ := f(t, files)
	classes, entries := list(t, s)
	if got := shape(entries); got != want || len(classes) != 2 {
		t.Errorf("%q:\n%swant\n%s", classes, got, want)
	}
	checkBytes(t, s, entries, files)
}

func testPartsNames(t *testing.T, f fixture) {
	files := map[string][]byte{}
	for i, name := range append([]string{".hidden", ".hidden.jpg", "..", "dot.", "long" + strings.Repeat("x", 200), "dots...", "\xff.\xfe\xff"}, OddNames...) {
		if strings.Trim(name, ".") == "" {
			continue
		}
		for k, ext := range []string{"", ".jpg", ".a.b", ".new\nline"} {
			files["c/"+name+ext] = Content(byte(i), 4*i+k)
		}
	}
	s, _ := f(t, files)
	_, entries := list(t, s)
	names := map[string]bool{}
	for _, e := range entries {
		if names[e.Name] || len(e.Parts) == 0 {
			t.Errorf("%q is listed twice, or has no part", e.Name)
		}
		names[e.Name] = true
	}
	checkBytes(t, s, entries, files)
}

func testPartsChanged(t *testing.T, f fixture) {
	old := Content(1, 3000)
	for _, part := range []string{"c/x.a", "c/x.b", "c/x.c"} {
		for name, change := range map[string]struct {
			do   func(m Mutator) error
			want error
		}{
			"same size": {func(m Mutator) error { return m.Write(part, Content(2, 3000)) }, source.ErrChanged},
			"shrunk":    {func(m Mutator) error { return m.Write(part, old[:10]) }, source.ErrChanged},
			"grown":     {func(m Mutator) error { return m.Write(part, Content(1, 3001)) }, source.ErrChanged},
			"replaced":  {func(m Mutator) error { return m.Replace(part, old) }, source.ErrChanged},
			"removed":   {func(m Mutator) error { return m.Remove(part) }, source.ErrGone},
		} {
			t.Run(part[2:]+" "+name, func(t *testing.T) {
				s, m := f(t, map[string][]byte{"c/x.a": old, "c/x.b": old, "c/x.c": old, "c/y.a": old})
				if name == "replaced" && lacks(m, ReplacedAlike) {
					t.Skipf("%T does not do this", m)
				}
				_, entries := list(t, s)
				if err := change.do(m); err != nil {
					t.Fatal(err)
				}
				_, err := read(t, s, find(t, entries, "c/x"))
				wantSampleError(t, err, "c/x", change.want)
				if _, err := read(t, s, find(t, entries, "c/y")); err != nil {
					t.Errorf("its neighbour: %v", err)
				}
				if _, after := list(t, s); find(t, after, "c/x").Version == find(t, entries, "c/x").Version {
					t.Error("listed again it has the version that it had")
				}
			})
		}
	}
	s, _ := f(t, map[string][]byte{"c/x.a": old})
	_, entries := list(t, s)
	wrong := entries[0]
	wrong.Parts = []sample.Part{{Ext: "a", Size: 4000}}
	if _, err := read(t, s, wrong); !errors.As(err, new(*source.SampleError)) {
		t.Errorf("parts that are longer than the whole: %v", err)
	}
}

func testPartsProgress(t *testing.T, f fixture) {
	files := map[string][]byte{}
	for i := range 60 {
		files[fmt.Sprintf("c%d/%d.%c", i%2, i/3, 'a'+i%3)] = nil
	}
	s, _ := f(t, files)
	last := 0
	_, entries, err := s.List(t.Context(), func(n int) { last = n })
	if err != nil || last != len(entries) || len(entries) != 40 {
		t.Errorf("%d samples, progress ended at %d, %v; want 40", len(entries), last, err)
	}
}
