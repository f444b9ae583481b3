package records

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/klauspost/compress/snappy"
)

// pageV2 is a page of version 2 with definition levels and a body.
func pageV2(values, nulls, encoding, unpacked int, levels, body []byte) []byte {
	i32 := func(b []byte, head byte, n int) []byte { return binary.AppendVarint(append(b, head), int64(n)) }
	b := i32(nil, 0x15, pageDataV2)
	b = i32(b, 0x15, len(levels)+unpacked)
	b = i32(b, 0x15, len(levels)+len(body))
	b = append(b, 0x5c) // field 8, a struct
	for _, n := range []int{values, nulls, values, encoding, len(levels), 0} {
		b = i32(b, 0x15, n)
	}
	b = append(b, 0, 0)
	return append(append(b, levels...), body...)
}

// TestParquetPageOfNulls: a page of version 2 without values may have nothing after its levels, or a compressed nothing, in each codec and encoding.
// The pages before and after it keep their values.
func TestParquetPageOfNulls(t *testing.T) {
	leaf := parquetLeaf{kind: parquetBytes, defs: 1}
	values := snappy.Encode(nil, []byte("\x01\x00\x00\x00a\x02\x00\x00\x00bc"))
	for _, encoding := range []int{encodingPlain, encodingDictionary, encodingDeltaLengths, encodingDeltaBytes} {
		for _, body := range [][]byte{nil, snappy.Encode(nil, nil)} {
			some := pageV2(2, 0, encodingPlain, 11, []byte{4, 1}, values)
			file := append(append([]byte("PAR1"), some...), pageV2(3, 3, encoding, 0, []byte{6, 0}, body)...)
			file = append(file, some...)
			c := parquetDecoder{leaf: leaf, pages: parquetPages{in: objectPieces{ctx: t.Context(), o: memoryFile(file), piece: 1 << 10}}}
			c.begin(parquetChunk{codec: 1, values: 7, start: 4, size: int64(len(file) - 4)})
			var got []string
			for range 7 {
				b, null, err := c.next()
				switch {
				case err != nil:
					t.Fatalf("encoding %d, %d bytes: %v", encoding, len(body), err)
				case null:
					got = append(got, "null")
				default:
					got = append(got, string(b))
				}
			}
			if want := "[a bc null null null a bc]"; fmt.Sprint(got) != want {
				t.Errorf("encoding %d, %d bytes: %s, want %s", encoding, len(body), got, want)
			}
		}
	}
}
