package records

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
)

// parquet:PATTERN serves the rows of Parquet files whose values are not compressed, as datasets of Hugging Face writes images, audio and video
// since version 4.6. A value is then one range of the file. The footer and the headers of pages are read, and the length in front of each value.
// With --stream, the values of all columns of bytes and of lists of numbers are decoded, whatever their compression and encoding.

// parquet is the format of parquet:PATTERN.
type parquet struct {
	PatternShards
	set  Settings
	same sameColumns
}

func newParquet(s Settings) (Format, error) { return &parquet{set: s}, nil }

// parquetFile is a shard that is listed or decoded.
type parquetFile struct {
	*parquetMeta
	chosen  []leaf
	numbers []int // of the chosen columns in the schema
	parts   []int
	labels  *parquetInts // nil: there are none
	labelAt int
	pieces  func() objectPieces
}

// open reads the footer of a shard, and chooses its columns.
func (p *parquet) open(ctx context.Context, name string, o Object, t *Table, decode bool) (*parquetFile, error) {
	m, err := readParquetMeta(ctx, o)
	if err != nil {
		return nil, err
	}
	leaves, at := m.candidates(decode)
	f := &parquetFile{parquetMeta: m}
	if f.chosen, err = chooseLeaves(leaves, p.set, m.features); err != nil {
		return nil, err
	}
	label, err := chooseLabel(p.set, m.features, m.integers())
	if err != nil {
		return nil, err
	}
	if err := p.same.check(name, f.chosen, label); err != nil {
		return nil, err
	}
	if len(p.set.Columns) == 0 {
		for _, l := range leaves {
			if l.whyNot != "" {
				t.Left = append(t.Left, fmt.Sprintf("%s (%s)", plain(l.name), l.whyNot))
			}
		}
	}
	f.pieces = func() objectPieces {
		return objectPieces{ctx: ctx, o: o, piece: max(int64(o.Piece()/(len(f.chosen)+1)), 64<<10)}
	}
	for _, l := range f.chosen {
		part, err := t.Part(l.name)
		if err != nil {
			return nil, err
		}
		f.numbers, f.parts = append(f.numbers, at[l.at]), append(f.parts, part)
	}
	if label != "" {
		f.labelAt = slices.IndexFunc(m.leaves, func(l parquetLeaf) bool { return len(l.path) == 1 && l.path[0] == label })
		f.labels = &parquetInts{parquetDecoder{pages: parquetPages{in: f.pieces()}, leaf: m.leaves[f.labelAt], name: label}}
		t.Classes = m.features[label].Names
	}
	return f, nil
}

// label returns the label of the next row.
func (f *parquetFile) label(row int) (int32, error) {
	if f.labels == nil {
		return 0, nil
	}
	label, err := f.labels.next(row)
	if err != nil {
		return 0, fmt.Errorf("column %s: %w", clip(f.labels.name), err)
	}
	return label, nil
}

// Index implements [Format].
func (p *parquet) Index(ctx context.Context, _ Files, name string, o Object, t *Table) error {
	f, err := p.open(ctx, name, o, t, false)
	if err != nil {
		return err
	}
	columns := make([]parquetColumn, len(f.chosen))
	for i, l := range f.chosen {
		columns[i] = parquetColumn{pages: parquetPages{in: f.pieces()}, leaf: f.leaves[f.numbers[i]], name: l.name, part: f.parts[i]}
	}
	for _, g := range f.groups {
		for i := range columns {
			c := &columns[i]
			c.rows, c.words = 0, nil
			c.pages.begin(g.columns[f.numbers[i]])
		}
		if f.labels != nil {
			f.labels.begin(g.columns[f.labelAt])
		}
		if err := listGroup(ctx, g, columns, f, t); err != nil {
			return err
		}
	}
	return nil
}

// Decode implements [Decoder].
func (p *parquet) Decode(ctx context.Context, name string, o Object, t *Table, w io.Writer) error {
	f, err := p.open(ctx, name, o, t, true)
	if err != nil {
		return err
	}
	columns := make([]parquetDecoder, len(f.chosen))
	for i, l := range f.chosen {
		columns[i] = parquetDecoder{pages: parquetPages{in: f.pieces()}, leaf: f.leaves[f.numbers[i]], name: l.name, part: f.parts[i]}
	}
	d := decoding{t: t, w: w}
	for _, g := range f.groups {
		for i := range columns {
			columns[i].begin(g.columns[f.numbers[i]])
		}
		if f.labels != nil {
			f.labels.begin(g.columns[f.labelAt])
		}
		for range g.rows {
			if err := ctx.Err(); err != nil {
				return err
			}
			for i := range columns {
				c := &columns[i]
				b, null, err := c.next()
				if err != nil {
					return fmt.Errorf("column %s: row %d: %w", clip(c.name), t.Len(), err)
				}
				if !null {
					d.part(c.part, b)
				}
			}
			label, err := f.label(t.Len())
			if err != nil {
				return err
			}
			if err := d.end(label); err != nil {
				return err
			}
		}
	}
	return nil
}

// listGroup lists the rows of a row group.
func listGroup(ctx context.Context, g parquetGroup, columns []parquetColumn, f *parquetFile, t *Table) error {
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
			cells := room[:0]
			for k := range columns {
				if c := &columns[k]; !c.null[i] {
					cells = append(cells, Cell{Part: c.part, Off: c.off[i], Size: c.size[i]})
				}
			}
			label, err := f.label(t.Len())
			if err != nil {
				return err
			}
			if err := t.Add("", label, cells...); err != nil {
				return err
			}
		}
		left -= int64(n)
	}
	return nil
}

// candidates returns the columns that may be parts, and the number of each in the schema. decode: their values are decoded.
func (m *parquetMeta) candidates(decode bool) (all []leaf, at []int) {
	for i, l := range m.leaves {
		name := l.path
		if n := len(name); n > 1 && name[n-1] == "bytes" { // of an Image, Audio or Video feature
			name = name[:n-1]
		}
		one := leaf{name: strings.Join(name, "."), column: l.path[0], kind: l.typeName(), binary: !l.text, at: len(at)}
		switch {
		case l.reps > 0:
			one.name, one.binary = strings.Join(l.path[:max(1, l.at)], "."), false
			numbers := l.reps == 1 && !l.joint && l.wide > 0 && len(l.path)-l.at <= 2
			if n := len(all); !numbers && n > 0 && m.leaves[i-1].reps > 0 && all[n-1].name == one.name {
				continue // another field of the same lists
			}
			if one.whyNot = m.unknownCodec(i); !numbers {
				one.whyNot = "it has lists of something else than numbers"
			} else if !decode {
				one.whyNot = "its values are lists: give --stream to decode it, or write Arrow files (save_to_disk), which have them as ranges"
			}
		case l.kind != parquetBytes && (l.kind != parquetFixedBytes || l.decimal || l.width == 0):
			continue
		case decode:
			one.whyNot = m.unknownCodec(i)
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
			return fmt.Sprintf("it is compressed by %s: give --stream to decode it once, front to back, or write it with compression NONE, as datasets 4.6 and later write images", codecName(codec))
		}
	}
	return ""
}

// unknownCodec returns why the values of a column can't be decoded; "": they can.
func (m *parquetMeta) unknownCodec(column int) string {
	for _, g := range m.groups {
		if name := codecName(g.columns[column].codec); !slices.Contains([]string{"UNCOMPRESSED", "SNAPPY", "GZIP", "BROTLI", "ZSTD", "LZ4_RAW"}, name) {
			return fmt.Sprintf("it is compressed by %s, which lcache does not know: write it with another compression", name)
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
