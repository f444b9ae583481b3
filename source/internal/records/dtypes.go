package records

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// dtypes are types of numpy, as .npy files describe them, without the order of bytes.
var dtypes = map[string]string{
	"bool": "b1", "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "float16": "f2", "bfloat16": "V2", "int32": "i4", "uint32": "u4", "float32": "f4",
	"int64": "i8", "uint64": "u8", "float64": "f8", "complex64": "c8", "complex128": "c16",
}

// dtypeBytes returns the bytes of a value of a type, as int32 or <i4.
func dtypeBytes(name string) (int64, error) {
	if kind, ok := dtypes[name]; ok {
		return strconv.ParseInt(kind[1:], 10, 64)
	}
	if n, err := itemSize(name, 0); err == nil {
		return n, nil
	}
	return 0, fmt.Errorf("%s is unknown: give one of %s", clip(name), strings.Join(slices.Sorted(maps.Keys(dtypes)), ", "))
}

// isDtype reports whether a type by its name or description is that of a .npy header. A name means both orders of bytes. bfloat16, which numpy does not
// have, is stored as integers or raw bytes.
func isDtype(name string, header any) bool {
	descr, ok := header.(string)
	if !ok || len(descr) < 3 {
		return false // a type with fields
	}
	order, kind := descr[0], plainKind(descr[1:])
	if want, ok := dtypes[name]; ok {
		return kind == want || name == "bfloat16" && (kind == "u2" || kind == "i2")
	}
	if kind != plainKind(name[1:]) {
		return false
	}
	same := func(order byte) byte {
		if order == '=' {
			return '<'
		}
		return order
	}
	return order == '|' || name[0] == '|' || same(order) == same(name[0])
}

// plainKind returns the description of a type without a unit of time, and with b for ?, which are both bool.
func plainKind(descr string) string {
	kind, _, _ := strings.Cut(descr, "[")
	return strings.Replace(kind, "?", "b", 1)
}
