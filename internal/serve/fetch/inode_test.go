package fetch_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"lcache/internal/serve/fetch"
	"lcache/sample"
	"lcache/source"
)

// TestLearnsFiles: a read from the source reports the inode of the file, and whether its bytes are the sample's. That
// takes no further read.
func TestLearnsFiles(t *testing.T) {
	var mu sync.Mutex // guards learnt
	var learnt []string
	b, _ := newBed(t, 6, 2, fetch.Options{Learn: func(index sample.Index, inode uint64, right bool) {
		mu.Lock()
		defer mu.Unlock()
		learnt = append(learnt, fmt.Sprint(index, inode, right))
	}})
	path := filepath.Join(b.Dir, b.Name(5))
	was, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	get := func(want error, indices ...sample.Index) {
		t.Helper()
		extents, _, err := b.Fetcher.FetchAll(t.Context(), indices)
		if !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
		for _, x := range extents {
			b.Staging.Drop(x)
		}
	}
	get(nil, 0, 4, 5)
	if err := errors.Join(os.WriteFile(path, make([]byte, 3000), 0o644), os.Chtimes(path, was.ModTime(), was.ModTime())); err != nil {
		t.Fatal(err)
	}
	get(source.ErrChanged, 5)
	_, listed, err := b.Source.List(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for index, right := range map[sample.Index][]bool{4: {true}, 5: {true, false}} {
		at := slices.IndexFunc(listed, func(e sample.Entry) bool { return e.Name == b.Name(index) })
		for _, r := range right {
			want = append(want, fmt.Sprint(index, listed[at].Inode, r))
		}
	}
	slices.Sort(learnt)
	slices.Sort(want)
	if !slices.Equal(learnt, want) {
		t.Errorf("learnt %v, want %v", learnt, want)
	}
	if n := b.Fetcher.Stats.Reads[sample.FromSource].Reads.Load(); n != 3 {
		t.Errorf("%d reads from the source, want 3", n)
	}
}
