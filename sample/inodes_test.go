package sample

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/zeebo/xxh3"
)

func openInodes(t testing.TB, path string, fp Fingerprint, n int) *Inodes {
	t.Helper()
	o, err := OpenInodes(path, fp, n)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func closeInodes(t testing.TB, o *Inodes) {
	t.Helper()
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestInodes(t *testing.T) {
	path, fp := filepath.Join(t.TempDir(), "inodes"), Fingerprint{1, 2, 3}
	o := openInodes(t, path, fp, 1000)
	for i := range Index(1000) {
		if o.Get(i) != NoInode {
			t.Fatalf("new: sample %d has inode %d", i, o.Get(i))
		}
	}
	o.Set(0, 7)
	o.Set(1, 1<<63)
	o.Set(999, 8)
	o.Set(999, 9)
	o.Suspect(5)
	for round := range 2 {
		for i, want := range map[Index]uint64{0: 7, 1: 1 << 63, 2: NoInode, 999: 9} {
			if got := o.Get(i); got != want {
				t.Errorf("round %d: inode of %d is %d, want %d", round, i, got, want)
			}
		}
		if suspect := o.Get(5); suspect == NoInode || suspect != 1<<64-1 {
			t.Errorf("round %d: the suspect sample has inode %d", round, suspect)
		}
		closeInodes(t, o)
		o = openInodes(t, path, fp, 1000)
	}
	closeInodes(t, o)
	st, err := os.Stat(path)
	if err != nil || st.Size() != int64(InodesBytes(1000)) || st.Mode().Perm() != 0o600 {
		t.Errorf("%v bytes with mode %v, %v; want %d", st.Size(), st.Mode(), err, InodesBytes(1000))
	}
	for what, open := range map[string]func() (*Inodes, error){
		"another manifest": func() (*Inodes, error) { return OpenInodes(path, Fingerprint{4}, 1000) },
		"another number":   func() (*Inodes, error) { return OpenInodes(path, fp, 999) },
	} {
		if o, err := open(); !errors.Is(err, ErrOtherManifest) && !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v, %v", what, o, err)
		}
	}
	closeInodes(t, openInodes(t, filepath.Join(t.TempDir(), "none"), fp, 0))
}

func TestInodesCopied(t *testing.T) {
	dir := t.TempDir()
	from, to := openInodes(t, dir+"/from", Fingerprint{1}, 4), openInodes(t, dir+"/to", Fingerprint{2}, 3)
	defer closeInodes(t, from)
	defer closeInodes(t, to)
	from.Set(0, 10)
	from.Set(1, 11)
	from.Set(3, 13)
	from.CopyTo(to, []Index{2, None, 1, 0})
	for i, want := range []uint64{13, NoInode, 10} {
		if got := to.Get(Index(i)); got != want {
			t.Errorf("inode of %d is %d, want %d", i, got, want)
		}
	}
}

// A file that was cut while it is mapped: the inodes that it had there are not known.
func TestInodesCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "inodes")
	o := openInodes(t, path, Fingerprint{}, 5000)
	o.Set(1, 11)
	o.Set(4999, 13)
	if err := os.Truncate(path, 2*4096); err != nil {
		t.Fatal(err)
	}
	o.Set(4998, 12)
	if o.Get(4999) != NoInode || o.Get(1) != 11 || o.Broken() == nil {
		t.Errorf("inodes %d and %d, broken: %v", o.Get(4999), o.Get(1), o.Broken())
	}
	_ = o.Close()
}

func TestInodesConcurrent(t *testing.T) {
	o := openInodes(t, filepath.Join(t.TempDir(), "inodes"), Fingerprint{}, 4)
	defer closeInodes(t, o)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for k := range 20_000 {
				i := Index(k % 4)
				if g > 1 {
					o.Set(i, uint64(i+1)*1_000_003<<g)
				} else if got := o.Get(i); got != NoInode && got != uint64(i+1)*1_000_003<<2 && got != uint64(i+1)*1_000_003<<3 {
					t.Errorf("inode of %d is %x, which was never set", i, got)
				}
			}
		})
	}
	wg.Wait()
}

func TestGoldenInodes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "inodes")
	o := openInodes(t, path, Fingerprint{0: 0x8c, 1: 0x1f, 15: 0xff}, 4)
	o.Set(0, 1234567)
	o.Suspect(2)
	o.Set(3, 1<<40)
	closeInodes(t, o)
	checkColumns(t, path, "testdata/inodes_v1.hex", "Inodes of four samples, version 1; the second is unknown, and the third sample's file had other bytes.", learntColumn{"inode", 8})
}

// Any bytes for inodes, with a right header checksum or not: an error, or as many entries as the file has room for.
func FuzzInodes(f *testing.F) {
	golden := parseHex(f, "testdata/inodes_v1.hex")
	f.Add(golden, true)
	f.Add(golden, false)
	f.Add(golden[:learntHeader], true)
	f.Add(append(append(bytes.Clone(golden[:learntHeader]), make([]byte, learntData-learntHeader)...), golden[learntHeader:]...), true)
	path := filepath.Join(f.TempDir(), "inodes")
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		b = bytes.Clone(b)
		if len(b) < learntHeader {
			return
		}
		if seal {
			binary.LittleEndian.PutUint64(b[learntHeader-8:], xxh3.Hash(b[:learntHeader-8]))
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		n := int(binary.LittleEndian.Uint64(b[16:]) & (1<<40 - 1))
		o, err := OpenInodes(path, Fingerprint(b[24:40]), n)
		if err != nil {
			return
		}
		defer closeInodes(t, o)
		if uint64(len(b)) != InodesBytes(n) || o.Len() != n {
			t.Fatalf("%d inodes in %d bytes", n, len(b))
		}
		for i := range Index(n) {
			if got := o.Get(i); got != binary.LittleEndian.Uint64(b[learntData+8*int(i):]) {
				t.Fatalf("entry %d is %d", i, got)
			}
			o.Set(i, 42)
			if o.Get(i) != 42 {
				t.Fatalf("entry %d does not take a new inode", i)
			}
		}
	})
}
