package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"lcache/internal/testenv"
)

const glossary = "docs/glossary.md"

// termsOf are the words that a page's tables explain: the bold ones in the first column.
func termsOf(page string) (terms []string) {
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "| **") {
			continue
		}
		first, _, _ := strings.Cut(line[2:], "|")
		for _, m := range regexp.MustCompile(`\*\*([^*]+)\*\*`).FindAllStringSubmatch(first, -1) {
			terms = append(terms, m[1])
		}
	}
	return terms
}

// TestGlossaryLinks: a page that a row names as one where its terms are seen has them.
func TestGlossaryLinks(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("../..", glossary))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		for _, m := range regexp.MustCompile(`\]\(([\w-]+\.md)`).FindAllStringSubmatch(line, -1) {
			text, err := os.ReadFile(filepath.Join("../../docs", m[1]))
			if err != nil {
				t.Errorf("%s: %v", glossary, err)
			}
			for _, term := range termsOf(line) {
				if !strings.Contains(strings.ToLower(string(text)), strings.ToLower(term)) {
					t.Errorf("%s: %q is said to be seen in %s, which does not have it", glossary, term, m[1])
				}
			}
		}
	}
}

// TestGlossary: each term is explained once, and is used on another page or in the code.
func TestGlossary(t *testing.T) {
	testenv.WithoutRace(t)
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.ToLower(string(text))
	}
	var text strings.Builder
	for _, page := range pages(t) {
		if page != glossary {
			text.WriteString(read(filepath.Join("../..", page)))
		}
	}
	for _, suffix := range []string{".go", ".py"} {
		walk(t, suffix, func(path string) { text.WriteString(read(path)) })
	}
	used := strings.Join(strings.Fields(strings.NewReplacer("_", " ", "//", " ").Replace(text.String())), " ")

	terms := termsOf(read(filepath.Join("../..", glossary)))
	if len(terms) < 60 {
		t.Fatalf("%s explains %d terms: its tables are not found", glossary, len(terms))
	}
	seen := make(map[string]bool)
	for _, term := range terms {
		if seen[term] {
			t.Errorf("%s explains %q twice", glossary, term)
		}
		seen[term] = true
		if !regexp.MustCompile(`\b` + regexp.QuoteMeta(strings.Trim(term, "`"))).MatchString(used) {
			t.Errorf("%s explains %q, which no other page and no code uses", glossary, term)
		}
	}
}
