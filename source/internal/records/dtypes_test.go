package records

import (
	"fmt"
	"testing"
)

// TestNPYDtype: --dtype must be the type of the array's values.
func TestNPYDtype(t *testing.T) {
	kind, _ := Find("npy")
	for _, c := range []struct {
		descr, dtype string
		ok           bool
	}{
		{"'<i8'", "int64", true},
		{"'<i8'", "<i8", true},
		{"'<i8'", "=i8", true},
		{"'>i8'", "int64", true}, // dtype=numpy.dtype(">i8") has this name
		{"'|b1'", "bool", true},
		{"'|u1'", "uint8", true},
		{"'|u1'", "<u1", true},
		{"'<M8[ns]'", "<M8", true},
		{"'<f2'", "float16", true},
		{"'|V2'", "bfloat16", true},
		{"'<u2'", "bfloat16", true},
		{"'<c16'", "complex128", true},
		{"'<i8'", "uint16", false},
		{"'<i8'", "uint64", false},
		{"'<i8'", "float64", false},
		{"'<i8'", ">i8", false},
		{"'<f2'", "bfloat16", false},
		{"'<f4'", "float16", false},
		{"[('a', '<i4')]", "int32", false},
	} {
		set, err := kind.Settings(Flags{"dtype": c.dtype, "shape": "2"})
		if err != nil {
			t.Fatal(err)
		}
		header := fmt.Sprintf("{'descr': %s, 'fortran_order': False, 'shape': (32,), }", c.descr)
		f, err := newNPY(set)
		if err != nil {
			t.Fatal(err)
		}
		a, err := readNPY(newCursor(t.Context(), memoryFile(npyFile(header, 0))))
		if err != nil {
			t.Fatal(err)
		}
		_, err = indexBytes(t, f, npyFile(header, int(32*a.item)))
		want := fmt.Sprintf("its values have the type %s, and --dtype says %s: correct --dtype and --shape, or give --record-bytes", clip(fmt.Sprint(a.descr)), clip(c.dtype))
		if c.ok && err != nil || !c.ok && (err == nil || err.Error() != want) {
			t.Errorf("%s, --dtype %s: %v", c.descr, c.dtype, err)
		}
	}
}
