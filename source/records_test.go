package source_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"lcache/sample"
	"lcache/source"
	"lcache/source/s3test"
	"lcache/source/sourcetest"
)

// ranged is a folder of files that contain samples, one for each folder of the samples, with an index of their ranges. It is the Mutator for them.
type ranged struct {
	*tree                                      // their local folder
	put   func(name string, data []byte) error // writes a file
	files map[string][]byte                    // the samples
}

func newRanged(t testing.TB, files map[string][]byte, put func(name string, data []byte) error) *ranged {
	t.Helper()
	r := &ranged{put: put, files: maps.Clone(files)}
	if put == nil {
		r.tree = newTree(t, nil)
		r.put = r.tree.Write
	}
	shards := map[string]bool{}
	for name := range files {
		if s := rangedShard(name); !shards[s] {
			shards[s] = true
			if err := r.write(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	return r
}

func rangedShard(name string) string { return folderOf(name) + ".bin" }

// rangedName returns the name of a sample in the index, which can't have a tab or the end of a line.
func rangedName(file string) string {
	if strings.ContainsAny(file, "\t\n") {
		return ""
	}
	return file
}

// write writes the file with the sample again, and the index. A sample has two parts, the second one far from the first.
func (r *ranged) write(name string) error {
	shards, index := map[string]*bytes.Buffer{}, "shard\toffset\tlength\tpart\tname\n"
	files := slices.Sorted(maps.Keys(r.files))
	slices.SortStableFunc(files, func(a, b string) int { return strings.Compare(rangedShard(a), rangedShard(b)) })
	place := func(shard, file, part string, data []byte) string {
		b := shards[shard]
		b.WriteString("junk")
		at := b.Len()
		b.Write(data)
		return fmt.Sprintf("%s\t%d\t%d\t%s\t%s\n", shard, at, len(data), part, file)
	}
	lines, ends := map[string]string{}, map[string][]byte{}
	for _, file := range files {
		if rangedName(file) == "" {
			continue
		}
		shard, data := rangedShard(file), r.files[file]
		if shards[shard] == nil {
			shards[shard] = &bytes.Buffer{}
		}
		cut := len(data) / 3
		lines[file], ends[file] = place(shard, file, "a", data[:cut]), data[cut:]
	}
	for _, file := range files {
		if end, ok := ends[file]; ok {
			index += lines[file] + place(rangedShard(file), file, "b", end)
		}
	}
	err := r.put("index.tsv", []byte(index))
	if b := shards[rangedShard(name)]; b != nil {
		err = errors.Join(err, r.put(rangedShard(name), b.Bytes()))
	}
	return err
}

func (r *ranged) Write(name string, data []byte) error { r.files[name] = data; return r.write(name) }

func (r *ranged) Replace(name string, data []byte) error {
	if r.tree == nil {
		return r.Write(name, data)
	}
	at := r.path(rangedShard(name))
	return errors.Join(os.Rename(at, at+".old"), r.Write(name, data), os.Remove(at+".old"))
}

func (r *ranged) Remove(name string) error { delete(r.files, name); return r.write(name) }

func (r *ranged) Limits() sourcetest.Limits {
	return sourcetest.Limits{OwnOrder: true, Together: true, Name: rangedName}
}

// farRanged is a ranged over a network: a file that is written again with the same bytes may have the same version.
type farRanged struct{ *ranged }

func (farRanged) Lacks() []string { return []string{sourcetest.ReplacedAlike} }

func TestRanges(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T, files map[string][]byte) (source.Source, sourcetest.Mutator) {
		r := newRanged(t, files, nil)
		return openRemote(t, "ranges:"+r.dir+"/index.tsv", source.Options{}), r
	})
}

func TestRangesS3(t *testing.T) {
	g := s3test.Start(t)
	var n atomic.Int64
	sourcetest.Run(t, func(t *testing.T, files map[string][]byte) (source.Source, sourcetest.Mutator) {
		b := bucket{g, fmt.Sprintf("ranges %d/", n.Add(1))}
		r := newRanged(t, files, b.Write)
		return openRemote(t, "ranges:s3://"+s3test.Bucket+"/"+b.prefix+"index.tsv", source.Options{Remote: source.Remote{S3: source.S3{Endpoint: g.URL, Region: s3test.Region}}}), farRanged{r}
	})
}

func TestRangesWeb(t *testing.T) {
	for _, ranges := range []bool{true, false} {
		t.Run(fmt.Sprintf("ranges=%t", ranges), func(t *testing.T) {
			sourcetest.Run(t, func(t *testing.T, files map[string][]byte) (source.Source, sourcetest.Mutator) {
				web, url := serveShards(t, nil)
				web.ranges = ranges
				r := newRanged(t, files, web.Write)
				return openRemote(t, "ranges:"+url+"index.tsv", source.Options{}), farRanged{r}
			})
		})
	}
}

// TestRangesList: names, labels and parts of an index, and its errors.
func TestRangesList(t *testing.T) {
	tr := newTree(t, map[string][]byte{"a.bin": sourcetest.Content(1, 100), "d/b.bin": sourcetest.Content(2, 50), "{x,*}.bin": sourcetest.Content(3, 9)})
	for index, want := range map[string]string{
		"shard\toffset\tlength\na.bin\t0\t100\na.bin\t50\t0\nd/b.bin\t49\t1\n":                         "a.bin/0=0(data) a.bin/1=0(data) d/b.bin/0=0(data)",
		"length\tlabel\tname\tshard\toffset\r\n7\t-5\tx y\ta.bin\t3\r\n":                               "x y=-5(data)",
		"shard\toffset\tlength\tpart\tname\na.bin\t5\t5\tb\tx\na.bin\t0\t5\ta\tx\na.bin\t0\t1\ta\ty\n": "x=0(b a) y=0(a)",
		"shard\toffset\tlength\n{x,*}.bin\t0\t9":                                                       "{x,*}.bin/0=0(data)",
		"shard\toffset\tlength\na.bin\t90\t11\n":                                                       `shard "a.bin": the index has a range that ends at byte 101, but the file has 100: it is truncated, or the index is of another file`,
		"shard\toffset\tlength\na.bin\t1\t2\nd/b.bin\t1\t2\na.bin\t1\t2\n":                             `index "index.tsv": line 4: shard "a.bin" comes again after another one: sort the lines by shard`,
		"shard\toffset\tlength\nno.bin\t1\t2\n":                                                        `shard "no.bin" is missing: put it there, or correct the pattern`,
		"shard\toffset\tlength\n../x\t1\t2\n":                                                          `shard "../x" leads out of its folder: write the folder that all shards have in common before the first brace`,
		"shard\toffset\tlength\n/etc/passwd\t1\t2\n":                                                   `index "index.tsv": line 2: shard "/etc/passwd" is not relative: put the index into a folder that has all shards, and name them relative to it, or give the rows to lcache.open(ranges=…) in Python`,
		"":                                      `index "index.tsv": it is empty: its first line must have the names of columns, shard, offset, length`,
		"shard\toffset\n":                       `index "index.tsv": line 1: it has no column length: an index has the columns shard, offset, length, and optionally part, label, name, xxh3, separated by tabs`,
		"shard,offset,length\n":                 `index "index.tsv": line 1: column "shard,offset,length" is unknown: an index has the columns shard, offset, length, part, label, name, xxh3, separated by tabs`,
		"shard\toffset\tlength\n":               `no samples: no file matches`,
		"shard\toffset\tlength\na.bin\t-1\t2\n": `index "index.tsv": line 2: its offset is -1, want an integer from 0 to 9223372036854775807`,
		"shard\toffset\tlength\na.bin\t1\t4294967296\n":                                                `index "index.tsv": line 2: its length is 4294967296, want an integer from 0 to 4294967295`,
		"shard\toffset\tlength\na.bin\t9223372036854775807\t1\n":                                       `index "index.tsv": line 2: row 0: its bytes are from 9223372036854775807 on, 1 in number, which no file has: its index is damaged`,
		"shard\toffset\tlength\tlabel\na.bin\t1\t2\t2147483648\n":                                      `index "index.tsv": line 2: its label is 2147483648, want an integer from -2147483648 to 2147483647`,
		"shard\toffset\tlength\tpart\na.bin\t1\t2\tx\n":                                                `index "index.tsv": line 1: it has a column part but no column name, which says which lines are one sample`,
		"shard\toffset\tlength\tname\na.bin\t1\t2\tx\na.bin\t1\t2\tx\n":                                `index "index.tsv": line 3: sample "x" comes twice: give each sample another name`,
		"shard\toffset\tlength\tpart\tname\na.bin\t1\t2\tp\tx\na.bin\t1\t2\tp\tx\na.bin\t1\t2\tp\ty\n": `index "index.tsv": line 4: row 0: it has the part "p" twice`,
		"shard\toffset\tlength\tlabel\tpart\tname\na.bin\t1\t2\t1\tp\tx\na.bin\t1\t2\t2\tq\tx\n":       `index "index.tsv": line 3: sample "x" has the labels 1 and 2`,
		"shard\toffset\tlength\na.bin\t1\n":                                                            `index "index.tsv": line 2: it has fewer columns than the first line: "a.bin\t1"`,
		"shard\toffset\tlength\na.bin\t1\t2\t3\n":                                                      `index "index.tsv": line 2: it has more columns than the first line: "a.bin\t1\t2\t3"`,
		"shard\toffset\tlength\nindex.tsv\t0\t" + strings.Repeat("0", 300_000) + "\n":                  `index "index.tsv": line 2 has more than 262144 bytes: it is not an index of ranges`,
		"shard\toffset\tlength\tpart\tname\n" + manyParts(17):                                          `index "index.tsv": line 18: row 0: it has 17 parts, at most 16`,
	} {
		if err := tr.Write("index.tsv", []byte(index)); err != nil {
			t.Fatal(err)
		}
		s, err := source.Open("ranges:"+tr.dir+"/index.tsv", source.Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, entries, err := s.List(t.Context(), nil)
		got := shapeOf(entries)
		if err != nil {
			_, got, _ = strings.Cut(err.Error(), fmt.Sprintf("list source %q: ", "ranges:"+tr.dir+"/index.tsv"))
		}
		if got != want {
			t.Errorf("%.60q: %s\nwant %s", index, got, want)
		}
		s.Close()
	}
}

func manyParts(n int) (lines string) {
	for i := range n {
		lines += fmt.Sprintf("a.bin\t0\t1\t%d\tx\n", i)
	}
	return lines
}

// TestRangesOptions: labels from a file, flat, and the part that comes first.
func TestRangesOptions(t *testing.T) {
	tr := newTree(t, map[string][]byte{"a": sourcetest.Content(1, 100), "labels.csv": []byte("x,9\ny,8\n"),
		"index.tsv": []byte("shard\toffset\tlength\tpart\tname\tlabel\na\t0\t10\tA\tx\t3\na\t20\t30\tb\tx\t3\na\t7\t1\tA\ty\t4\n")})
	for want, opts := range map[string]source.Options{
		"x=3(A b) y=4(A)": {},

		`list source "ranges:` + tr.dir + `/index.tsv": list sample "y": it has no part "b": choose another --part, or give all samples one`: {Part: "b"},
		"x=0(A b) y=0(A)": {Flat: true},
		"x=9(A b) y=8(A)": {Labels: tr.path("labels.csv")},
		`list source "ranges:` + tr.dir + `/index.tsv": no record has a part "c": choose --part of A, b`: {Part: "c"},
	} {
		_, entries, err := openRemote(t, "ranges:"+tr.dir+"/index.tsv", opts).List(t.Context(), nil)
		got := shapeOf(entries)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%+v: %s, want %s", opts, got, want)
		}
	}
}

// TestRecordsTogether: neighbours are read in few pieces, in any order of their parts, and give the bytes of single reads.
func TestRecordsTogether(t *testing.T) {
	data := sourcetest.Content(1, 3<<20)
	var index strings.Builder
	index.WriteString("shard\toffset\tlength\tpart\tname\n")
	const n = 100
	for i := range n { // three columns, each in a buffer of its own; some cells are missing
		fmt.Fprintf(&index, "a\t%d\t%d\timage\t%d\n", 10_000*i, 9_000+i, i)
		if i%10 != 3 {
			fmt.Fprintf(&index, "a\t%d\t%d\ttext\t%d\n", 2<<20+100*i, i, i)
		}
	}
	tr := newTree(t, map[string][]byte{"a": data, "index.tsv": []byte(index.String())})
	s := openRemote(t, "ranges:"+tr.dir+"/index.tsv", source.Options{}).(source.Sharded)
	_, entries, err := s.List(t.Context(), nil)
	if err != nil || len(entries) != n {
		t.Fatalf("%d samples, %v", len(entries), err)
	}
	for from := 0; from < n; {
		k := s.Together(entries[from:])
		if k < 1 {
			t.Fatalf("%d samples together at %d", k, from)
		}
		if from == 4 && k != 9 {
			t.Errorf("%d samples together, want all up to one without a text", k)
		}
		var dst [][]byte
		for _, e := range entries[from : from+k] {
			dst = append(dst, make([]byte, e.Size))
		}
		if err := s.ReadTogether(t.Context(), entries[from:from+k], dst); err != nil {
			t.Fatal(err)
		}
		for i, got := range dst {
			checkRecord(t, s, entries[from+i], data, got)
		}
		from += k
	}
}

// checkRecord compares the bytes of a record with its ranges in the file, and with those of a single read.
func checkRecord(t *testing.T, s source.Source, e sample.Entry, file, got []byte) {
	t.Helper()
	var want []byte
	for k, off := range e.Offsets {
		want = append(want, file[off:off+uint64(e.Parts[k].Size)]...)
	}
	alone := make([]byte, e.Size)
	if err := s.Read(t.Context(), e, alone); err != nil || !bytes.Equal(alone, want) || !bytes.Equal(got, want) {
		t.Errorf("%s: other bytes, or %v", e.Name, err)
	}
}
