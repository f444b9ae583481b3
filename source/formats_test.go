package source_test

import (
	"archive/zip"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"lcache/sample"
	"lcache/source"
	"lcache/source/s3test"
	"lcache/source/sourcetest"
)

// A formatted is a dataset in the files of one format: two shards, and the bytes that each sample must have.
type formatted struct {
	kind, pattern string
	flags         source.RecordFlags
	files         map[string][]byte
	names         []string // of the samples
	want          [][]byte
	shard         string // the first one
	ranges        bool   // it can't be read front to back
}

// formats are datasets of the same random samples.
func formats(t testing.TB) []*formatted {
	t.Helper()
	var samples [2][][]byte
	for s := range samples {
		for i, size := range []int{100, 3000, 1, 0, 2_500_000, 70_000, 5} {
			samples[s] = append(samples[s], sourcetest.Content(byte(10*s+i), size))
		}
	}
	return []*formatted{
		inEach(samples, &formatted{kind: "tfrecord", pattern: "t-{0..1}.tfrecord"}, asTFRecords),
		inEach(samples, &formatted{kind: "megatron", pattern: "t-{0..1}"}, asMegatron),
		inEach(samples, &formatted{kind: "jsonl", pattern: "t-{0..1}.jsonl"}, asLines),
		inEach(samples, &formatted{kind: "npy", pattern: "t-{0..1}.npy"}, asRows),
		inEach(samples, &formatted{kind: "bin", pattern: "t-{0..1}.bin", flags: source.RecordFlags{"record-bytes": "1000"}}, asWindows),
		inEach(samples, &formatted{kind: "arrow", pattern: "t-{0..1}.arrow", ranges: true}, asArrow),
		inEach(samples, &formatted{kind: "parquet", pattern: "t-{0..1}.parquet", ranges: true}, asParquet),
		inEach(samples, &formatted{kind: "zip", pattern: "t-{0..1}.zip", ranges: true}, asMembers(t)),
	}
}

// inEach writes the samples of each shard, and keeps the samples as write returns them, with their names.
func inEach(samples [2][][]byte, f *formatted, write func(name string, samples [][]byte) (files map[string][]byte, shard string, names []string, stored [][]byte)) *formatted {
	f.files = map[string][]byte{}
	for s, of := range samples {
		files, shard, names, stored := write(fmt.Sprintf("t-%d", s), of)
		if s == 0 {
			f.shard = shard
		}
		maps.Copy(f.files, files)
		f.names, f.want = append(f.names, names...), append(f.want, stored...)
	}
	return f
}

// numbered returns the names of n rows.
func numbered(shard string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("%s/%d", shard, i))
	}
	return names
}

func masked(data []byte) uint32 {
	c := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
	return (c>>15 | c<<17) + 0xa282ead8
}

func asTFRecords(name string, samples [][]byte) (map[string][]byte, string, []string, [][]byte) {
	var b []byte
	for _, s := range samples {
		head := binary.LittleEndian.AppendUint64(nil, uint64(len(s)))
		b = binary.LittleEndian.AppendUint32(append(b, head...), masked(head))
		b = binary.LittleEndian.AppendUint32(append(b, s...), masked(s))
	}
	shard := name + ".tfrecord"
	return map[string][]byte{shard: b}, shard, numbered(shard, len(samples)), samples
}

func asMegatron(name string, samples [][]byte) (map[string][]byte, string, []string, [][]byte) {
	idx := append([]byte("MMIDIDX\x00\x00"), 1, 0, 0, 0, 0, 0, 0, 0, 1)
	idx = binary.LittleEndian.AppendUint64(idx, uint64(len(samples)))
	idx = binary.LittleEndian.AppendUint64(idx, 2)
	var bin, at []byte
	for _, s := range samples {
		idx = binary.LittleEndian.AppendUint32(idx, uint32(len(s)))
		at = binary.LittleEndian.AppendUint64(at, uint64(len(bin)))
		bin = append(bin, s...)
	}
	idx = binary.LittleEndian.AppendUint64(append(idx, at...), 0)
	idx = binary.LittleEndian.AppendUint64(idx, uint64(len(samples)))
	return map[string][]byte{name + ".bin": bin, name + ".idx": idx}, name + ".bin", numbered(name+".bin", len(samples)), samples
}

