package records

import (
	"fmt"
	"strings"
	"sync"
)

// sameColumns checks that all shards of a listing have the same columns, of the same types.
type sameColumns struct {
	mu             sync.Mutex // guards the fields that follow
	columns, shard string     // of the first shard
	types          []string
}

func (s *sameColumns) check(shard string, parts []leaf, label string) error {
	var names, types []string
	for _, l := range parts {
		names, types = append(names, plain(l.name)), append(types, l.kind)
	}
	columns := strings.Join(names, ", ")
	if label != "" {
		columns += " with the labels " + plain(label)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shard == "" {
		s.shard, s.columns, s.types = shard, columns, types
	}
	if s.columns != columns {
		return fmt.Errorf("its columns are %s, but those of %s are %s: choose columns that all have (--columns), or name shards of one dataset", columns, clip(s.shard), s.columns)
	}
	for i, kind := range types {
		if kind != s.types[i] {
			return fmt.Errorf("its column %s has the type %s, but that of %s has %s: choose columns that have one type (--columns), or write the files again with one", names[i], kind, clip(s.shard), s.types[i])
		}
	}
	return nil
}

// typeBytes is the type of columns of bytes and text. The bytes of a value are the same in all of them.
const typeBytes = "binary"

// typeName returns the type of a column's values. Those of lists are alike, whatever the width of their offsets, and so are those of bytes and text.
func (a *arrowField) typeName() string {
	switch a.kind {
	case arrowBinary, arrowUtf8, arrowLargeBinary, arrowLargeUtf8, arrowBinaryView, arrowUtf8View:
		return typeBytes
	case arrowFixedBinary:
		return fixedName(a.width)
	case arrowList, arrowLargeList, arrowFixedList:
		if len(a.children) == 1 {
			return "list<" + a.children[0].numberName() + ">"
		}
	}
	return ""
}

// numberName returns the type of a number.
func (a *arrowField) numberName() string {
	units := [...]string{"s", "ms", "us", "ns"}
	unit := units[min(max(a.unit, 0), len(units)-1)]
	switch a.kind {
	case arrowInt:
		return intName(8*a.width, a.signed)
	case arrowFloat:
		return fmt.Sprintf("float%d", 8*a.width)
	case arrowDate:
		return fmt.Sprintf("date%d", 8*a.width)
	case arrowTimestamp:
		return fmt.Sprintf("timestamp[%s]", unit)
	case arrowDuration:
		return fmt.Sprintf("duration[%s]", unit)
	}
	return ""
}

// typeName returns the type of a column's values, as for Arrow.
func (l parquetLeaf) typeName() string {
	switch {
	case l.reps > 0 && (l.kind == parquetFloat || l.kind == parquetDouble):
		return fmt.Sprintf("list<float%d>", 8*l.wide)
	case l.reps > 0:
		return fmt.Sprintf("list<%s>", intName(8*l.wide, !l.unsigned))
	case l.kind == parquetFixedBytes:
		return fixedName(l.width)
	}
	return typeBytes
}

func intName(bits int, signed bool) string {
	if signed {
		return fmt.Sprintf("int%d", bits)
	}
	return fmt.Sprintf("uint%d", bits)
}

func fixedName(width int) string { return fmt.Sprintf("fixed_size_binary[%d]", width) }
