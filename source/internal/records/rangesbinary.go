package records

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// An index may also be a Parquet or an Arrow file with the columns of a text index. Its values are decoded, whatever their compression and encoding.

// isParquetIndex and isArrowIndex report the kind of a file by its first bytes. No text index begins with these bytes.
func isParquetIndex(begin string) bool {
	return strings.HasPrefix(begin, "PAR1") || strings.HasPrefix(begin, "PARE")
}

func isArrowIndex(begin string) bool {
	return strings.HasPrefix(begin, arrowMagic) || strings.HasPrefix(begin, "FEA1") || strings.HasPrefix(begin, "\xff\xff\xff\xff")
}

// readFile reads a Parquet or Arrow file.
func (p *rangeParser) readFile(ctx context.Context, files Files, name string, parquet bool) error {
	o, err := files.Open(ctx, name)
	if err != nil {
		return err
	}
	defer o.Close()
	p.mostRows, p.mostNames = 8*o.Size()+1<<20, 64<<20+256*o.Size()
	if parquet {
		err = p.readParquet(ctx, o)
	} else {
		err = p.readArrow(ctx, o)
	}
	if err == nil {
		err = p.flush()
	}
	return err
}

// indexed returns the columns of a file that belong to an index, as positions in names. pandas writes the numbers of rows as a column of its own.
func indexed(names []string) (at []int, err error) {
	var columns []string
	for i, name := range names {
		if !strings.HasPrefix(name, "__index_level_") {
			columns, at = append(columns, name), append(at, i)
		}
	}
	return at, checkIndexColumns(columns, "")
}

// indexColumn is a column of a Parquet or Arrow file.
type indexColumn struct {
	name   string
	text   bool // its values are bytes, otherwise integers
	signed bool
}

// check returns an error for a column with values of the wrong kind. what describes the kind; "": bytes or integers.
func (c indexColumn) check(what string) error {
	texts := slices.Contains([]string{"shard", "part", "name"}, c.name)
	switch {
	case what != "" && texts, !texts && c.name != "xxh3" && (c.text || what != ""):
		want := "integers"
		if texts {
			want = "text"
		}
		if what == "" {
			what = "text"
		}
		return fmt.Errorf("column %s has %s, want %s", c.name, what, want)
	case what != "":
		return fmt.Errorf("column %s has %s, want uint64, or text of 16 hexadecimal digits", c.name, what)
	case texts && !c.text:
		return fmt.Errorf("column %s has integers, want text", c.name)
	}
	return nil
}

// set sets the value of a row from its bytes, little-endian.
func (c indexColumn) set(r *rangeRow, b []byte, null bool) error {
	switch {
	case null && c.name == "xxh3":
		return nil
	case null:
		return fmt.Errorf("its %s is null", c.name)
	case c.text:
		return r.set(c.name, b)
	}
	var wide [8]byte
	copy(wide[:], b)
	u := binary.LittleEndian.Uint64(wide[:])
	if unused := 64 - 8*len(b); c.signed && unused > 0 {
		u = uint64(int64(u) << unused >> unused)
	}
	return r.setInteger(c.name, u, c.signed && int64(u) < 0)
}

// binaryRow adds the next row of a Parquet or Arrow file. The names that it keeps are bounded by the size of the file: few bytes that are
// compressed, or in a dictionary, may stand for any number of names.
func (p *rangeParser) binaryRow(row rangeRow) error {
	if p.line++; int64(p.line) > p.mostRows {
		return fmt.Errorf("it has more than %d rows, which is impossible for its size: write it again", p.mostRows)
	}
	if p.mostNames -= int64(len(row.name)); p.mostNames < 0 {
		return fmt.Errorf("row %d: the names up to here are much larger than the file: shorten them, or write the index as a text", p.line-1)
	}
	if err := p.add(row); err != nil {
		return fmt.Errorf("row %d: %w", p.line-1, err)
	}
	return nil
}
