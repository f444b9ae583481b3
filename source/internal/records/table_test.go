package records

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// row is a sample as a test gives it to a table.
type row struct {
	key   string
	label int32
	cells []Cell
}

// TestTable: a table gives back what was added, whatever columns the first rows need.
func TestTable(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		tb := NewTable(1 << 40)
		parts := 1 + r.IntN(4)
		for i := range parts {
			if k, err := tb.Part(fmt.Sprint("p", i)); k != i || err != nil {
				t.Fatal(k, err)
			}
		}
		var want []row
		plain := r.IntN(30) // rows with one part, without label and key
		for i := range plain + r.IntN(30) {
			one := row{cells: []Cell{{Part: 0, Off: r.Int64N(1 << 30), Size: r.Int64N(1 << 20)}}}
			if i >= plain {
				one.label = r.Int32N(3)
				one.key = strings.Repeat("k", r.IntN(4))
				one.cells = nil
				for _, k := range r.Perm(parts)[:r.IntN(parts+1)] {
					one.cells = append(one.cells, Cell{Part: k, Off: r.Int64N(1 << 30), Size: r.Int64N(1 << 20)})
				}
			}
			if err := tb.Add(one.key, one.label, slices.Clone(one.cells)...); err != nil {
				t.Fatal(err)
			}
			slices.SortFunc(one.cells, func(a, b Cell) int { return a.Part - b.Part })
			want = append(want, one)
		}
		if tb.Len() != len(want) {
			t.Fatalf("seed %d: %d rows, want %d", seed, tb.Len(), len(want))
		}
		for i, w := range want {
			key, label, cells := tb.Row(i, nil)
			if got := (row{key, label, cells}); !reflect.DeepEqual(got, w) {
				t.Fatalf("seed %d, row %d: %+v, want %+v", seed, i, got, w)
			}
		}
	}
}

// TestTableRefuses: no row of a table leads out of its shard or is larger than a sample may be.
func TestTableRefuses(t *testing.T) {
	many := make([]Cell, 17)
	for i := range many {
		many[i] = Cell{Part: i}
	}
	for what, c := range map[string]struct {
		size  int64
		key   string
		cells []Cell
	}{
		"negative":         {100, "", []Cell{{Part: 0, Off: -1, Size: 5}}},
		"a negative size":  {100, "", []Cell{{Part: 0, Off: 1, Size: -5}}},
		"beyond the end":   {100, "", []Cell{{Part: 0, Off: 100, Size: 1}}},
		"an overflow":      {-1, "", []Cell{{Part: 0, Off: math.MaxInt64, Size: 1}}},
		"4 GiB":            {1 << 40, "", []Cell{{Part: 0, Off: 0, Size: 1 << 32}}},
		"4 GiB in all":     {1 << 40, "", []Cell{{Part: 0, Off: 0, Size: 1 << 31}, {Part: 1, Off: 0, Size: 1 << 31}}},
		"a part twice":     {100, "", []Cell{{Part: 1, Off: 0, Size: 1}, {Part: 0, Off: 3, Size: 1}, {Part: 1, Off: 4, Size: 1}}},
		"an unknown part":  {100, "", []Cell{{Part: 20, Off: 0, Size: 1}}},
		"too many parts":   {100, "", many},
		"a name too long":  {100, strings.Repeat("x", mostKey+1), []Cell{{Part: 0, Off: 0, Size: 1}}},
		"a negative part":  {100, "", []Cell{{Part: -1, Off: 0, Size: 1}}},
		"a huge one":       {-1, "", []Cell{{Part: 0, Off: 1, Size: math.MaxInt64}}},
		"at the very edge": {math.MaxInt64, "", []Cell{{Part: 0, Off: math.MaxInt64, Size: 1}}},
	} {
		tb := NewTable(c.size)
		for i := range 17 {
			if _, err := tb.Part(fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := tb.Add(c.key, 0, c.cells...); err == nil || tb.Len() != 0 {
			t.Errorf("%s: %v, %d rows", what, err, tb.Len())
		}
	}
	tb := NewTable(10)
	for i := range mostKinds + 1 {
		if _, err := tb.Part(fmt.Sprint(i)); (err == nil) != (i < mostKinds) {
			t.Fatalf("part %d: %v", i, err)
		}
	}
}
