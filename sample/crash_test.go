package sample

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"lcache/internal/disk/durable"
	"lcache/internal/disk/durable/durabletest"
	"lcache/internal/testenv"
)

// crashBed is a cache directory whose files outside the log are written as an ingest does, on a disk that loses power at every step.
type crashBed struct {
	t       *testing.T
	dir     string
	disk    *durabletest.Disk
	entries [][]Entry   // of each ingest
	listed  []*Manifest // of each ingest, from outside the cache
	packed  bool        // its manifests are
	// since and until bound the versions that a file may have after a crash: the latest durable one, and the one that is being written; 0: none.
	since, until map[string]int
	images       []crashImage
}

type crashImage struct {
	files        durabletest.Image
	since, until map[string]int
}

// TestCrashIngest cuts the power at every step of an ingest and of a second one, after files were added and removed, over manifest, inodes, sums,
// listing and job.json. Each file must then be the one of the first ingest or of the second, whole, and no older than the last that was complete.
func TestCrashIngest(t *testing.T) {
	testenv.WithoutRace(t)
	for _, packed := range []bool{false, true} {
		for _, records := range []bool{false, true} {
			t.Run(fmt.Sprintf("packed %v, records %v", packed, records), func(t *testing.T) { crashIngest(t, packed, records) })
		}
	}
}

func crashIngest(t *testing.T, packed, records bool) {
	b := &crashBed{t: t, dir: t.TempDir(), disk: durabletest.New(), packed: packed, since: map[string]int{}, until: map[string]int{}}
	for version := range 2 {
		var list []Entry
		for i := range 700 {
			e := Entry{Name: fmt.Sprintf("a/sample-%d", i*2+version*100), Size: 100, Version: 5}
			if at := uint64(i*2 + version*100); records {
				e.Shard, e.Parts, e.Offsets = &Shard{Name: "a", Size: 1 << 30, Version: 5, Records: true}, []Part{{Ext: "image", Size: 60, Sum: at + 1}, {Ext: "text", Size: 40}}, []uint64{1000 * at, 900_000_000 - 50*at}
			}
			list = append(list, e)
		}
		b.entries, b.listed = append(b.entries, list), append(b.listed, openTemp(t, nil, list))
	}
	r := rand.New(rand.NewPCG(5, 6))
	b.disk.Step = func() {
		for n := range 9 {
			c := crashImage{files: b.disk.Crash(r, float64(n%3)/2), since: map[string]int{}, until: map[string]int{}}
			for name := range b.until {
				c.since[name], c.until[name] = b.since[name], b.until[name]
			}
			b.images = append(b.images, c)
		}
	}
	for version := 1; version <= 2; version++ {
		b.ingest(version)
	}
	b.disk.Locked(b.disk.Step)
	seen := map[string]bool{}
	for _, c := range b.images {
		root := t.TempDir()
		c.files.Write(t, b.dir, root)
		for name := range c.until {
			got := b.version(root, name)
			if got < c.since[name] || got > c.until[name] {
				t.Errorf("%s: version %d, want %d to %d", name, got, c.since[name], c.until[name])
			}
			seen[fmt.Sprint(name, got)] = true
		}
	}
	for _, want := range []string{"manifest0", "manifest1", "manifest2", "inodes0", "inodes1", "inodes2", "sums0", "sums1", "sums2", "listing1", "listing2", "job.json1", "job.json2"} {
		if !seen[want] {
			t.Errorf("no crash leaves %s", want)
		}
	}
}

// ingest writes the files of a version in the order of an ingest.
func (b *crashBed) ingest(version int) {
	b.put("manifest", version, func(path string) error {
		if _, err := writeManifest(path+".listed", nil, Entries(b.entries[version-1]), b.packed, b.disk.Trace); err != nil {
			return err
		}
		return durable.Trace(b.disk.Trace).Rename(path+".listed", path)
	})
	b.put("inodes", version, func(path string) error { return b.putInodes(path, version) })
	b.put("sums", version, func(path string) error { return b.putSums(path, version) })
	for _, name := range []string{"listing", "job.json"} {
		b.put(name, version, func(path string) error {
			return durable.Trace(b.disk.Trace).ReplaceFile(path, contents(name, version))
		})
	}
}

func (b *crashBed) put(name string, version int, write func(path string) error) {
	b.t.Helper()
	b.until[name] = version
	if err := write(filepath.Join(b.dir, name)); err != nil {
		b.t.Fatalf("%s: %v", name, err)
	}
	b.since[name] = version
}

