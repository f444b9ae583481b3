package source_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"lcache/source/internal/records"
)

// TestKindsInPython: the Python client knows the kinds of record sources, because it makes their paths absolute.
func TestKindsInPython(t *testing.T) {
	b, err := os.ReadFile("../python/lcache/_client/schemes.py")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`"tar"`}
	for _, k := range records.Kinds {
		want = append(want, fmt.Sprintf("%q", k.Name))
	}
	flags := "RECORD_FLAGS = ("
	for _, f := range records.FlagTable {
		flags += fmt.Sprintf("%q, ", f.Name)
	}
	if line := strings.TrimSuffix(flags, ", ") + ")"; !strings.Contains(string(b), line) {
		t.Errorf("python/lcache/_client/schemes.py does not have\n%s", line)
	}
	if line := "KINDS = (" + strings.Join(want, ", ") + ")"; !strings.Contains(string(b), line) {
		t.Errorf("python/lcache/_client/schemes.py does not have\n%s", line)
	}
}
