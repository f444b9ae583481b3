package source

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// imageFolder is torchvision's find_classes and make_dataset in pure Python. It prints the classes, then label and
// path of every file.
const imageFolder = `
import os, sys
top = sys.argv[1]
put = lambda *cells: sys.stdout.buffer.write(b"".join(os.fsencode(str(c)) + b"\0" for c in cells))
names = sorted(e.name for e in os.scandir(top) if e.is_dir())
put(len(names), *names)
for label, name in enumerate(names or [""]):
    for folder, _, found in sorted(os.walk(os.path.join(top, name) if name else top, followlinks=True)):
        for f in sorted(found):
            put(label, os.path.relpath(os.path.join(folder, f), top))
`

func TestOrderIsPythons(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 to compare with: install it")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for trial := range 6 {
		top := t.TempDir()
		classes := 4 * (trial % 3) // every third source is flat
		for range 300 {
			elems := []string{randomName(rng)}
			if classes > 0 {
				elems = []string{fmt.Sprint(rng.IntN(classes)) + "-\xff\xee"[:rng.IntN(4)]}
				for range 1 + rng.IntN(3) {
					elems = append(elems, randomName(rng))
				}
			}
			path := top + "/" + strings.Join(elems, "/")
			os.MkdirAll(filepath.Dir(path), 0o777) // fails if a file has this name already; then the next line fails too
			if f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o666); err == nil {
				f.Close()
			}
		}
		fillEmptyClasses(t, top)
		out, err := exec.Command(python, "-X", "utf8", "-c", imageFolder, top).Output()
		if err != nil {
			t.Fatal(err)
		}
		s, err := Open(top, Options{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := cells(t, s)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, out) {
			want, have := strings.Split(string(out), "\x00"), strings.Split(string(got), "\x00")
			for i := range min(len(want), len(have)) {
				if want[i] != have[i] {
					t.Fatalf("trial %d, cell %d: Python has %q, List %q", trial, i, want[i], have[i])
				}
			}
			t.Fatalf("trial %d: Python has %d cells, List %d", trial, len(want), len(have))
		}
		if bytes.Count(got, []byte{0}) < 200 {
			t.Fatalf("trial %d compared only %d cells", trial, bytes.Count(got, []byte{0}))
		}
	}
}

// randomName returns a short name of few different letters, so that many names have a common prefix. Some bytes are
// not UTF-8.
func randomName(rng *rand.Rand) string {
	letters := []string{"a", "b", "-", ".x", "0", "Z", " ", "\n", "é", "\u07ff", "\ud7ff", "\ue000", "\uffee", "🙂", "\x80", "\xc3", "\xe2\x82", "\xed\xa0\x80", "\xf0\x9f", "\xff"}
	var b strings.Builder
	for range 1 + rng.IntN(4) {
		b.WriteString(letters[rng.IntN(len(letters))])
	}
	return b.String()
}

func fillEmptyClasses(t *testing.T, top string) {
	t.Helper()
	list, err := os.ReadDir(top)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if e.IsDir() {
			if err := os.WriteFile(filepath.Join(top, e.Name(), "one"), nil, 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func cells(t *testing.T, s Source) ([]byte, error) {
	defer s.Close()
	classes, entries, err := s.List(t.Context(), nil)
	var b bytes.Buffer
	fmt.Fprintf(&b, "%d\x00", len(classes))
	for _, c := range classes {
		b.WriteString(c + "\x00")
	}
	for _, e := range entries {
		fmt.Fprintf(&b, "%d\x00%s\x00", e.Label, e.Name)
	}
	return b.Bytes(), err
}

// FuzzComparePython compares comparePython with a comparison by code points.
func FuzzComparePython(f *testing.F) {
	for _, s := range []string{"", "a", "é", "\xff", "\xe2\x82", "\xe2\x82a", "\xe2\x82\xac", "\ue000", "\xed\xa0\x80", "\xf0\x9f\x99", "🙂"} {
		f.Add(s, "x"+s)
		f.Add(s, s+"\xac")
		f.Add("a\xe2\x82"+s, "a\xe2"+s)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		points := func(s string) (list []rune) {
			for s != "" {
				r, n := decodePython(s)
				list, s = append(list, r), s[n:]
			}
			return list
		}
		if got, want := comparePython(a, b), slices.Compare(points(a), points(b)); got != want {
			t.Errorf("%q and %q compare as %d, want %d", a, b, got, want)
		}
		if comparePython(a, b) != -comparePython(b, a) {
			t.Errorf("comparing %q and %q depends on their order", a, b)
		}
	})
}

func BenchmarkList(b *testing.B) {
	const folders, files = 100, 1000
	top := b.TempDir()
	for i := range folders {
		dir := fmt.Sprintf("%s/n%08d", top, i)
		if err := os.Mkdir(dir, 0o777); err != nil {
			b.Fatal(err)
		}
		for j := range files {
			if err := os.WriteFile(fmt.Sprintf("%s/n%08d_%d.JPEG", dir, i, j), nil, 0o666); err != nil {
				b.Fatal(err)
			}
		}
	}
	s, err := Open(top, Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	b.ReportAllocs()
	for b.Loop() {
		if _, entries, err := s.List(b.Context(), nil); err != nil || len(entries) != folders*files {
			b.Fatal(len(entries), err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/folders/files, "ns/sample")
}

func BenchmarkRead(b *testing.B) {
	const size = 100_000
	top := b.TempDir()
	for i := range 100 {
		if err := errors.Join(os.MkdirAll(top+"/class", 0o777), os.WriteFile(fmt.Sprintf("%s/class/%d", top, i), make([]byte, size), 0o666)); err != nil {
			b.Fatal(err)
		}
	}
	s, err := Open(top, Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	_, entries, err := s.List(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	dst := make([]byte, size)
	b.SetBytes(size)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := s.Read(b.Context(), entries[i%len(entries)], dst); err != nil {
			b.Fatal(err)
		}
	}
}
