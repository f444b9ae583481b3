package records

import (
	"fmt"
	"testing"
)

// TestChosenParts: a name of --columns means all parts of its column, unless these are too many. Then the name of a part means only this one.
func TestChosenParts(t *testing.T) {
	column := func(name string, fields int) (all []leaf) {
		all = append(all, leaf{name: name, column: name, binary: true})
		for i := range fields {
			all = append(all, leaf{name: fmt.Sprintf("%s.%d", name, i), column: name})
		}
		return all
	}
	for _, c := range []struct {
		fields, more int
		columns      []string
		want         string
	}{
		{2, 0, []string{"s"}, "s s.0 s.1"},
		{15, 0, []string{"s"}, "16 parts"},
		{16, 0, []string{"s"}, "s"},
		{16, 2, []string{"s", "s.3", "t"}, "s s.3 t"},
		{16, 0, nil, `18 of its columns can be parts, at most 16: choose some: --columns s,…`},
	} {
		all := append(column("s", c.fields), column("t", c.more)...)
		chosen, err := chooseLeaves(all, Settings{Columns: c.columns}, nil)
		got := ""
		for i, l := range chosen {
			if i > 0 {
				got += " "
			}
			got += l.name
		}
		if len(chosen) == 16 {
			got = "16 parts"
		}
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%d fields, --columns %q: %s, want %s", c.fields, c.columns, got, c.want)
		}
	}
}
