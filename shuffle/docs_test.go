package shuffle

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the tables of docs/recipes.md")

const recipesDoc = "../docs/recipes.md"

// The tables of docs/recipes.md match the registry, and every recipe has a table. go test -run Docs -update
// writes them.
func TestDocs(t *testing.T) {
	data, err := os.ReadFile(recipesDoc)
	if err != nil {
		t.Fatal(err)
	}
	tables := map[string]string{"unpredictable": unpredictableTable()}
	for _, r := range Recipes() {
		tables[r.Name] = paramTable(r)
	}
	want := data
	for name, table := range tables {
		begin := []byte("<!-- " + name + " -->\n")
		end := []byte("<!-- end -->\n")
		at := bytes.Index(want, begin)
		if at < 0 {
			t.Errorf("%s has no place for the table of %s: add the lines <!-- %s --> and <!-- end -->", recipesDoc, name, name)
			continue
		}
		at += len(begin)
		until := bytes.Index(want[at:], end)
		if until < 0 {
			t.Fatalf("%s: the table of %s has no end", recipesDoc, name)
		}
		want = slices.Concat(want[:at], []byte(table), want[at+until:])
	}
	for line := range strings.Lines(string(data)) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "<!-- ")
		name = strings.TrimSuffix(name, " -->")
		if ok && name != "end" && tables[name] == "" {
			t.Errorf("%s has a table of the unknown recipe %s", recipesDoc, name)
		}
	}
	if bytes.Equal(data, want) {
		return
	}
	if !*update {
		t.Fatalf("%s differs from the registry: go test ./shuffle -run Docs -update", recipesDoc)
	}
	if err := os.WriteFile(recipesDoc, want, 0o644); err != nil {
		t.Fatal(err)
	}
}

func paramTable(r Recipe) string {
	var b strings.Builder
	fmt.Fprintf(&b, "**`%s`**: %s Epoch: %s.", r.Name, cell(r.About), cell(r.Epoch))
	if order := r.Order(); order != "" {
		fmt.Fprintf(&b, " Global order: %s.", order)
	}
	b.WriteString("\n\n")
	b.WriteString("| parameter | given as | type | if left out | meaning |\n|---|---|---|---|---|\n")
	for _, p := range r.Params {
		given := strings.TrimPrefix(p.Given(), "default ")
		if given == "optional" {
			given = "–"
		}
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s | %s |\n", p.Name, p.Flag(), p.Type, cell(given), cell(p.Help()))
	}
	return b.String()
}

func unpredictableTable() string {
	var b strings.Builder
	b.WriteString("| asked for as | why not |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(refused)) {
		fmt.Fprintf(&b, "| %s | %s |\n", name, cell(refused[name]))
	}
	b.WriteString("\nPush each epoch's indices as they are drawn, with `job.push_order(epoch, rank, indices)`.\n")
	return b.String()
}

// cell makes a text safe for a table.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "**", `\*\*`).Replace(s)
}
