package records

import "fmt"

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
	v, ok := integer(b, len(b), !c.leaf.unsigned)
	if !ok {
		return 0, outOfRange(row, v, !c.leaf.unsigned)
	}
	return int32(v), nil
}
