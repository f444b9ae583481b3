package source_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"lcache/sample"
	"lcache/source"
)

func TestTarTogether(t *testing.T) {
	var a, b, c []string
	for i := range 12 {
		c = append(c, fmt.Sprintf("%02d.cls=1", i), fmt.Sprintf("%02d.jpg=%s", i, strings.Repeat("c", 100_000)))
	}
	for i := range 30 {
		a = append(a, fmt.Sprintf("%02d.cls=%d", i, i), fmt.Sprintf("%02d.jpg=%s", i, strings.Repeat("x", 100*i)))
	}
	a = append(a, "far=", "gap="+strings.Repeat("-", 300<<10), "z.cls=1", "z.jpg=y", "00.jpg=again")
	b = append(b, "big.cls=1", "big.jpg="+strings.Repeat("b", 5<<20), "x.cls=1", "x.jpg=z")
	tr := newTree(t, nil)
	if err := errors.Join(tr.Write("a.tar", shard(t, a...)), tr.Write("b.tar", shard(t, b...)), tr.Write("c.tar", shard(t, c...))); err != nil {
		t.Fatal(err)
	}
	s := openTar(t, tr.dir+"/{a,b,c}.tar", source.Options{}).(source.Sharded)
	_, entries, err := s.List(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var pieces []int
	for rest := entries; len(rest) > 0; {
		n := s.Together(rest)
		pieces = append(pieces, n)
		dst := make([][]byte, n)
		for i := range dst {
			dst[i] = make([]byte, rest[i].Size)
		}
		if err := s.ReadTogether(t.Context(), rest[:n], dst); err != nil {
			t.Fatal(err)
		}
		for i, e := range rest[:n] {
			alone := make([]byte, e.Size)
			if err := s.Read(t.Context(), e, alone); err != nil || !bytes.Equal(alone, dst[i]) {
				t.Errorf("%s: %d bytes differ from the %d that are read alone, %v", e.Name, len(dst[i]), len(alone), err)
			}
		}
		rest = rest[n:]
	}
	// The jpg of the first sample was written again at the end of the shard, after the gap, and that piece contains
	// everything in between. Pieces of a local file are small.
	if want := []int{31, 1, 1, 5, 5, 2}; !slices.Equal(pieces, want) {
		t.Errorf("pieces of %v samples, want %v", pieces, want)
	}
	if n := s.Together(entries[1:]); n != 29 {
		t.Errorf("%d samples before the gap are together", n)
	}
	if err := tr.Write("b.tar", shard(t, b...)); err != nil {
		t.Fatal(err)
	}
	e := entries[32]
	if err := s.ReadTogether(t.Context(), []sample.Entry{e}, [][]byte{make([]byte, e.Size)}); !errors.Is(err, source.ErrChanged) {
		t.Errorf("a changed shard: %v", err)
	}
}

// TestTarLinks: a shard may be a link. A link that leaves the source is not read if that is not allowed.
func TestTarLinks(t *testing.T) {
	away := shards(t, map[string]string{"a.tar": "x.jpg y.jpg", "b.tar": "x.jpg y.jpg"})
	tr := shards(t, map[string]string{"c.tar": "z.jpg"})
	if err := errors.Join(os.Symlink(away.path("a.tar"), tr.path("a.tar")), os.Symlink("c.tar", tr.path("b.tar"))); err != nil {
		t.Fatal(err)
	}
	s := openTar(t, tr.dir+"/{a,b}.tar", source.Options{})
	l, err := source.Relist(t.Context(), s, nil, nil)
	if err != nil || l.Samples().Len() != 3 || l.Outside != 2 {
		t.Fatalf("%d samples, %d outside, %v", l.Samples().Len(), l.Outside, err)
	}
	info, err := os.Stat(away.path("a.tar"))
	b, err2 := os.ReadFile(away.path("b.tar"))
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	err = errors.Join(os.WriteFile(away.path("b.tar"), b, 0o666), os.Chtimes(away.path("b.tar"), info.ModTime(), info.ModTime()),
		os.Remove(tr.path("a.tar")), os.Symlink(away.path("b.tar"), tr.path("a.tar")))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Read(t.Context(), l.Samples().At(0), make([]byte, l.Samples().At(0).Size)); !errors.Is(err, source.ErrChanged) {
		t.Errorf("a link to another file of the same time: %v", err)
	}
	if err := os.Remove(tr.path("b.tar")); err != nil {
		t.Fatal(err)
	}
	if err := s.Read(t.Context(), l.Samples().At(2), make([]byte, l.Samples().At(2).Size)); !errors.Is(err, source.ErrGone) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a shard that is gone: %v", err)
	}
	_, _, err = openTar(t, tr.dir+"/a.tar", source.Options{NoFollowLinks: true}).List(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), `shard "a.tar": its link leaves the source`) {
		t.Errorf("a link that leaves: %v", err)
	}
}
