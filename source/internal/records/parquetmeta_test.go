package records

import (
	"encoding/binary"
	"strings"
	"testing"
)

// schemaOf is a footer with one group of many columns, and no rows.
func schemaOf(group string, columns int) []byte {
	element := func(b []byte, name string, children int) []byte {
		if children == 0 {
			b = append(b, 0x15, 12, 0x25, 0) // bytes, required
		}
		b = append(b, 0x48)
		if children == 0 {
			b[len(b)-1] = 0x18 // the number of the field before is 3
		}
		b = append(binary.AppendUvarint(b, uint64(len(name))), name...)
		if children > 0 {
			b = binary.AppendVarint(append(b, 0x15), int64(children))
		}
		return append(b, 0)
	}
	b := binary.AppendUvarint([]byte{0x15, 2, 0x19, 0xfc}, uint64(columns+2))
	b = element(element(b, "schema", 1), group, columns)
	for range columns {
		b = element(b, "c", 0)
	}
	return append(b, 0x16, 0, 0x19, 0x0c, 0)
}

// TestParquetLongNames: the names of columns in a group take no more memory than the footer allows.
func TestParquetLongNames(t *testing.T) {
	if m, err := parseParquetMeta(schemaOf("group", 5000), 1<<20); err != nil || len(m.leaves) != 5000 {
		t.Errorf("short names: %v", err)
	}
	_, err := parseParquetMeta(schemaOf(strings.Repeat("g", 1<<20), 5000), 2<<20)
	if err == nil || !strings.Contains(err.Error(), "the names of its columns are longer than they can be") {
		t.Errorf("5 GB of names: %v", err)
	}
}
