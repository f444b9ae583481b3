package records

import (
	"fmt"
	"regexp"
	"testing"
)

// TestColumnTypes compares the types of columns with pyarrow's, which are their names. Types with the same bytes have one name.
func TestColumnTypes(t *testing.T) {
	same := map[string]string{"string": "binary", "large_binary": "binary", "large_string": "binary", "binary_view": "binary", "list<halffloat>": "list<float16>",
		"list<float>": "list<float32>", "list<double>": "list<float64>", "large_list<int16>": "list<int16>", "fixed_size_list<uint16>[2]": "list<uint16>",
		"list<date32[day]>": "list<date32>", "list<date64[ms]>": "list<date64>"}
	check := func(file string, all []leaf, least int) {
		if len(all) < least {
			t.Errorf("%s has %d columns", file, len(all))
		}
		for _, l := range all {
			want, ok := same[l.column]
			if !ok {
				want = l.column
			}
			if l.kind != want {
				t.Errorf("%s: %s is %s, want %s", file, l.column, l.kind, want)
			}
		}
	}
	r := &arrowReader{ctx: t.Context(), o: memoryFile(golden(t, "types.arrow")), t: NewTable(-1)}
	m, err := r.next()
	if err != nil {
		t.Fatal(err)
	}
	s, err := parseArrowSchema(&m.flat, m.header)
	if err != nil {
		t.Fatal(err)
	}
	all, _ := s.leaves()
	check("types.arrow", all, 25)
	p, err := readParquetMeta(t.Context(), memoryFile(golden(t, "types.parquet")))
	if err != nil {
		t.Fatal(err)
	}
	all, _ = p.candidates(true)
	check("types.parquet", all, 15)
}

// TestOtherTypes: shards whose columns have one name and other types are an error that names both.
func TestOtherTypes(t *testing.T) {
	ctx := t.Context()
	for _, c := range []struct {
		kind string
		f    Format
		list func(f Format, name string, file memoryFile) error
	}{
		{"arrow", newArrowWith(t, Settings{}), func(f Format, name string, file memoryFile) error {
			return f.Index(ctx, memory{}, name, file, NewTable(file.Size()))
		}},
		{"arrow", newArrowWith(t, Settings{}), func(f Format, name string, file memoryFile) error {
			return f.(Decoder).Decode(ctx, name, file, NewTable(-1), &limitedWriter{})
		}},
		{"parquet", newParquetWith(t, Settings{}), func(f Format, name string, file memoryFile) error {
			return f.(Decoder).Decode(ctx, name, file, NewTable(-1), &limitedWriter{})
		}},
	} {
		for i, bits := range []int{32, 32, 64} {
			err := c.list(c.f, fmt.Sprint("shard-", i), memoryFile(golden(t, fmt.Sprintf("list-int%d.%s", bits, c.kind))))
			want := `^its column ids has the type list<int64>, but that of "shard-0" has list<int32>: choose columns that have one type`
			if bits == 32 && err != nil || bits == 64 && (err == nil || !regexp.MustCompile(want).MatchString(err.Error())) {
				t.Errorf("%s: %v", c.kind, err)
			}
		}
	}
}
