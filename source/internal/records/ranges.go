package records

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// ranges:INDEX names each sample by an index file. It is a Parquet or Arrow file (rangesbinary.go), or a text with one range a line, its columns separated by tabs. The first line has the names of
// the columns, in any order:
//
//	shard   path of the file, relative to the index's folder
//	offset  of the first byte
//	length  in bytes
//	part    the name of a part. Adjacent lines of one shard and one name are the parts of a sample
//	label   an integer of 32 bits
//	name    the sample's name; without it, the shard's name and the number of the row
//	xxh3    xxh3-64 of the bytes of the line's range, 16 hexadecimal digits; empty: not known
//
// The first three must be there. Lines of one shard are adjacent, so that sample i is line i. There are no quotes and no escapes: a name may have
// any byte except a tab and the end of a line.

// rangeColumns are the possible columns of an index.
var rangeColumns = []string{"shard", "offset", "length", "part", "label", "name", "xxh3"}

// defaultPart is the name of the part of a sample that has no name for it.
const defaultPart = "data"

// mostLine is the maximum length of a line of an index: two names of 64 KiB, and numbers.
const mostLine = 256 << 10

// emptySum is the xxh3-64 of no bytes.
const emptySum = 0x2d06800538d394c2

// ranges is the format of ranges:INDEX.
type ranges struct {
	tables map[string]*Table
}

func newRanges(Settings) (Format, error) { return &ranges{tables: map[string]*Table{}}, nil }

// Shards reads the index.
func (r *ranges) Shards(ctx context.Context, files Files, pattern string) ([]string, error) {
	in, _, err := files.Stream(ctx, pattern)
	if err != nil {
		return nil, fmt.Errorf("index %s: %w", clip(pattern), err)
	}
	defer in.Close()
	p := rangeParser{folder: path.Dir(pattern), tables: r.tables}
	text := bufio.NewReaderSize(in, mostLine)
	begin, err := text.Peek(len(arrowMagic))
	switch magic := string(begin); {
	case err != nil && err != io.EOF:
	case isParquetIndex(magic) || isArrowIndex(magic):
		err = p.readFile(ctx, files, pattern, isParquetIndex(magic))
	default:
		err = p.read(text)
	}
	if err != nil {
		return nil, fmt.Errorf("index %s: %w", clip(pattern), err)
	}
	return p.shards, nil
}

// Index copies the rows of a shard, and checks that they are in it.
func (r *ranges) Index(_ context.Context, _ Files, name string, _ Object, t *Table) error {
	found := r.tables[name]
	if found.Len() == 0 {
		return errors.New("the index has no row of it")
	}
	if t.size >= 0 && found.end > t.size {
		return fmt.Errorf("the index has a range that ends at byte %d, but the file has %d: it is truncated, or the index is of another file", found.end, t.size)
	}
	t.use(found)
	return nil
}

// IndexStream is Index, because the index is in another file.
func (r *ranges) IndexStream(ctx context.Context, name string, _ io.Reader, t *Table) error {
	return r.Index(ctx, nil, name, nil, t)
}

// rangeParser parses an index.
type rangeParser struct {
	folder string // of the index, in which shards are
	tables map[string]*Table
	shards []string

	columns []string
	line    int // or row

	mostRows, mostNames int64 // of a binary index: rows, and bytes of names that are left

	table *Table // of the last line
	shard string
	// of the sample that the last lines have:
	name  string
	label int32
	cells []Cell
}

// read reads an index that is a text. from has room for a line.
func (p *rangeParser) read(from *bufio.Reader) error {
	for {
		line, err := from.ReadSlice('\n')
		if err != nil && err != io.EOF {
			if errors.Is(err, bufio.ErrBufferFull) {
				return fmt.Errorf("line %d has more than %d bytes: it is not an index of ranges", p.line+1, mostLine)
			}
			return err
		}
		if len(line) > 0 {
			p.line++
			if e := p.take(bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))); e != nil {
				return fmt.Errorf("line %d: %w", p.line, e)
			}
		}
		if err == io.EOF {
			break
		}
	}
	if p.line == 0 {
		return fmt.Errorf("it is empty: its first line must have the names of columns, %s", strings.Join(rangeColumns[:3], ", "))
	}
	if err := p.flush(); err != nil {
		return fmt.Errorf("line %d: %w", p.line, err)
	}
	return nil
}

// take takes a line.
func (p *rangeParser) take(line []byte) error {
	if p.columns == nil {
		return p.header(string(line))
	}
	var row rangeRow
	rest, more := line, true
	for _, column := range p.columns {
		if !more {
			return fmt.Errorf("it has fewer columns than the first line: %s", clip(string(line)))
		}
		var value []byte
		value, rest, more = bytes.Cut(rest, []byte("\t"))
		if err := row.set(column, value); err != nil {
			return err
		}
	}
	if more {
		return fmt.Errorf("it has more columns than the first line: %s", clip(string(line)))
	}
	return p.add(row)
}

func (p *rangeParser) header(line string) error {
	columns := strings.Split(strings.TrimPrefix(line, "\ufeff"), "\t")
	if err := checkIndexColumns(columns, ", separated by tabs"); err != nil {
		return err
	}
	p.columns = columns
	return nil
}

