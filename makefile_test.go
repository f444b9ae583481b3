package lcache_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// listOf is the words of a variable of the Makefile.
func listOf(t *testing.T, pattern string) []string {
	t.Helper()
	text, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(pattern).FindStringSubmatch(strings.ReplaceAll(string(text), "\\\n", " "))
	if found == nil {
		t.Fatalf("the Makefile has no %s", pattern)
	}
	return strings.Fields(found[1])
}

// testFiles calls f with every test file of the module.
func testFiles(t *testing.T, f func(folder, text string)) {
	t.Helper()
	for _, p := range packages(t) {
		files, err := filepath.Glob(filepath.Join(p.Dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		name, _ := local(p.ImportPath)
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			f(name, string(text))
		}
	}
}

// TestMakefileIOPackages: a package whose tests choose their I/O by environment runs with pread and buffered files, too.
func TestMakefileIOPackages(t *testing.T) {
	listed := map[string]bool{}
	for _, name := range listOf(t, `\nIO_PACKAGES := .*\$\(wildcard ([^)]*)\)`) {
		listed[name] = true
		if _, err := os.Stat(name); err != nil {
			t.Errorf("IO_PACKAGES has %s: %v", name, err)
		}
	}
	testFiles(t, func(folder, text string) {
		if top, _, _ := strings.Cut(folder, "/"); strings.Contains(text, `os.Getenv("LCACHE_IO")`) && !listed[top] {
			t.Errorf("IO_PACKAGES lacks %s", top)
			listed[top] = true
		}
	})
}

// TestMakefileLongTests: each test that make check leaves out is there. One that got another name would be run again.
func TestMakefileLongTests(t *testing.T) {
	there := map[string]bool{}
	name := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	testFiles(t, func(_, text string) {
		for _, found := range name.FindAllStringSubmatch(text, -1) {
			there[found[1]] = true
		}
	})
	for _, test := range listOf(t, `\nLONG_TESTS := ([^\n]*)`) {
		if !there[test] {
			t.Errorf("LONG_TESTS has %s, which is no test", test)
		}
	}
}
