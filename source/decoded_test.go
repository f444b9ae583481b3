package source_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lcache/sample"
	"lcache/source"
	"lcache/source/s3test"
	"lcache/source/sourcetest"
)

// decodedShard returns a shard whose samples must be decoded, and the first part of each.
func decodedShard(t testing.TB, kind string) (name string, file []byte, want [][]byte) {
	t.Helper()
	if kind == "zip" {
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		for i, size := range []int{100, 70_000, 0, 3_000_000, 5} {
			w, err := z.Create(fmt.Sprintf("d/%d.img", i)) // deflated
			if err == nil {
				want = append(want, slices.Concat(sourcetest.Content(byte(i), size), make([]byte, size)))
				_, err = w.Write(want[i])
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return "a.zip", b.Bytes(), want
	}
	name = map[string]string{"parquet": "snappy.parquet", "arrow": "zstd.arrow"}[kind]
	file, err := os.ReadFile(filepath.Join("internal/records/testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		want = append(want, []byte(strings.Repeat(fmt.Sprintf("%s/%d", name, i), 20)))
	}
	return name, file, want
}

var decodedKinds = []string{"parquet", "arrow", "zip"}

// checkDecoded reads all samples, forward and backward, alone and together.
func checkDecoded(t *testing.T, src source.Source, want [][]byte) []sample.Entry {
	t.Helper()
	_, entries, err := src.List(t.Context(), nil)
	if err != nil || len(entries) != len(want) {
		t.Fatalf("%d samples, want %d: %v", len(entries), len(want), err)
	}
	sharded := src.(source.Sharded)
	for _, order := range [][]int{{0, 1, 2, 3, 4}, {4, 3, 2, 1, 0}} {
		for _, i := range order {
			e := entries[i]
			got := make([]byte, e.Size)
			if err := src.Read(t.Context(), e, got); err != nil || !bytes.HasPrefix(got, want[i]) {
				t.Errorf("sample %d: %v", i, err)
			}
			if !sharded.Streamed(*e.Shard) {
				t.Error("a decoded shard counts as one with random access")
			}
		}
	}
	var dst [][]byte
	for _, e := range entries[:sharded.Together(entries)] {
		dst = append(dst, make([]byte, e.Size))
	}
	if err := sharded.ReadTogether(t.Context(), entries[:len(dst)], dst); err != nil {
		t.Fatalf("%d samples together: %v", len(dst), err)
	}
	for i := range dst {
		if !bytes.HasPrefix(dst[i], want[i]) {
			t.Errorf("sample %d has other bytes together with others", i)
		}
	}
	return entries
}

// TestDecodedFolder: shards on this machine; a shard that is replaced is an error of its samples.
func TestDecodedFolder(t *testing.T) {
	for _, kind := range decodedKinds {
		t.Run(kind, func(t *testing.T) {
			defer source.SetFlowTrusted(source.SetFlowTrusted(0))
			name, file, want := decodedShard(t, kind)
			tr := newTree(t, map[string][]byte{name: file})
			pattern := kind + ":" + tr.dir + "/" + name
			if _, _, err := openRemote(t, pattern, source.Options{}).List(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "--stream") {
				t.Errorf("without --stream: %v", err)
			}
			src := openRemote(t, pattern, source.Options{Stream: true})
			entries := checkDecoded(t, src, want)
			if err := tr.Write(name, append(bytes.Clone(file), 0)); err != nil {
				t.Fatal(err)
			}
			wantSampleErr(t, src, entries[1], source.ErrChanged)
		})
	}
}

// TestDecodedRemote: shards in a bucket and on web servers. Without ranges they can't be listed.
func TestDecodedRemote(t *testing.T) {
	g := s3test.Start(t)
	for _, kind := range decodedKinds {
		t.Run(kind, func(t *testing.T) {
			name, file, want := decodedShard(t, kind)
			b := bucket{g, "decoded " + kind + "/"}
			if err := b.Write(name, file); err != nil {
				t.Fatal(err)
			}
			opts := source.Options{Stream: true, Remote: source.Remote{S3: source.S3{Endpoint: g.URL, Region: s3test.Region}}}
			checkDecoded(t, openRemote(t, kind+":s3://"+s3test.Bucket+"/"+b.prefix+name, opts), want)
			for _, ranges := range []bool{true, false} {
				web, url := serveShards(t, map[string][]byte{name: file})
				web.ranges = ranges
				src := openRemote(t, kind+":"+url+name, source.Options{Stream: true})
				if ranges {
					checkDecoded(t, src, want)
				} else if _, _, err := src.List(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "download it") || !strings.Contains(err.Error(), name) {
					t.Errorf("without ranges: %v", err)
				}
			}
		})
	}
}
