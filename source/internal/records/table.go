package records

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// MostParts is the maximum number of parts of a sample.
const MostParts = 16

// mostKinds is the maximum number of names of parts in a shard.
const mostKinds = 256

// mostKey is the maximum length of a sample's own name in bytes, as in a manifest.
const mostKey = 64 << 10

// A Table has the samples of one shard in columns: 16 bytes for a sample with one part. Columns that are the same for all samples take nothing.
type Table struct {
	// Classes are the names of labels 0, 1, …; none: labels are only numbers.
	Classes []string

	// Rest is the number of bytes at the end of the shard that are less than a record, and belong to no sample.
	Rest int64

	// OwnFirst keeps the first cell of each sample first. Otherwise parts come in the order in which their names were first requested.
	OwnFirst bool

	// Left are the columns that are not served though nobody asked for others, and why.
	Left []string

	size  int64 // of the shard; -1: not known yet
	end   int64 // of the last byte of a sample
	exts  []string
	rows  int
	bytes []uint32 // by part: its size
	offs  []uint64
	kinds []uint8  // by part: its name; nil: all parts have the first name
	sums  []uint64 // by part: its checksum; nil: no part has one
	ends  []uint32 // by sample: end of its parts; nil: each sample has one part
	label []int32  // nil: all are 0

	keys *strings.Builder // concatenated; nil: no sample has one
	cuts []uint64         // ends of the keys; nil: no sample has one
}

// A Cell is the range of one part.
type Cell struct {
	Part      int // its name, from Table.Part
	Off, Size int64
	Sum       uint64 // xxh3-64 of its bytes, if an index says it; 0: not known
}

// NewTable returns an empty table for a shard. size is its length; -1: not known.
func NewTable(size int64) *Table { return &Table{size: size} }

// Part returns the number of a part's name, for cells.
func (t *Table) Part(name string) (int, error) {
	if i := slices.Index(t.exts, name); i >= 0 {
		return i, nil
	}
	if len(t.exts) == mostKinds {
		return 0, fmt.Errorf("it has more than %d names of parts", mostKinds)
	}
	if len(name) > mostKey {
		return 0, fmt.Errorf("part %s has a name of more than %d bytes", clip(name), mostKey)
	}
	t.exts = append(t.exts, strings.Clone(name))
	return len(t.exts) - 1, nil
}

// MoveFirst moves the cell of a part before the others, whose order stays.
func MoveFirst(cells []Cell, part int) {
	if at := slices.IndexFunc(cells, func(c Cell) bool { return c.Part == part }); at > 0 {
		first := cells[at]
		copy(cells[1:], cells[:at])
		cells[0] = first
	}
}

// Parts returns the names of parts.
func (t *Table) Parts() []string { return t.exts }

// Len returns the number of samples. A nil table has none.
func (t *Table) Len() int {
	if t == nil {
		return 0
	}
	return t.rows
}

// End returns the end of the last byte of a sample.
func (t *Table) End() int64 { return t.end }

// Grow makes room for n more samples of one part. n must not come from a file unchecked.
func (t *Table) Grow(n int) {
	t.bytes, t.offs = slices.Grow(t.bytes, n), slices.Grow(t.offs, n)
}

// Add appends a sample. key is its name; "": its name is the shard's and the number of its row. Each cell must have another part. The caller may
// use cells again.
func (t *Table) Add(key string, label int32, cells ...Cell) error {
	if err := t.check(key, cells); err != nil {
		return err
	}
	own := 0 // the part that was given first
	if len(cells) > 0 {
		own = cells[0].Part
	}
	slices.SortFunc(cells, func(a, b Cell) int { return cmp.Compare(a.Part, b.Part) })
	for i, c := range cells {
		if i > 0 && c.Part == cells[i-1].Part {
			return fmt.Errorf("row %d: it has the part %s twice", t.rows, clip(t.exts[c.Part]))
		}
	}
	if t.OwnFirst {
		MoveFirst(cells, own)
	}
	if len(cells) != 1 && t.ends == nil {
		t.ends = make([]uint32, t.rows, max(cap(t.bytes), t.rows+1))
		for i := range t.ends {
			t.ends[i] = uint32(i + 1)
		}
	}
	for _, c := range cells {
		if c.Part != 0 && t.kinds == nil {
			t.kinds = make([]uint8, len(t.bytes), cap(t.bytes)+1)
		}
		if t.kinds != nil {
			t.kinds = append(t.kinds, uint8(c.Part))
		}
		if c.Sum != 0 && t.sums == nil {
			t.sums = make([]uint64, len(t.bytes), cap(t.bytes)+1)
		}
		if t.sums != nil {
			t.sums = append(t.sums, c.Sum)
		}
		t.bytes, t.offs = append(t.bytes, uint32(c.Size)), append(t.offs, uint64(c.Off))
		t.end = max(t.end, c.Off+c.Size)
	}
	if t.ends != nil {
		t.ends = append(t.ends, uint32(len(t.bytes)))
	}
	if label != 0 && t.label == nil {
		t.label = make([]int32, t.rows, cap(t.bytes)+1)
	}
	if t.label != nil {
		t.label = append(t.label, label)
	}
	t.addKey(key)
	t.rows++
	return nil
}

