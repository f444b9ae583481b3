package records

import (
	"fmt"
	"testing"
)

// TestUnsignedLabels: a label without a sign is not negative. One that does not fit into 32 bits with a sign is an error, as in Arrow files.
func TestUnsignedLabels(t *testing.T) {
	for name, label := range map[string]string{"uint32.parquet": "3000000000", "uint64.parquet": "9223372036854775808"} {
		want := fmt.Sprintf("column \"label\": row 2 has the label %s, which does not fit into 32 bits", label)
		tb, err := indexBytes(t, newParquetWith(t, Settings{}), golden(t, name))
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
		for i, want := range []int32{0, 1<<31 - 1} {
			if _, label, _ := tb.Row(i, nil); label != want {
				t.Errorf("%s: row %d has the label %d, want %d", name, i, label, want)
			}
		}
		if _, _, err := decodeBytes(t, newParquetWith(t, Settings{}).(Decoder), golden(t, name)); err == nil || err.Error() != want {
			t.Errorf("%s, decoded: %v, want %s", name, err, want)
		}
	}
}
