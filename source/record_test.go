package source_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/zeebo/xxh3"

	"lcache/source"
)

// FuzzDecodeFolders reads any bytes as the record of a listing, sealed or not. An accepted record has the requested
// number of samples, and is the same when it is written again.
func FuzzDecodeFolders(f *testing.F) {
	of := [16]byte{7}
	b := source.EncodeFolders([]source.Folder{{Path: "", Inode: 1, Modified: -5, Changed: 9}, {Path: "a", Inode: 2, Samples: 3}, {Path: "a/ü\n", Inode: 1 << 63, Samples: 1<<32 - 1}}, of)
	f.Add(b, 3+1<<32-1, false)
	f.Add(b[:len(b)-8], 3+1<<32-1, true)
	f.Add(source.EncodeFolders(nil, of), 0, false)
	f.Fuzz(func(t *testing.T, b []byte, samples int, seal bool) {
		if seal {
			b = binary.LittleEndian.AppendUint64(bytes.Clone(b), xxh3.Hash(b))
		}
		folders, err := source.DecodeFolders(b, of, samples)
		if err != nil {
			return
		}
		n := 0
		for _, folder := range folders {
			n += folder.Samples
		}
		if n != samples {
			t.Errorf("%d samples, want %d", n, samples)
		}
		if again := source.EncodeFolders(folders, of); !bytes.Equal(again, b) {
			t.Errorf("%x is written again as %x", b, again)
		}
	})
}