// putSums makes the sums of the first version known, and carries them over to the second.
func (b *crashBed) putSums(path string, version int) error {
	kind := sumsFile
	kind.trace = b.disk.Trace
	open := func(path string, version int) *Sums {
		m, err := kind.open(path, b.listed[version-1].Fingerprint(), len(b.entries[version-1]), false)
		s, err := newSums(m, len(b.entries[version-1]), err)
		if err != nil {
			b.t.Fatal(err)
		}
		return s
	}
	if version == 1 {
		s := open(path, 1)
		for i := range b.entries[0] {
			s.Set(Index(i), NameHash(b.entries[0][i].Name))
		}
		return s.Close()
	}
	old, next := open(path, 1), open(path+".next", 2)
	to, err := Remap(b.listed[0], b.listed[1])
	if err != nil {
		return err
	}
	old.CopyTo(next, to)
	if err := errors.Join(old.Close(), next.Close()); err != nil {
		return err
	}
	return durable.Trace(b.disk.Trace).Rename(path+".next", path)
}

// putInodes makes the inodes of the first version known, and carries them over to the second.
func (b *crashBed) putInodes(path string, version int) error {
	kind := inodesFile
	kind.trace = b.disk.Trace
	open := func(path string, version int) *Inodes {
		m, err := kind.open(path, b.listed[version-1].Fingerprint(), len(b.entries[version-1]), false)
		o, err := newInodes(m, err)
		if err != nil {
			b.t.Fatal(err)
		}
		return o
	}
	if version == 1 {
		o := open(path, 1)
		for i, e := range b.entries[0] {
			o.Set(Index(i), inodeOf(e))
		}
		return o.Close()
	}
	old, next := open(path, 1), open(path+".next", 2)
	to, err := Remap(b.listed[0], b.listed[1])
	if err != nil {
		return err
	}
	old.CopyTo(next, to)
	if err := errors.Join(old.Close(), next.Close()); err != nil {
		return err
	}
	return durable.Trace(b.disk.Trace).Rename(path+".next", path)
}

// inodeOf is the inode of a sample's file: one that is the same in both versions, with bytes that are all different, so that a torn one is seen.
func inodeOf(e Entry) uint64 { return NameHash(e.Name) | 1 }

// contents returns the contents of a small file.
func contents(name string, version int) []byte {
	return bytes.Repeat([]byte(fmt.Sprint(name, " of version ", version, "\n")), 1000)
}

// version returns the version of a file below root; 0: there is none; -1: it is not whole.
func (b *crashBed) version(root, name string) int {
	b.t.Helper()
	path := filepath.Join(root, name)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	for version := 1; version <= 2; version++ {
		if b.is(path, name, version) {
			return version
		}
	}
	return -1
}

func (b *crashBed) is(path, name string, version int) bool {
	switch name {
	case "manifest":
		m, err := OpenManifest(path)
		if err != nil {
			return false
		}
		defer m.Close()
		return m.Fingerprint() == b.listed[version-1].Fingerprint()
	case "sums":
		return b.areSums(path, version)
	case "inodes":
		return b.areInodes(path, version)
	}
	got, err := os.ReadFile(path)
	return err == nil && bytes.Equal(got, contents(name, version))
}

// areSums reports whether the file holds the sums of a version, each right or unknown; all that were durable must be known.
func (b *crashBed) areSums(path string, version int) bool {
	entries := b.entries[version-1]
	s, err := ReadSums(path, b.listed[version-1].Fingerprint(), len(entries))
	if err != nil {
		return false
	}
	defer s.Close()
	for i := range entries {
		if sum, known := s.Get(Index(i)); known && sum != NameHash(entries[i].Name) {
			b.t.Errorf("version %d: sample %d has a wrong sum", version, i)
			return false
		}
	}
	if want := len(entries) - 50; version == 2 && s.Known() != want { // renamed when they were durable
		b.t.Errorf("%d sums are carried over, want %d", s.Known(), want)
	}
	return true
}

// areInodes reports whether the file holds the inodes of a version, each right, torn or unknown; all that were durable must be right.
func (b *crashBed) areInodes(path string, version int) bool {
	entries := b.entries[version-1]
	o, err := OpenInodes(path, b.listed[version-1].Fingerprint(), len(entries))
	if err != nil {
		return false
	}
	defer o.Close()
	known := 0
	for i, e := range entries {
		switch o.Get(Index(i)) {
		case NoInode:
		case inodeOf(e):
			known++
		default:
			b.t.Errorf("version %d: sample %d has a wrong inode", version, i)
			return false
		}
	}
	if want := len(entries) - 50; version == 2 && known != want { // renamed when they were durable
		b.t.Errorf("%d inodes are carried over, want %d", known, want)
	}
	return true
}
