package errcode_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"lcache/internal/errcode"
)

// TestTable: numbers have no gap, since no row is ever removed, and each name is used once.
func TestTable(t *testing.T) {
	names := map[string]bool{}
	for i, row := range errcode.Table {
		if want := errcode.Code(fmt.Sprintf("LC%03d", i+1)); row.Code != want {
			t.Errorf("row %d has code %s, want %s", i, row.Code, want)
		}
		if row.Name == "" || names[row.Name] || row.Name != strings.ToLower(row.Name) || strings.ContainsAny(row.Name, " _") {
			t.Errorf("%s: name %q is missing, used twice, or not of lower-case words with hyphens", row.Code, row.Name)
		}
		names[row.Name] = true
		if row.Meaning == "" || strings.Contains(row.Meaning, "\n") {
			t.Errorf("%s: meaning %q is not one line", row.Code, row.Meaning)
		}
	}
}

// TestProtocolPage: docs/protocol.md has each row of the table as it is.
func TestProtocolPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range errcode.Table {
		if line := fmt.Sprintf("| `%s` | %s | %s |\n", row.Code, row.Name, row.Meaning); !strings.Contains(string(page), line) {
			t.Errorf("docs/protocol.md lacks the line %s", line)
		}
	}
}
