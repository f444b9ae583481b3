package records

import (
	"context"
	"fmt"
	"strings"
)

// readParquet reads an index that is a Parquet file.
func (p *rangeParser) readParquet(ctx context.Context, o Object) error {
	m, err := readParquetMeta(ctx, o)
	if err != nil {
		return err
	}
	var names []string
	var leaves []int // of each column: its first leaf
	for i, l := range m.leaves {
		if i == 0 || l.path[0] != m.leaves[i-1].path[0] {
			names, leaves = append(names, l.path[0]), append(leaves, i)
		}
	}
	chosen, err := indexed(names)
	if err != nil {
		return err
	}
	columns, values := make([]indexColumn, len(chosen)), make([]parquetDecoder, len(chosen))
	piece := max(int64(o.Piece()/len(chosen)), 64<<10)
	for i, at := range chosen {
		l := m.leaves[leaves[at]]
		columns[i] = indexColumn{name: names[at], text: l.kind == parquetBytes, signed: !l.unsigned}
		if err := columns[i].check(l.notIndexed()); err != nil {
			return err
		}
		if why := m.unknownCodec(leaves[at]); why != "" {
			return fmt.Errorf("column %s: %s", names[at], why)
		}
		values[i] = parquetDecoder{pages: parquetPages{in: objectPieces{ctx: ctx, o: o, piece: piece}}, leaf: l, name: names[at]}
	}
	for _, g := range m.groups {
		for i, at := range chosen {
			values[i].begin(g.columns[leaves[at]])
		}
		for range g.rows {
			if err := ctx.Err(); err != nil {
				return err
			}
			var row rangeRow
			for i := range values {
				b, null, err := values[i].next()
				if err == nil {
					err = columns[i].set(&row, b, null)
				}
				if err != nil {
					return fmt.Errorf("row %d: %w", p.line, err)
				}
			}
			if err := p.binaryRow(row); err != nil {
				return err
			}
		}
	}
	return nil
}

// notIndexed describes the values of a column that an index can't have; "": bytes or integers, which it can.
func (l parquetLeaf) notIndexed() string {
	switch {
	case l.reps > 0:
		return "lists"
	case len(l.path) > 1:
		return "fields: " + plain(strings.Join(l.path[1:], "."))
	case l.kind == parquetBytes && !l.decimal, (l.kind == parquetInt32 || l.kind == parquetInt64) && l.wide > 0:
		return ""
	}
	return "values of another type"
}