func (t *Table) addKey(key string) {
	if key != "" && t.cuts == nil {
		t.keys, t.cuts = new(strings.Builder), make([]uint64, t.rows, t.rows+1)
	}
	if t.cuts != nil {
		t.keys.WriteString(key)
		t.cuts = append(t.cuts, uint64(t.keys.Len()))
	}
}

// check returns an error for a sample that a manifest can't hold, or that is not in its shard.
func (t *Table) check(key string, cells []Cell) error {
	if t.rows == math.MaxUint32-1 || len(t.bytes)+len(cells) > math.MaxUint32 {
		return errors.New("it has more than 2³² samples or parts: split it")
	}
	if len(key) > mostKey {
		return fmt.Errorf("row %d: its name has %d bytes, at most %d", t.rows, len(key), mostKey)
	}
	if len(cells) > MostParts {
		return fmt.Errorf("row %d: it has %d parts, at most %d", t.rows, len(cells), MostParts)
	}
	total := int64(0)
	for _, c := range cells {
		if c.Part < 0 || c.Part >= len(t.exts) {
			return fmt.Errorf("row %d: it has an unknown part %d", t.rows, c.Part)
		}
		if c.Off < 0 || c.Size < 0 || c.Off > math.MaxInt64-c.Size {
			return fmt.Errorf("row %d: its bytes are from %d on, %d in number, which no file has: its index is damaged", t.rows, c.Off, c.Size)
		}
		if t.size >= 0 && c.Off+c.Size > t.size {
			return fmt.Errorf("row %d: its bytes are from %d on, %d in number, but the file has %d: the file is truncated, or its index is of another file", t.rows, c.Off, c.Size, t.size)
		}
		if total += c.Size; c.Size > math.MaxUint32 || total > math.MaxUint32 {
			return fmt.Errorf("row %d: it has 4 GiB or more: split it", t.rows)
		}
	}
	return nil
}

// Row returns sample i: its key ("": none), its label and its cells, which are valid until the next call with the same cells.
func (t *Table) Row(i int, cells []Cell) (key string, label int32, _ []Cell) {
	if t.label != nil {
		label = t.label[i]
	}
	if t.cuts != nil {
		from := uint64(0)
		if i > 0 {
			from = t.cuts[i-1]
		}
		key = t.keys.String()[from:t.cuts[i]]
	}
	from, to := uint32(i), uint32(i+1)
	if t.ends != nil {
		if from = 0; i > 0 {
			from = t.ends[i-1]
		}
		to = t.ends[i]
	}
	cells = cells[:0]
	for p := from; p < to; p++ {
		c := Cell{Off: int64(t.offs[p]), Size: int64(t.bytes[p])}
		if t.kinds != nil {
			c.Part = int(t.kinds[p])
		}
		if t.sums != nil {
			c.Sum = t.sums[p]
		}
		cells = append(cells, c)
	}
	return key, label, cells
}

// Lacking returns how many samples have parts, but not one of this name, and the first of them.
func (t *Table) Lacking(name string) (samples, first int) {
	part := slices.Index(t.exts, name)
	if t.kinds == nil && part == 0 {
		return 0, 0 // all parts have this name
	}
	from := uint32(0)
	for i := range t.rows {
		to := uint32(i + 1)
		if t.ends != nil {
			to = t.ends[i]
		}
		has := from == to
		for p := from; p < to && !has; p++ {
			has = part == 0 && t.kinds == nil || t.kinds != nil && int(t.kinds[p]) == part
		}
		if from = to; has {
			continue
		}
		if samples == 0 {
			first = i
		}
		samples++
	}
	return samples, first
}

// use gives t the samples of other, which must not be used any longer.
func (t *Table) use(other *Table) {
	other.size = t.size
	*t = *other
}

// Unlabel sets all labels to 0.
func (t *Table) Unlabel() { t.label, t.Classes = nil, nil }
