package sample

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"
	"unsafe"

	"github.com/zeebo/xxh3"
)

// reseal corrects all checksums of a changed manifest, so that the checks after them are tested.
func reseal(b []byte) {
	n, err := headerLen(b)
	if err != nil || n > len(b) {
		return
	}
	for row := fixedSize; row < n-sumSize; row += rowSize {
		off, size := binary.LittleEndian.Uint64(b[row+8:]), binary.LittleEndian.Uint64(b[row+16:])
		if off <= uint64(len(b)) && size <= uint64(len(b))-off {
			sum := xxh3.Hash128(b[off : off+size]).Bytes()
			copy(b[row+24:], sum[:])
		}
	}
	binary.LittleEndian.PutUint64(b[n-sumSize:], xxh3.Hash(b[:n-sumSize]))
}

// decodeBytes opens a manifest in memory.
func decodeBytes(b []byte) (*Manifest, error) {
	h, err := readHeader(bytes.NewReader(b), uint64(len(b)))
	if err != nil {
		return nil, err
	}
	return newManifest(h, alignedCopy(b[:h.find(secNameOffs).off]), bytes.NewReader(b))
}

// alignedCopy is at a multiple of 8, as a mapped file is.
func alignedCopy(b []byte) []byte {
	words := make([]uint64, len(b)/8+1)
	c := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(b))
	copy(c, b)
	return c
}

// tryOpen opens bytes as a manifest and reads all of it.
func tryOpen(b []byte) (openErr, readErr error) {
	m, err := decodeBytes(b)
	if err != nil {
		return err, nil
	}
	return nil, m.Verify()
}

func TestManifestEveryByteFlipped(t *testing.T) {
	path := writeTemp(t, listingClasses, listing)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	h, err := decodeHeader(good[:headerSize(10)], uint64(len(good)))
	if err != nil {
		t.Fatal(err)
	}
	front := int(h.find(secNameOffs).off)
	for i := range good {
		for _, flip := range []byte{1, 0x80, 0xFF} {
			b := bytes.Clone(good)
			b[i] ^= flip
			openErr, readErr := tryOpen(b)
			atOpen := i < front // sections that delivery depends on, the padding between them, and the header
			if err := errors.Join(openErr, readErr); !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) || (openErr != nil) != atOpen {
				t.Errorf("byte %d ^ %#x: open gave %v, reading it %v", i, flip, openErr, readErr)
			}
		}
	}
}

func TestManifestTruncated(t *testing.T) {
	path := writeTemp(t, listingClasses, listing)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(good) {
		if err, _ := tryOpen(good[:n]); !errors.Is(err, ErrCorrupt) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
	for _, n := range []int{0, 1, fixedSize, 500, len(good) - 1} { // as a file too
		if err := os.Truncate(path, int64(n)); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenManifest(path); !errors.Is(err, ErrCorrupt) {
			t.Errorf("file cut to %d bytes: %v", n, err)
		}
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err, _ := tryOpen(append(good, 0)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("one byte longer: %v", err)
	}
	if err, _ := tryOpen(make([]byte, len(good))); !errors.Is(err, ErrCorrupt) {
		t.Errorf("all zero: %v", err)
	}
}

// Every 4-byte field of a small manifest set to hostile numbers, with right checksums: an error or a manifest, never a fault.
func TestManifestHostile(t *testing.T) {
	path := writeTemp(t, listingClasses, listing)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for i := 0; i+4 <= len(good); i += 4 {
		for _, v := range []uint32{0, 1, 0x7fffffff, 0x80000000, 0xffffffff} {
			b := bytes.Clone(good)
			binary.LittleEndian.PutUint32(b[i:], v)
			reseal(b)
			openErr, readErr := tryOpen(b)
			if err := errors.Join(openErr, readErr); err != nil {
				refused++
				if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
					t.Errorf("field at %d = %#x: %v", i, v, err)
				}
			}
		}
	}
	if refused < 100 {
		t.Errorf("only %d hostile files were refused", refused)
	}
}

func TestManifestVersion(t *testing.T) {
	path := writeTemp(t, nil, listing)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[8] = 6
	reseal(b)
	if err, _ := tryOpen(b); !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "ingest again") {
		t.Errorf("version 6: %v", err)
	}
}
