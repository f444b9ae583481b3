package source_test

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"lcache/sample"
	"lcache/source"
)

// TestInodes: a listing and a read return the same inode for each file. For several files of one sample, it is one
// combined number.
func TestInodes(t *testing.T) {
	for _, without := range []bool{false, true} {
		alike := map[string][]byte{}
		for name := range files("a/1.jpg", "a/1.txt", "a/2.jpg", "b/3.jpg", "b/3.txt") {
			alike[name] = []byte(name)
		}
		in, _ := linked(t, alike, files("x"), map[string]string{"b/4": "OUT/x"})
		for name := range alike {
			if err := os.Chtimes(in.path(name), in.clock, in.clock); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Link(in.path("a/2.jpg"), in.path("b/5.jpg")); err != nil {
			t.Fatal(err)
		}
		for _, o := range []source.Options{{}, {Group: source.GroupStem}} {
			s := in.open(t, o)
			if without {
				source.WithoutOpenat2(s)
			}
			if !source.NumbersFiles(s) {
				t.Fatal("the source has no inodes")
			}
			l, _ := relist(t, s, nil, nil)
			inodes, seen := l.Inodes(), map[uint64]string{}
			for i, e := range l.Entries {
				if inodes[i] != e.Inode || e.Inode == sample.NoInode {
					t.Errorf("%q: inode %d, in the list %d", e.Name, e.Inode, inodes[i])
				}
				var read uint64
				if err := s.Read(source.WithInode(t.Context(), &read), e, make([]byte, e.Size)); err != nil || read != e.Inode {
					t.Errorf("%q: read of inode %d, %v; listed with %d", e.Name, read, err, e.Inode)
				}
				if other, twice := seen[e.Inode]; twice != (o.Group == "" && e.Name == "b/5.jpg" || o.Group != "" && e.Name == "b/5") {
					t.Errorf("%q has the inode of %q", e.Name, other)
				}
				seen[e.Inode] = e.Name
			}
			// Another file of the same size and time is the same sample to a listing, except for the inode.
			before := l.Entries[0]
			exchange(t, in, "a/1.jpg", "b/3.jpg")
			after := listed(t, s)[0]
			if after.Inode == before.Inode || after.Version != before.Version || after.Size != before.Size {
				t.Errorf("exchanged: %+v, before %+v", after, before)
			}
		}
	}
}

// exchange exchanges the names of two files.
func exchange(t *testing.T, in *tree, a, b string) {
	t.Helper()
	if err := errors.Join(os.Rename(in.path(a), in.path("a/aside")), os.Rename(in.path(b), in.path(a)), os.Rename(in.path("a/aside"), in.path(b))); err != nil {
		t.Fatal(err)
	}
}

// TestInodesNumbering: on file systems where inodes prove nothing, files and link targets have none.
func TestInodesNumbering(t *testing.T) {
	in, out := linked(t, files("a/1.jpg", "a/1.txt"), files("x"), map[string]string{"a/2.jpg": "OUT/x"})
	var st, there unix.Statfs_t
	if err := errors.Join(unix.Statfs(in.dir, &st), unix.Statfs(out.dir, &there)); err != nil {
		t.Fatal(err)
	}
	defer source.SetNumbering(source.SetNumbering([]int64{int64(st.Type), int64(there.Type)}))
	for _, o := range []source.Options{{}, {Group: source.GroupStem}} {
		s := in.open(t, o)
		if source.NumbersFiles(s) {
			t.Error("the source has inodes")
		}
		l, _ := relist(t, s, nil, nil)
		if l.Inodes() != nil {
			t.Errorf("inodes %v", l.Inodes())
		}
		for _, e := range l.Entries {
			read := uint64(sample.NoInode)
			if err := s.Read(source.WithInode(t.Context(), &read), e, make([]byte, e.Size)); err != nil || read != sample.NoInode {
				t.Errorf("%q: inode %d, %v", e.Name, read, err)
			}
		}
	}
}

// TestInodeGivenAgain: a file with the path, size, time and inode of a removed file is still another file. That
// happens when an archive is unpacked over older files.
func TestInodeGivenAgain(t *testing.T) {
	in, _ := linked(t, map[string][]byte{"a.bin": []byte("one")}, nil, nil)
	s := in.open(t, source.Options{})
	write := func(content string) {
		t.Helper()
		if err := errors.Join(os.WriteFile(in.path("a.bin"), []byte(content), 0o644), os.Chtimes(in.path("a.bin"), in.clock, in.clock)); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, in.path("a.bin"), 0, unix.STATX_BTIME, &st); err != nil || st.Mask&unix.STATX_BTIME == 0 {
		t.Skip("the file system does not tell when a file was made")
	}
	for range 20 { // in most rounds it gets the inode of the file before
		before := listed(t, s)[0]
		if err := os.Remove(in.path("a.bin")); err != nil {
			t.Fatal(err)
		}
		write("two")
		if now := listed(t, s)[0]; now.Version != before.Version || now.Inode == before.Inode {
			t.Fatalf("version %d and %d, file %d and %d", before.Version, now.Version, before.Inode, now.Inode)
		}
	}
}