func asLines(name string, samples [][]byte) (map[string][]byte, string, []string, [][]byte) {
	var b []byte
	var lines [][]byte
	for _, s := range samples {
		lines = append(lines, fmt.Appendf(nil, `{"x": "%s"}`, base64.StdEncoding.EncodeToString(s)))
		b = append(append(b, lines[len(lines)-1]...), "\r\n\n"...)
	}
	return map[string][]byte{name + ".jsonl": b}, name + ".jsonl", numbered(name+".jsonl", len(lines)), lines
}

func asRows(name string, samples [][]byte) (map[string][]byte, string, []string, [][]byte) {
	header := "{'descr': '<i4', 'fortran_order': False, 'shape': (2500, 10, 5), }                 \n"
	data := sourcetest.Content(name[2], 2500*200)
	b := append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), 0)
	b = append(b, header...)
	return map[string][]byte{name + ".npy": append(b, data...)}, name + ".npy", numbered(name+".npy", 2500), slices.Collect(slices.Chunk(data, 200))
}

func asWindows(name string, samples [][]byte) (map[string][]byte, string, []string, [][]byte) {
	data := sourcetest.Content(name[2]+1, 2_000_999)
	return map[string][]byte{name + ".bin": data}, name + ".bin", numbered(name+".bin", 2000), slices.Collect(slices.Chunk(data[:2_000_000], 1000))
}

