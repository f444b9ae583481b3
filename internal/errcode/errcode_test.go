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

// TestTable: numbers have no gap, because no row is ever removed, and each name is used once.
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

Each error with which an ` + "`lcache`" + ` command ends has a code in brackets at the end of its line, and each error that a server sends has one, which Python shows as ` + "`lcache.Error.code`" + `. Texts may change in a release; a code keeps its meaning, and no number is used twice. With ` + "`--progress json`" + ` the code is also in the line of JSON before the error. This page is written from the table in ` + "`internal/errcode`" + ` by ` + "`make docs`" + `.
`)
	section := func(title string, frames bool) {
		fmt.Fprintf(&out, "\n## %s\n\n| code | name | cause | what to do |\n|---|---|---|---|\n", title)
		for _, row := range errcode.Table {
			if row.IsFrame() == frames {
				fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", row.Code, row.Name, row.Meaning, row.Cure)
			}
		}
	}
	section("Commands", false)
	section("Answers of a server", true)
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
