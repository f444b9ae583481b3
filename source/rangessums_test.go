package source_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"lcache/sample"
	"lcache/source"
	"lcache/source/s3test"
	"lcache/source/sourcetest"
)

// TestRangesSums: each part is compared with its checksum, alone, next to others, and in files without random access. A wrong one is an error of
// its sample with shard and offset, and only of this one.
func TestRangesSums(t *testing.T) {
	data := sourcetest.Content(1, 100_000)
	index := "shard\toffset\tlength\tpart\tname\txxh3\n"
	const n, bad = 20, 7
	for i := range n {
		for k, part := range []string{"jpg", "txt"} {
			off, size := 4000*i+2000*k, 1000+i
			sum := fmt.Sprintf("%016x", sample.Sum(data[off:off+size]))
			if i%5 == 4 {
				sum = "" // not known
			}
			index += fmt.Sprintf("a\t%d\t%d\t%s\t%d\t%s\n", off, size, part, i, sum)
		}
	}
	damaged := bytes.Clone(data)
	damaged[4000*bad+2000] ^= 1
	damaged[4000*4] ^= 1 // of a sample without a checksum
	check := func(t *testing.T, s source.Source) {
		_, entries, err := s.List(t.Context(), nil)
		if err != nil || len(entries) != n {
			t.Fatalf("%d samples, %v", len(entries), err)
		}
		want := fmt.Sprintf(`read sample "%d": shard "a": byte %d: the xxh3 of %d bytes is %016x, but the index says %016x: copy or write the file again, or correct the index`,
			bad, 4000*bad+2000, 1000+bad, sample.Sum(damaged[4000*bad+2000:][:1000+bad]), sample.Sum(data[4000*bad+2000:][:1000+bad]))
		dst := make([][]byte, n)
		for i, e := range entries {
			dst[i] = make([]byte, e.Size)
			err := s.Read(t.Context(), e, dst[i])
			if i != bad && err != nil || i == bad && (err == nil || err.Error() != want) {
				t.Errorf("sample %d: %v, want %s", i, err, want)
			}
			if as := new(source.SampleError); i == bad && !errors.As(err, &as) {
				t.Errorf("%v is not an error of a sample", err)
			}
		}
		together := s.(source.Sharded)
		for from := 0; from < n; {
			k := together.Together(entries[from:])
			err := together.ReadTogether(t.Context(), entries[from:from+k], dst[from:from+k])
			if (err != nil) != (from <= bad && bad < from+k) {
				t.Errorf("samples from %d, %d: %v", from, k, err)
			}
			from += k
		}
	}
	t.Run("local", func(t *testing.T) {
		tr := newTree(t, map[string][]byte{"a": damaged, "index.tsv": []byte(index)})
		check(t, openRemote(t, "ranges:"+tr.dir+"/index.tsv", source.Options{}))
	})
	t.Run("web without ranges", func(t *testing.T) {
		web, url := serveShards(t, nil)
		if err := errors.Join(web.Write("a", damaged), web.Write("index.tsv", []byte(index))); err != nil {
			t.Fatal(err)
		}
		check(t, openRemote(t, "ranges:"+url+"index.tsv", source.Options{}))
	})
}

// TestFirstPartOfRanges: the first row of a sample has its first part, whatever came first in earlier samples, unless --part names one.
func TestFirstPartOfRanges(t *testing.T) {
	const index = "shard\toffset\tlength\tpart\tname\n" +
		"a\t0\t2\tjpg\tx\na\t2\t3\ttxt\tx\n" +
		"a\t5\t4\tpng\ty\na\t9\t1\tjpg\ty\na\t10\t2\ttxt\ty\n" +
		"a\t12\t3\ttxt\tz\na\t15\t5\tjpg\tz\n"
	content := []byte("0011122223445556666678901")
	tr := newTree(t, map[string][]byte{"a": content, "index.tsv": []byte(index)})
	for part, want := range map[string][]string{"": {"jpg 00,txt 111", "png 2222,jpg 3,txt 44", "txt 555,jpg 66666"}, "txt": {"txt 111,jpg 00", "txt 44,png 2222,jpg 3", "txt 555,jpg 66666"}} {
		src := openRemote(t, "ranges:"+tr.dir+"/index.tsv", source.Options{Part: part})
		_, entries, err := src.List(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range entries {
			b := make([]byte, e.Size)
			if err := src.Read(t.Context(), e, b); err != nil {
				t.Fatal(err)
			}
			var parts []string
			for _, p := range e.Parts {
				parts = append(parts, p.Ext+" "+string(b[:p.Size]))
				b = b[p.Size:]
			}
			got = append(got, strings.Join(parts, ","))
		}
		if !slices.Equal(got, want) {
			t.Errorf("--part %q: %q, want %q", part, got, want)
		}
	}
}

// TestBinaryRanges: an index that is a Parquet or Arrow file, on this machine, in a bucket and on a web server.
func TestBinaryRanges(t *testing.T) {
	const places = "internal/records/testdata/"
	for _, name := range []string{"index.parquet", "index-stream.arrow"} {
		index, err := os.ReadFile(places + name)
		if err != nil {
			t.Fatal(err)
		}
		try := func(where string, put func(name string, data []byte) error, src string, opts source.Options, want string) {
			t.Helper()
			if err := errors.Join(put("index", index), put("a", make([]byte, 97)), put("sub/b", make([]byte, 1000))); err != nil {
				t.Fatal(err)
			}
			_, _, err := openRemote(t, "ranges:"+src+"index", opts).List(t.Context(), nil)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s, %s: %v, want %s", name, where, err, want)
			}
		}
		const far = `shard "sub/b": the index has a range that ends at byte 1101659111424, but the file has 1000` // 1 TiB + 2 GiB
		tr := newTree(t, nil)
		try("local", tr.Write, tr.dir+"/", source.Options{}, far)
		g := s3test.Start(t)
		b := bucket{g, "p/"}
		try("bucket", b.Write, "s3://"+s3test.Bucket+"/p/", source.Options{Remote: source.Remote{S3: source.S3{Endpoint: g.URL, Region: s3test.Region}}}, far)
		web, url := serveShards(t, nil)
		web.ranges = true
		try("web", web.Write, url, source.Options{}, far)
		web, url = serveShards(t, nil)
		web.ranges = false
		try("web without ranges", web.Write, url, source.Options{}, `index "index": `)
	}
}
