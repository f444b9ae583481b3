package records

import (
	"encoding/binary"
	"fmt"
)

// parquetInts decodes a column of labels.
type parquetInts struct{ parquetDecoder }

// next returns the label of the next row.
func (c *parquetInts) next(row int) (int32, error) {
	b, null, err := c.parquetDecoder.next()
	if err != nil {
		return 0, err
	}
	if null {
		return 0, fmt.Errorf("row %d has no label: give a file of labels (--labels), or --flat", row)
	}
	v := int64(0)
	if len(b) == 8 {
		v = int64(binary.LittleEndian.Uint64(b))
	} else {
		v = int64(int32(binary.LittleEndian.Uint32(b)))
	}
	if v != int64(int32(v)) {
		return 0, fmt.Errorf("row %d has the label %d, which does not fit into 32 bits", row, v)
	}
	return int32(v), nil
}
