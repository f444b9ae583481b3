package source_test

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"lcache/source"
	"lcache/source/s3test"
	"lcache/source/sourcetest"
)

// A fileKind writes the samples of a shard in the files of one kind of record source.
type fileKind struct {
	name, end string // end: of a shard's name
	flags     source.RecordFlags
	write     func(name string, samples [][]byte) (files map[string][]byte, shard string, names []string, stored [][]byte)
	stored    func(data []byte) []byte // as in sourcetest.Limits
}

// fixed is a record of 64 bytes that stands for any bytes in kinds whose records have one size.
func fixed(data []byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	b = binary.LittleEndian.AppendUint32(b, masked(data))
	return append(append(b, data[:min(len(data), 16)]...), make([]byte, 64-len(b)-min(len(data), 16))...)
}

func asLine(data []byte) []byte {
	return fmt.Appendf(nil, `{"x": "%s"}`, base64.StdEncoding.EncodeToString(data))
}

// joined returns the fixed records of samples.
func joined(samples [][]byte) (b []byte, stored [][]byte) {
	for _, s := range samples {
		stored = append(stored, fixed(s))
		b = append(b, stored[len(stored)-1]...)
	}
	return b, stored
}

func fileKinds(t testing.TB) []fileKind {
	return []fileKind{
		{name: "arrow", end: ".arrow", write: asArrow},
		{name: "parquet", end: ".parquet", write: asParquet},
		{name: "tfrecord", end: ".tfrecord", write: asTFRecords},
		{name: "megatron", end: ".idx", write: asMegatron},
		{name: "jsonl", end: ".jsonl", write: asLines, stored: asLine},
		{name: "bin", end: ".bin", flags: source.RecordFlags{"record-bytes": "64"}, stored: fixed,
			write: func(name string, samples [][]byte) (map[string][]byte, string, []string, [][]byte) {
				b, stored := joined(samples)
				return map[string][]byte{name + ".bin": b}, name + ".bin", numbered(name+".bin", len(samples)), stored
			}},
		{name: "npy", end: ".npy", stored: fixed, write: func(name string, samples [][]byte) (map[string][]byte, string, []string, [][]byte) {
			b, stored := joined(samples)
			header := fmt.Sprintf("%-117s\n", fmt.Sprintf("{'descr': '|u1', 'fortran_order': False, 'shape': (%d, 64), }", len(samples)))
			b = append(append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), 0), append([]byte(header), b...)...)
			return map[string][]byte{name + ".npy": b}, name + ".npy", numbered(name+".npy", len(samples)), stored
		}},
		{name: "zip", end: ".zip", write: asMembers(t), stored: func(data []byte) []byte { return append(slices.Clone(data), "text"...) }},
	}
}

// A recordShelf has the samples of each folder in a shard of one kind. It is the Mutator for them.
type recordShelf struct {
	*tree // their local folder; nil: they are far away
	kind  fileKind
	put   func(name string, data []byte) error
	files map[string][]byte // the samples
	names map[string]string // of the samples, removed ones included
}

func newRecordShelf(t testing.TB, kind fileKind, files map[string][]byte, put func(name string, data []byte) error) *recordShelf {
	t.Helper()
	s := &recordShelf{kind: kind, put: put, files: maps.Clone(files), names: map[string]string{}}
	if put == nil {
		s.tree = newTree(t, nil)
		s.put = s.tree.Write
	}
	for _, folder := range s.folders() {
		if err := s.write(folder); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func folderOf(name string) string {
	folder, _, found := strings.Cut(name, "/")
	if !found {
		folder = "top"
	}
	return folder
}

func (s *recordShelf) folders() []string {
	all := map[string]bool{}
	for name := range s.files {
		all[folderOf(name)] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// write writes the shard of a folder again.
func (s *recordShelf) write(folder string) error {
	var samples [][]byte
	var in []string
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		if folderOf(name) == folder {
			in, samples = append(in, name), append(samples, s.files[name])
		}
	}
	files, _, names, _ := s.kind.write(folder, samples)
	for i, name := range in {
		s.names[name] = names[i]
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := s.put(name, files[name]); err != nil {
			return err
		}
	}
	return nil
}

func (s *recordShelf) Write(name string, data []byte) error {
	s.files[name] = data
	return s.write(folderOf(name))
}

func (s *recordShelf) Replace(name string, data []byte) error {
	if s.tree == nil {
		return s.Write(name, data)
	}
	old, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range old {
		if strings.HasPrefix(e.Name(), folderOf(name)+".") {
			err = errors.Join(err, os.Rename(s.path(e.Name()), s.path("old "+e.Name())))
		}
	}
	err = errors.Join(err, s.Write(name, data))
	for _, e := range old {
		if err := os.Remove(s.path("old " + e.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return err
}

func (s *recordShelf) Remove(name string) error {
	delete(s.files, name)
	return s.write(folderOf(name))
}

func (s *recordShelf) Limits() sourcetest.Limits {
	return sourcetest.Limits{OwnOrder: true, Together: true, Name: func(file string) string { return s.names[file] }, Stored: s.kind.stored}
}

// pattern names all shards, in braces if they are far away.
func (s *recordShelf) pattern() string {
	end := s.kind.end
	if s.kind.name == "megatron" {
		end = ""
	}
	folders := s.folders()
	if len(folders) == 1 {
		return folders[0] + end
	}
	return "{" + strings.Join(folders, ",") + "}" + end
}

// farRecords is a recordShelf over a network: a file that is written again with the same bytes may have the same version.
type farRecords struct{ *recordShelf }

func (farRecords) Lacks() []string { return []string{sourcetest.ReplacedAlike} }

// TestRecordKinds: each kind of record source keeps the contract of sources, from a folder and a web server; and from a bucket, for kinds whose index is in
// the shard, in a file of its own, or at the shard's end. TestFormatsS3 reads the other kinds from a bucket.
func TestRecordKinds(t *testing.T) {
	g := s3test.Start(t)
	var n atomic.Int64
	for _, kind := range fileKinds(t) {
		t.Run(kind.name, func(t *testing.T) {
			sourcetest.Run(t, func(t *testing.T, files map[string][]byte) (source.Source, sourcetest.Mutator) {
				s := newRecordShelf(t, kind, files, nil)
				return openRemote(t, kind.name+":"+s.dir+"/"+s.pattern(), source.Options{Records: kind.flags}), s
			})
		})
		t.Run(kind.name+" on a web server", func(t *testing.T) {
			sourcetest.Run(t, func(t *testing.T, files map[string][]byte) (source.Source, sourcetest.Mutator) {
				web, url := serveShards(t, nil)
				s := newRecordShelf(t, kind, files, web.Write)
				return openRemote(t, kind.name+":"+url+s.pattern(), source.Options{Records: kind.flags}), farRecords{s}
			})
		})
		if !slices.Contains([]string{"arrow", "megatron", "parquet"}, kind.name) {
			continue
		}
		t.Run(kind.name+" in a bucket", func(t *testing.T) {
			sourcetest.Run(t, func(t *testing.T, files map[string][]byte) (source.Source, sourcetest.Mutator) {
				b := bucket{g, fmt.Sprintf("kinds %d/", n.Add(1))}
				s := newRecordShelf(t, kind, files, b.Write)
				opts := source.Options{Records: kind.flags, Remote: source.Remote{S3: source.S3{Endpoint: g.URL, Region: s3test.Region}}}
				return openRemote(t, kind.name+":s3://"+s3test.Bucket+"/"+b.prefix+s.pattern(), opts), farRecords{s}
			})
		})
	}
}
