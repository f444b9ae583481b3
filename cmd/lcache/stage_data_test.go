package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lcache/source/sourcetest"
)

// makeDataset makes a folder of files, each with its own name as content.
func makeDataset(t *testing.T, dir string) {
	t.Helper()
	for i := range 90 {
		name := fmt.Sprintf("class%d/%03d.txt", i%3, i)
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		writeFile(t, path, strings.Repeat(name, 20))
	}
}

// makeShards makes the shards of a pattern, whose samples' bytes are as makeDataset's.
func makeShards(t *testing.T, pattern string) {
	t.Helper()
	paths, err := sourcetest.Expand(pattern)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		var b strings.Builder
		w := tar.NewWriter(&b)
		for i := range 30 {
			name := fmt.Sprintf("%03d", i)
			text := strings.Repeat(filepath.Base(path)+"/"+name, 20)
			if err := w.WriteHeader(&tar.Header{Name: name + ".txt", Size: int64(len(text)), Mode: 0o644}); err != nil {
				t.Fatal(err)
			}
			io.WriteString(w, text)
		}
		if err := errors.Join(w.Close(), os.MkdirAll(filepath.Dir(path), 0o755)); err != nil {
			t.Fatal(err)
		}
		text := b.String()
		if sourcetest.IsGzip(path) {
			b.Reset()
			w := gzip.NewWriter(&b)
			io.WriteString(w, text)
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			text = b.String()
		}
		writeFile(t, path, text)
	}
}
