package errcode_test

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"lcache/internal/errcode"
)

// TestTable: each name is used once, and numbers have no gap except before the numbers of Python, because rows are never removed.
func TestTable(t *testing.T) {
	names := map[string]bool{}
	number := 0
	for i, row := range errcode.Table {
		if number++; row.IsPython() {
			number = max(number, 50)
		}
		if want := errcode.Code(fmt.Sprintf("LC%03d", number)); row.Code != want {
			t.Errorf("row %d has code %s, want %s", i, row.Code, want)
		}
		if row.Name == "" || names[row.Name] || strings.ContainsAny(row.Name, " _") || !row.IsPython() && row.Name != strings.ToLower(row.Name) {
			t.Errorf("%s: name %q is missing, used twice, or not of lower-case words with hyphens", row.Code, row.Name)
		}
		names[row.Name] = true
		for _, text := range []string{row.Meaning, row.Cure} {
			if text == "" || strings.Contains(text, "\n") || strings.Contains(text, "|") {
				t.Errorf("%s: %q is not one line of a table", row.Code, text)
			}
		}
	}
}

// TestProtocolPage: docs/protocol.md has each row of the table.
func TestProtocolPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range errcode.Table {
		if !row.IsFrame() {
			continue
		}
		if line := fmt.Sprintf("| `%s` | %s | %s |\n", row.Code, row.Name, row.Meaning); !strings.Contains(string(page), line) {
			t.Errorf("docs/protocol.md lacks the line %s", line)
		}
	}
}

var update = flag.Bool("update", false, "write docs/errors.md again")

// page returns the text of docs/errors.md.
func page() string {
	var out strings.Builder
	out.WriteString(`# Error codes

Look up the code of an error here: its cause, and what to do. The text of an error may change in a release. Its code does not change, and no number is used twice.

| error | where its code is |
|---|---|
| an ` + "`lcache`" + ` command fails | in brackets at the end of the error's line, such as ` + "`[LC021]`" + `. With ` + "`--progress json`" + ` it is also in the line of JSON before the error |
| Python raises an ` + "`lcache.Error`" + ` | in brackets at the end of the text, and in the attribute ` + "`code`" + `. If the server or an ` + "`lcache`" + ` command caused the error, it is their code, otherwise the code of the class |

` + "`make docs`" + ` writes this page from the table in ` + "`internal/errcode`" + `.
`)
	section := func(title, column string, has func(row *errcode.Row) bool) {
		fmt.Fprintf(&out, "\n## %s\n\n| code | %s | cause | what to do |\n|---|---|---|---|\n", title, column)
		for _, row := range errcode.Table {
			if has(&row) {
				fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", row.Code, row.Name, row.Meaning, row.Cure)
			}
		}
	}
	section("Commands", "name", func(row *errcode.Row) bool { return !row.IsFrame() && !row.IsPython() })
	section("Answers of a server", "name", (*errcode.Row).IsFrame)
	section("Exceptions of Python", "class", (*errcode.Row).IsPython)
	return out.String()
}

// TestErrorsPage: docs/errors.md has the table.
func TestErrorsPage(t *testing.T) {
	const path = "../../docs/errors.md"
	if *update {
		if err := os.WriteFile(path, []byte(page()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != page() {
		t.Errorf("docs/errors.md is not the table: run make docs (%v)", err)
	}
}

// TestOf: the innermost error with a code decides, through any wrapping.
func TestOf(t *testing.T) {
	inner := errcode.New(errcode.NotACache, "not a cache")
	for _, c := range []struct {
		err  error
		want errcode.Code
	}{
		{inner, errcode.NotACache},
		{fmt.Errorf("open: %w", inner), errcode.NotACache},
		{errcode.Errorf(errcode.InUse, "open: %w", inner), errcode.NotACache},
		{errcode.Errorf(errcode.InUse, "open: %w", fs.ErrNotExist), errcode.InUse},
		{errors.Join(errors.New("plain"), inner), errcode.NotACache},
		{errors.New("plain"), ""},
		{nil, ""},
	} {
		if got, ok := errcode.Of(c.err); got != c.want || ok != (c.want != "") {
			t.Errorf("%v: %s, %v; want %s", c.err, got, ok, c.want)
		}
	}
	if !errors.Is(fmt.Errorf("open: %w", inner), inner) || !errors.Is(errcode.Errorf(errcode.InUse, "open: %w", fs.ErrNotExist), fs.ErrNotExist) {
		t.Error("an error with a code can't be compared")
	}
}
