package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"lcache/internal/testenv"
)

func TestMisspeltVariables(t *testing.T) {
	root := newRootCommand(&globals{progress: "auto"})
	got := misspeltVariables(root, []string{"PATH=/bin", "LCACHE_MEMORY=1", "LCACHE_MEMROY=1GB", "LCACHE_BATCHSIZE=3", "LCACHE_SOCKET_MEMROY=x", "LCACHE_=", "LCACHE_HOME=/opt", "LCACHE_LINGR=3",
		"XLCACHE_MEMROY=1", "LCACHE_direct=1", "LCACHE_MEMO\x1bRY=1"})
	want := []string{
		"LCACHE_MEMROY is not known: did you mean LCACHE_MEMORY?",
		"LCACHE_BATCHSIZE is not known: did you mean LCACHE_BATCH_SIZE?",
		"LCACHE_LINGR is not known: did you mean LCACHE_LINGER?",
		"LCACHE_direct is not known: did you mean LCACHE_DIRECT?",
		`LCACHE_MEMO\x1bRY is not known: did you mean LCACHE_MEMORY?`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestNoVariableIsTaken: no variable that the project itself names, its tests' knobs among them, is taken for another one.
func TestNoVariableIsTaken(t *testing.T) {
	testenv.WithoutRace(t)
	root := newRootCommand(&globals{progress: "auto"})
	named, deliberate := regexp.MustCompile(`\bLCACHE_[A-Z_]*[A-Z]\b`), []string{"LCACHE_MEMROY", "LCACHE_BATCHSIZE", "LCACHE_LINGR"}
	found := 0
	look := func(path string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range named.FindAllString(string(text), -1) {
			found++
			if lines := misspeltVariables(root, []string{name + "=1"}); len(lines) > 0 && !slices.Contains(deliberate, name) {
				t.Errorf("%s: %s", path, lines[0])
			}
		}
	}
	for _, suffix := range []string{".go", ".py", ".md", ".txt", "Makefile", "test-faults"} {
		walk(t, suffix, look)
	}
	if found < 100 {
		t.Errorf("only %d variables found", found)
	}
}