// asMembers writes two members for each sample, img first.
func asMembers(t testing.TB) func(name string, samples [][]byte) (map[string][]byte, string, []string, [][]byte) {
	return func(name string, samples [][]byte) (_ map[string][]byte, _ string, names []string, stored [][]byte) {
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		put := func(member string, data []byte) {
			w, err := z.CreateHeader(&zip.FileHeader{Name: member, Method: zip.Store})
			if err == nil {
				_, err = w.Write(data)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		put("README", []byte("belongs to no sample"))
		for i, s := range samples {
			put(fmt.Sprintf("d/%d.img", i), s)
			put(fmt.Sprintf("d/%d.txt", i), []byte("text"))
			names, stored = append(names, fmt.Sprintf("%s.zip/d/%d", name, i)), append(stored, append(bytes.Clone(s), "text"...))
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return map[string][]byte{name + ".zip": b.Bytes()}, name + ".zip", names, stored
	}
}

// checkFormat lists a dataset and compares each sample, read alone and with its neighbours.
func checkFormat(t *testing.T, f *formatted, src source.Source) []sample.Entry {
	t.Helper()
	_, entries, err := src.List(t.Context(), nil)
	if err != nil || len(entries) != len(f.want) {
		t.Fatalf("%d samples, %v, want %d", len(entries), err, len(f.want))
	}
	for i := 0; i < len(entries); {
		n := src.(source.Sharded).Together(entries[i:])
		dst := make([][]byte, n)
		for k := range dst {
			dst[k] = make([]byte, entries[i+k].Size)
		}
		if err := src.(source.Sharded).ReadTogether(t.Context(), entries[i:i+n], dst); err != nil {
			t.Fatal(err)
		}
		for _, got := range dst {
			if entries[i].Name != f.names[i] || !bytes.Equal(got, f.want[i]) {
				t.Fatalf("sample %d, %s: other bytes or name (want %s)", i, entries[i].Name, f.names[i])
			}
			i++
		}
	}
	for i := len(entries) - 1; i >= 0; i -= max(1, len(entries)/7) {
		dst := make([]byte, entries[i].Size)
		if err := src.Read(t.Context(), entries[i], dst); err != nil || !bytes.Equal(dst, f.want[i]) {
			t.Fatalf("sample %d alone: other bytes, or %v", i, err)
		}
	}
	return entries
}

// TestFormats: every sample of every format, from a folder; and a shard that changes.
func TestFormats(t *testing.T) {
	for _, f := range formats(t) {
		t.Run(f.kind, func(t *testing.T) {
			tr := newTree(t, f.files)
			src := openRemote(t, f.kind+":"+tr.dir+"/"+f.pattern, source.Options{Records: f.flags})
			entries := checkFormat(t, f, src)
			if err := tr.Write(f.shard, append(bytes.Clone(f.files[f.shard]), 0)); err != nil {
				t.Fatal(err)
			}
			wantSampleErr(t, src, entries[0], source.ErrChanged)
			last := entries[len(entries)-1]
			if err := src.Read(t.Context(), last, make([]byte, last.Size)); err != nil {
				t.Errorf("a sample of another shard: %v", err)
			}
			if err := os.Remove(tr.path(f.shard)); err != nil {
				t.Fatal(err)
			}
			wantSampleErr(t, src, entries[0], source.ErrGone)
		})
	}
}

func wantSampleErr(t *testing.T, src source.Source, e sample.Entry, want error) {
	t.Helper()
	var of *source.SampleError
	if err := src.Read(t.Context(), e, make([]byte, e.Size)); !errors.Is(err, want) || !errors.As(err, &of) || of.Name != e.Name || !strings.Contains(err.Error(), e.Shard.Name) {
		t.Errorf("read of %s: %v, want %v", e.Name, err, want)
	}
}

func TestFormatsS3(t *testing.T) {
	g := s3test.Start(t)
	for _, f := range formats(t) {
		t.Run(f.kind, func(t *testing.T) {
			b := bucket{g, "formats " + f.kind + "/"}
			for name, data := range f.files {
				if err := b.Write(name, data); err != nil {
					t.Fatal(err)
				}
			}
			opts := source.Options{Records: f.flags, Remote: source.Remote{S3: source.S3{Endpoint: g.URL, Region: s3test.Region}}}
			checkFormat(t, f, openRemote(t, f.kind+":s3://"+s3test.Bucket+"/"+b.prefix+f.pattern, opts))
		})
	}
}

func TestFormatsWeb(t *testing.T) {
	for _, ranges := range []bool{true, false} {
		for _, f := range formats(t) {
			t.Run(fmt.Sprintf("%s,ranges=%t", f.kind, ranges), func(t *testing.T) {
				web, url := serveShards(t, f.files)
				web.ranges = ranges
				src := openRemote(t, f.kind+":"+url+f.pattern, source.Options{Records: f.flags})
				if f.ranges && !ranges {
					if _, _, err := src.List(t.Context(), nil); err == nil || !strings.Contains(err.Error(), f.shard) || !strings.Contains(err.Error(), "download it") {
						t.Errorf("without ranges: %v", err)
					}
					return
				}
				checkFormat(t, f, src)
			})
		}
	}
}

// TestFormatsDamaged: a shard that is cut anywhere, or is another kind of file, gives one error with its name, or fewer samples if no
// format could know: then these have the right bytes.
func TestFormatsDamaged(t *testing.T) {
	for _, f := range formats(t) {
		t.Run(f.kind, func(t *testing.T) {
			whole := f.files[f.shard]
			cuts := []int{0, 1, 9, 11, 50, len(whole) / 2, len(whole) - 30, len(whole) - 1}
			tr := newTree(t, f.files)
			for _, cut := range cuts {
				wantDamage(t, f, tr, fmt.Sprintf("cut at %d", cut), whole[:cut])
			}
			other := bytes.Clone(whole)
			copy(other, "\x7fELF another kind of file")
			wantDamage(t, f, tr, "another kind", other)
		})
	}
}

func wantDamage(t *testing.T, f *formatted, tr *tree, what string, data []byte) {
	t.Helper()
	if err := tr.Write(f.shard, data); err != nil {
		t.Fatal(err)
	}
	src := openRemote(t, f.kind+":"+tr.dir+"/"+f.pattern, source.Options{Records: f.flags})
	_, entries, err := src.List(t.Context(), nil)
	if err != nil {
		if text := err.Error(); !strings.Contains(text, f.shard) || strings.Contains(text, "\n") {
			t.Errorf("%s: %q does not name the shard, or has several lines", what, text)
		}
		return
	}
	if f.kind == "bin" || f.kind == "megatron" && len(data) == len(f.files[f.shard]) {
		return // nothing in the file says what it should be
	}
	for _, e := range entries {
		got := make([]byte, e.Size)
		i := slices.Index(f.names, e.Name)
		if err := src.Read(t.Context(), e, got); err != nil || i < 0 || !bytes.Equal(got, f.want[i]) {
			t.Errorf("%s: listed without an error, but %s has other bytes, or %v", what, e.Name, err)
		}
	}
}

// TestTFRecordChecksum: a damaged byte of a record is an error of that record, at its first read, and of no other.
func TestTFRecordChecksum(t *testing.T) {
	f := formats(t)[0]
	tr := newTree(t, f.files)
	data := bytes.Clone(f.files[f.shard])
	data[12+100+16+1500] ^= 4 // in the second record
	if err := tr.Write(f.shard, data); err != nil {
		t.Fatal(err)
	}
	src := openRemote(t, "tfrecord:"+tr.dir+"/"+f.pattern, source.Options{})
	_, entries, err := src.List(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range entries {
		err := src.Read(t.Context(), e, make([]byte, e.Size))
		if i != 1 && err != nil || i == 1 && (err == nil || !strings.Contains(err.Error(), `read sample "t-0.tfrecord/1": shard "t-0.tfrecord": byte 128: the checksum (CRC-32C) of its data is wrong`)) {
			t.Errorf("%s: %v", e.Name, err)
		}
	}
	if n := src.(source.Sharded).Together(entries); n < 2 || src.(source.Sharded).ReadTogether(t.Context(), entries[:2], [][]byte{make([]byte, entries[0].Size), make([]byte, entries[1].Size)}) == nil {
		t.Errorf("%d samples together, read without an error", n)
	}
}

// TestPackedFormats: compressed files are read front to back with --stream, and are an error without.
func TestPackedFormats(t *testing.T) {
	for _, f := range formats(t) {
		if f.ranges || f.kind == "megatron" { // the index of Megatron is of the file that is not compressed
			continue
		}
		t.Run(f.kind, func(t *testing.T) {
			tr := newTree(t, nil)
			zipped := *f
			zipped.files = map[string][]byte{}
			for name, data := range f.files {
				if err := tr.Write(name+".gz", packed(t, "gz", data)); err != nil {
					t.Fatal(err)
				}
			}
			zipped.names = nil
			for _, name := range f.names {
				shard, row, _ := strings.Cut(name, "/")
				zipped.names = append(zipped.names, shard+".gz/"+row)
			}
			src := f.kind + ":" + tr.dir + "/" + f.pattern + ".gz"
			checkFormat(t, &zipped, openRemote(t, src, source.Options{Records: f.flags, Stream: true}))
			if _, _, err := openRemote(t, src, source.Options{Records: f.flags}).List(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "--stream") {
				t.Errorf("without --stream: %v", err)
			}
			whole := packed(t, "gz", f.files[f.shard])
			for _, cut := range []int{5, len(whole) / 2, len(whole) - 5} {
				if err := tr.Write(f.shard+".gz", whole[:cut]); err != nil {
					t.Fatal(err)
				}
				_, _, err := openRemote(t, src, source.Options{Records: f.flags, Stream: true}).List(t.Context(), nil)
				if err == nil || !strings.Contains(err.Error(), f.shard+`.gz": its gzip is damaged or truncated`) {
					t.Errorf("cut at %d: %v", cut, err)
				}
			}
		})
	}
}
