package source_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"lcache/source"
)

func listLabelled(t *testing.T, tr *tree, csv string) (classes []string, got string, err error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "labels.csv")
	if err := os.WriteFile(path, []byte(csv), 0o600); err != nil {
		t.Fatal(err)
	}
	classes, entries, err := tr.open(t, source.Options{Labels: path}).List(t.Context(), nil)
	return classes, names(entries), err
}

func TestLabels(t *testing.T) {
	tr := newTree(t, files("b/1", "a/x,y", "a/label", "a/\xff\n"))
	const order = "a/label=%d a/x,y=%d a/\xff\n=%d b/1=%d"
	tests := []struct {
		name, csv string
		classes   []string
		labels    [4]any
	}{
		{"numbers", "b/1,7\na/label,-2147483648\n\"a/x,y\",2147483647\n\"a/\xff\n\", 0\n", nil, [4]any{-1 << 31, 1<<31 - 1, 0, 7}},
		{"text", "b/1,é\na/label,zebra\n\"a/x,y\",Z\n\"a/\xff\n\",zebra\n", []string{"Z", "zebra", "é"}, [4]any{1, 0, 1, 2}},
		{"header", "name,label\nb/1,1\na/label,2\n\"a/x,y\",3\n\"a/\xff\n\",4\n", nil, [4]any{2, 3, 4, 1}},
		{"another header, mark, CRLF", "\ufefffile, Class\r\nb/1,1\r\na/label,2\r\n\"a/x,y\",3\r\n\"a/\xff\n\",4\r\n", nil, [4]any{2, 3, 4, 1}},
		{"no header though it looks like one", "a/label,label\nb/1,x\n\"a/x,y\",y\n\"a/\xff\n\",z\n", []string{"label", "x", "y", "z"}, [4]any{0, 2, 3, 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			classes, got, err := listLabelled(t, tr, tt.csv)
			if want := fmt.Sprintf(order, tt.labels[:]...); err != nil || got != want || !reflect.DeepEqual(classes, tt.classes) {
				t.Errorf("%v\n got %q, classes %q\nwant %q, classes %q", err, got, classes, want, tt.classes)
			}
		})
	}
}

// TestLabelsErrors: each error names the line and says what to do.
func TestLabelsErrors(t *testing.T) {
	tr := newTree(t, files("a/1", "a/2", "a/3", "b/1", "b/2"))
	const all = "a/1,1\na/2,1\na/3,1\nb/1,1\nb/2,1\n"
	tests := []struct{ csv, want string }{
		{all + "a/2,1\n", `line 6: sample "a/2" has a label in line 2 already`},
		{"a/1,1\nc/1,1\n", `line 2: the source has no sample "c/1"`},
		{"nothing,7\n" + all, `line 1: the source has no sample "nothing"`},
		{"a/1,1\n", `4 of 5 samples have no label: "a/2", "a/3", "b/1", …: add`},
		{strings.Replace(all, "b/1,1\n", "", 1), `1 of 5 samples have no label: "b/1": add`},
		{"", `5 of 5 samples have no label`},
		{"a/1,1\n\na/2,1,2\n", `line 3: 3 fields: want name,label`},
		{"a/1\n", `line 1: 1 fields`},
		{"a/1,\n", `line 1: sample "a/1" has an empty label`},
		{"a/1,1\na/2,x\n", `line 2: label "x", but earlier labels are numbers`},
		{"a/1,x\na/2,1\n", `line 2: label "1", but earlier labels are text`},
		{"a/1,2147483648\n", `line 1: label "2147483648" does not fit`},
		{"a/1,99999999999999999999\n", `does not fit`},
		{"a/1,1\n\"a/2,1\n", `line 2: extraneous or missing " in quoted-field`},
	}
	for _, tt := range tests {
		if _, _, err := listLabelled(t, tr, tt.csv); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q:\n got %v\nwant …%s", tt.csv, err, tt.want)
		}
	}
	s := tr.open(t, source.Options{Labels: "/nothing/there.csv"})
	if _, _, err := s.List(t.Context(), nil); err == nil || !strings.Contains(err.Error(), `"/nothing/there.csv": no such file`) {
		t.Errorf("no file: %v", err)
	}
}
