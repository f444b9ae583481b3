package records

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// parquet:PATTERN serves the rows of Parquet files whose values are not compressed, as datasets of Hugging Face writes images, audio and video
// since version 4.6. A value is then one range of the file. The footer and the headers of pages are read, and the length in front of each value.

// parquet is the format of parquet:PATTERN.
type parquet struct {
	PatternShards
	set  Settings
	same sameColumns
}

func newParquet(s Settings) (Format, error) { return &parquet{set: s}, nil }

// Index implements [Format].
func (p *parquet) Index(ctx context.Context, _ Files, name string, o Object, t *Table) error {
	m, err := readParquetMeta(ctx, o)
	if err != nil {
		return err
	}
	leaves, at := m.candidates()
	chosen, err := chooseLeaves(leaves, p.set, m.features)
	if err != nil {
		return err
	}
	label, err := chooseLabel(p.set, m.features, m.integers())
	if err != nil {
		return err
	}
	if err := p.same.check(name, chosen, label); err != nil {
		return err
	}
	if len(p.set.Columns) == 0 {
		for _, l := range leaves {
			if l.whyNot != "" {
				t.Left = append(t.Left, fmt.Sprintf("%s (%s)", plain(l.name), l.whyNot))
			}
		}
	}
	pieces := func() objectPieces {
		return objectPieces{ctx: ctx, o: o, piece: max(int64(o.Piece()/(len(chosen)+1)), 64<<10)}
	}
	columns, numbers := make([]parquetColumn, len(chosen)), make([]int, len(chosen))
	for i, l := range chosen {
		part, err := t.Part(l.name)
		if err != nil {
			return err
		}
		numbers[i] = at[l.at]
		columns[i] = parquetColumn{pages: parquetPages{in: pieces()}, leaf: m.leaves[at[l.at]], name: l.name, part: part}
	}
	var labels *parquetInts
	labelNumber := slices.IndexFunc(m.leaves, func(l parquetLeaf) bool { return len(l.path) == 1 && l.path[0] == label })
	if label != "" {
		labels = &parquetInts{pages: parquetPages{in: pieces()}, leaf: m.leaves[labelNumber], name: label}
		t.Classes = m.features[label].Names
	}
	for _, g := range m.groups {
		for i := range columns {
			c := &columns[i]
			c.rows, c.words = 0, nil
			c.pages.begin(g.columns[numbers[i]])
		}
		if labels != nil {
			labels.rows, labels.words = 0, nil
			labels.pages.begin(g.columns[labelNumber])
		}
		if err := listGroup(ctx, g, columns, labels, t); err != nil {
			return err
		}
	}
	return nil
}

// listGroup lists the rows of a row group.
func listGroup(ctx context.Context, g parquetGroup, columns []parquetColumn, labels *parquetInts, t *Table) error {
	var room [MostParts]Cell
	for left := g.rows; left > 0; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := int(min(left, arrowChunk))
		for i := range columns {
			if err := columns[i].fill(n); err != nil {
				return fmt.Errorf("column %s: %w", clip(columns[i].name), err)
			}
		}
		for i := range n {
			cells, label := room[:0], int32(0)
			for k := range columns {
				if c := &columns[k]; !c.null[i] {
					cells = append(cells, Cell{Part: c.part, Off: c.off[i], Size: c.size[i]})
				}
			}
			if labels != nil {
				var err error
				if label, err = labels.next(t.Len()); err != nil {
					return fmt.Errorf("column %s: %w", clip(labels.name), err)
				}
			}
			if err := t.Add("", label, cells...); err != nil {
				return err
			}
		}
		left -= int64(n)
	}
	return nil
}

// candidates returns the columns that may be parts, and the number of each in the schema.
func (m *parquetMeta) candidates() (all []leaf, at []int) {
	for i, l := range m.leaves {
		name := l.path
		if n := len(name); n > 1 && name[n-1] == "bytes" { // of an Image, Audio or Video feature
			name = name[:n-1]
		}
		one := leaf{name: strings.Join(name, "."), column: l.path[0], binary: !l.text, at: len(at)}
		switch {
		case l.reps > 0:
			one.name, one.binary, one.whyNot = l.path[0], false, "its values are lists: Arrow files (save_to_disk) have them as ranges"
		case l.kind != parquetBytes && (l.kind != parquetFixedBytes || l.decimal || l.width == 0):
			continue
		default:
			one.whyNot = m.packedBy(i)
		}
		all, at = append(all, one), append(at, i)
	}
	return all, at
}

// packedBy returns why the values of a column are not in the file as they are; "": they are.
func (m *parquetMeta) packedBy(column int) string {
	for _, g := range m.groups {
		if codec := g.columns[column].codec; codec != 0 {
			return fmt.Sprintf("it is compressed by %s: write it with compression NONE, as datasets 4.6 and later write images", codecName(codec))
		}
	}
	return ""
}

// integers returns the columns that can be labels.
func (m *parquetMeta) integers() (names []string) {
	for _, l := range m.leaves {
		if len(l.path) == 1 && l.reps == 0 && !l.decimal && (l.kind == parquetInt32 || l.kind == parquetInt64) {
			names = append(names, l.path[0])
		}
	}
	return names
}
