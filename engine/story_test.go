package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// storyField is a field of a story's state: a flag, or a name with a value.
type storyField struct {
	t     *testing.T
	d     *datadriven.TestData
	name  string
	value string
}

// storyFields are the fields of a story's paragraph.
func storyFields(t *testing.T, d *datadriven.TestData) (fields []storyField) {
	for _, text := range strings.Fields(d.Input) {
		name, value, _ := strings.Cut(text, "=")
		fields = append(fields, storyField{t, d, name, value})
	}
	return fields
}

// read reads values that are separated by a slash.
func (f storyField) read(to ...any) {
	f.t.Helper()
	parts := strings.Split(f.value, "/")
	if len(parts) != len(to) {
		f.d.Fatalf(f.t, "%s=%s: want %d values", f.name, f.value, len(to))
	}
	for i, part := range parts {
		if _, err := fmt.Sscan(part, to[i]); err != nil {
			f.d.Fatalf(f.t, "%s=%s: %v", f.name, f.value, err)
		}
	}
}

// int reads a number.
func (f storyField) int() (n int) {
	f.t.Helper()
	f.read(&n)
	return n
}

// list reads numbers that are separated by commas.
func (f storyField) list() (list []int) {
	f.t.Helper()
	for _, text := range strings.Split(f.value, ",") {
		list = append(list, storyField{f.t, f.d, f.name, text}.int())
	}
	return list
}

// float reads a number that may be a fraction.
func (f storyField) float() (x float64) {
	f.t.Helper()
	f.read(&x)
	return x
}

// unknown fails the test.
func (f storyField) unknown() {
	f.t.Helper()
	f.d.Fatalf(f.t, "unknown field %s", f.name)
}