// checkIndexColumns returns an error unless an index may have these columns. how says how a file has them.
func checkIndexColumns(columns []string, how string) error {
	for i, c := range columns {
		if !slices.Contains(rangeColumns, c) {
			return fmt.Errorf("column %s is unknown: an index has the columns %s%s", clip(c), strings.Join(rangeColumns, ", "), how)
		}
		if slices.Contains(columns[:i], c) {
			return fmt.Errorf("column %s comes twice", c)
		}
	}
	for _, c := range rangeColumns[:3] {
		if !slices.Contains(columns, c) {
			return fmt.Errorf("it has no column %s: an index has the columns %s, and optionally %s%s", c, strings.Join(rangeColumns[:3], ", "), strings.Join(rangeColumns[3:], ", "), how)
		}
	}
	if slices.Contains(columns, "part") && !slices.Contains(columns, "name") {
		return errors.New("it has a column part but no column name, which says which lines are one sample")
	}
	return nil
}

// rangeRow is one line.
type rangeRow struct {
	shard, part, name []byte
	off, size         int64
	label             int32
	sum               uint64 // 0: not known
}

// set sets a column from a text.
func (r *rangeRow) set(column string, value []byte) (err error) {
	if len(value) == 0 && column != "part" && column != "xxh3" {
		return fmt.Errorf("its %s is empty", column)
	}
	switch column {
	case "shard":
		r.shard = value
	case "part":
		r.part = value
	case "name":
		r.name = value
	case "xxh3":
		if len(value) > 0 {
			r.sum, err = strconv.ParseUint(string(value), 16, 64)
		}
		if err != nil || len(value) != 0 && len(value) != 16 {
			return fmt.Errorf("its xxh3 is %s, want 16 hexadecimal digits", clip(string(value)))
		}
	default:
		n, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil {
			least, most := limits(column)
			return fmt.Errorf("its %s is %s, want an integer from %d to %d", column, clip(string(value)), least, most)
		}
		return r.setInteger(column, uint64(n), n < 0)
	}
	return nil
}

// setInteger sets a column from an integer, whose bits are in n.
func (r *rangeRow) setInteger(column string, n uint64, negative bool) error {
	least, most := limits(column)
	v := int64(n)
	switch inside := negative == (v < 0) && v >= least && v <= most; {
	case column == "xxh3" && !negative:
		r.sum = n
	case column == "xxh3":
		return fmt.Errorf("its xxh3 is %d, want an integer without a sign", v)
	case !inside && negative:
		return fmt.Errorf("its %s is %d, want an integer from %d to %d", column, v, least, most)
	case !inside:
		return fmt.Errorf("its %s is %d, want an integer from %d to %d", column, n, least, most)
	case column == "offset":
		r.off = v
	case column == "length":
		r.size = v
	case column == "label":
		r.label = int32(v)
	}
	return nil
}

// limits returns the limits of the integers of a column.
func limits(column string) (least, most int64) {
	switch column {
	case "length":
		return 0, math.MaxUint32
	case "label":
		return math.MinInt32, math.MaxInt32
	}
	return 0, math.MaxInt64
}

// add adds a line to the sample before it, or begins a new one.
func (p *rangeParser) add(row rangeRow) error {
	newShard := p.table == nil || string(row.shard) != p.shard
	if newShard || row.name == nil || string(row.name) != p.name {
		if err := p.flush(); err != nil {
			return err
		}
		if newShard {
			if err := p.begin(string(row.shard)); err != nil {
				return err
			}
		}
		p.name, p.label = string(row.name), row.label
	} else if row.part == nil {
		return fmt.Errorf("sample %s comes twice: give each sample another name", clip(p.name))
	} else if row.label != p.label {
		return fmt.Errorf("sample %s has the labels %d and %d", clip(p.name), p.label, row.label)
	}
	if row.size == 0 && row.sum != 0 && row.sum != emptySum {
		return fmt.Errorf("its xxh3 is %016x, but that of a range without bytes is %016x: correct the index", row.sum, uint64(emptySum))
	}
	part := defaultPart
	if row.part != nil {
		part = string(row.part)
	}
	k, err := p.table.Part(part)
	if err != nil {
		return err
	}
	p.cells = append(p.cells, Cell{Part: k, Off: row.off, Size: row.size, Sum: row.sum})
	if len(p.cells) > MostParts {
		return p.flush() // reports it
	}
	return nil
}

// begin begins the lines of a shard.
func (p *rangeParser) begin(shard string) error {
	name := path.Join(p.folder, shard)
	switch {
	case strings.HasPrefix(shard, "/") || strings.Contains(shard, "://"):
		return fmt.Errorf("shard %s is not relative: put the index into a folder that has all shards, and name them relative to it, or give the rows to lcache.open(ranges=…) in Python", clip(shard))
	case p.tables[name] != nil:
		return fmt.Errorf("shard %s comes again after another one: sort the lines by shard", clip(shard))
	}
	p.shard, p.table = strings.Clone(shard), NewTable(-1)
	p.table.OwnFirst = true
	p.tables[name] = p.table
	p.shards = append(p.shards, name)
	return nil
}

// flush adds the sample that the last lines have.
func (p *rangeParser) flush() error {
	if len(p.cells) == 0 {
		return nil
	}
	err := p.table.Add(p.name, p.label, p.cells...)
	p.cells = p.cells[:0]
	return err
}
