package sample

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/zeebo/xxh3"
)

// Any bytes as sums, with a right header checksum or not, give an error, or entries that are each unknown or have the check of their sum and
// index.
func FuzzSums(f *testing.F) {
	golden := parseHex(f, "testdata/sums_v1.hex")
	f.Add(golden, true)
	f.Add(golden, false)
	f.Add(golden[:learntHeader], true)
	f.Add(bytes.Repeat([]byte{0xff}, learntData+3*sumsFile.entry), true)
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if len(b) < learntHeader {
			return
		}
		b = bytes.Clone(b)
		if seal {
			binary.LittleEndian.PutUint64(b[learntHeader-8:], xxh3.Hash(b[:learntHeader-8]))
		}
		n := int(min(binary.LittleEndian.Uint64(b[16:]), uint64(len(b))))
		fp := Fingerprint(b[24:40])
		if err := sumsFile.checkHeader([learntHeader]byte(b), fp, n, int64(len(b))); err != nil {
			return
		}
		if int64(len(b)) != sumsFile.size(n) {
			t.Fatalf("%d samples were accepted in %d bytes", n, len(b))
		}
		other := fp
		other[3]++
		if sumsFile.checkHeader([learntHeader]byte(b), other, n, int64(len(b))) == nil {
			t.Error("sums of another manifest were accepted")
		}
		s := &Sums{sums: column[uint64](alignedCopy(b[learntData : learntData+8*n])), checks: column[uint32](alignedCopy(b[learntData+8*n:]))}
		known := 0
		for i := range Index(n) {
			sum, ok := s.Get(i)
			if ok && checkOf(sum, i) != binary.LittleEndian.Uint32(b[learntData+8*n+4*int(i):]) {
				t.Errorf("entry %d is believed", i)
			}
			if ok {
				known++
			}
			s.Set(i, 42)
			if sum, ok := s.Get(i); sum != 42 || !ok {
				t.Errorf("entry %d does not take a new sum", i)
			}
		}
		if known > n {
			t.Errorf("%d of %d entries are known", known, n)
		}
	})
}
