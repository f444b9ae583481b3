package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"lcache/internal/testenv"
)

// forDevelopers are the pages that name files and functions of the code.
var forDevelopers = []string{"docs/architecture.md", "docs/testing.md", "CONTRIBUTING.md"}

func readPage(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", page))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	codeSpan = regexp.MustCompile("`([^`\n]+)`")
	// pathLike has a folder, and an extension, or testdata, or a slash at the end; or it begins as a package does for the go command.
	pathLike = regexp.MustCompile(`^\w[\w.-]*(/[\w.-]+)*/[\w-]+\.\w+$|^\w+/testdata(/[\w.-]+)*$|^\w[\w/-]*/$|^\./\w[\w/]*$`)
)

// pathsIn are the words of a page's code spans that look like the path of a file or folder, or begin with a folder that there is.
func pathsIn(page string) (paths []string) {
	for _, m := range codeSpan.FindAllStringSubmatch(page, -1) {
		for _, word := range strings.Fields(m[1]) {
			folder, rest, _ := strings.Cut(word, "/")
			if _, err := os.Stat(filepath.Join("../..", folder)); pathLike.MatchString(word) || err == nil && regexp.MustCompile(`^\w[\w./-]*$`).MatchString(rest) && !unmade[folder] {
				paths = append(paths, word)
			}
		}
	}
	return paths
}

// unmade are folders whose contents are there only once they are made: programs, and the failing inputs of a fuzz target.
var unmade = map[string]bool{"bin": true, "testdata": true, ".venv": true, "": true}

// TestPathsNamed: files and folders that a page for developers names are there. Python's tests may be named from their own folder on.
func TestPathsNamed(t *testing.T) {
	for _, page := range forDevelopers {
		paths := pathsIn(readPage(t, page))
		if len(paths) == 0 {
			t.Errorf("%s names no file: what finds them is broken", page)
		}
		for _, path := range paths {
			_, err := os.Stat(filepath.Join("../..", path))
			if err != nil {
				_, err = os.Stat(filepath.Join("../../python/tests", path))
			}
			if err != nil {
				t.Errorf("%s names %s, which is not there", page, path)
			}
		}
	}
}

var (
	functionIn = regexp.MustCompile("`([A-Za-z][\\w.]*)` \\(`([\\w/]+\\.(?:go|py))`\\)")
	oneWord    = regexp.MustCompile(`^\w+$`)
)

// TestFunctionsNamed: `Type.method` (`pkg/file.go`) on a page for developers names a function or a type that is declared in that file.
func TestFunctionsNamed(t *testing.T) {
	testenv.WithoutRace(t)
	found := 0
	for _, page := range forDevelopers {
		for _, m := range functionIn.FindAllStringSubmatch(readPage(t, page), -1) {
			found++
			code, err := os.ReadFile(filepath.Join("../..", m[2]))
			if err != nil {
				t.Errorf("%s: %s: %v", page, m[0], err)
				continue
			}
			if !declares(string(code), m[1], filepath.Ext(m[2])) {
				t.Errorf("%s: %s does not declare %s", page, m[2], m[1])
			}
		}
	}
	if found < 100 {
		t.Errorf("the pages name %d functions, want the many of docs/architecture.md", found)
	}
}

// declares reports whether code declares a function or type, or a method of a type.
func declares(code, name, ext string) bool {
	typ, method, isMethod := strings.Cut(name, ".")
	var want []string
	switch {
	case ext == ".py" && isMethod:
		want = []string{`(?m)^class ` + typ + `\b`, `(?m)^    def ` + method + `\(`}
	case ext == ".py":
		want = []string{`(?m)^(class|def) ` + typ + `\b`}
	case isMethod:
		want = []string{`(?m)^func \(\w+ \*?` + typ + `\) ` + method + `\(`}
	default:
		want = []string{`(?m)^(func|type|var) ` + typ + `\b`}
	}
	for _, pattern := range want {
		if !regexp.MustCompile(pattern).MatchString(code) {
			return false
		}
	}
	return true
}

// TestTestsNamed: a test that a page names is there.
func TestTestsNamed(t *testing.T) {
	testenv.WithoutRace(t)
	declared := map[string]bool{}
	walk(t, "_test.go", func(path string) {
		code, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(code), -1) {
			declared[m[1]] = true
		}
	})
	for _, page := range pages(t) {
		for _, name := range regexp.MustCompile(`\bTest[A-Z]\w*`).FindAllString(readPage(t, page), -1) {
			if !declared[name] {
				t.Errorf("%s names %s, which is not a test", page, name)
			}
		}
	}
}

// TestLinksResolve: links of the pages to files of the repository, and to headings in them, lead somewhere.
func TestLinksResolve(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, page := range append(pages(t), "CHANGELOG.md") {
		_, prose := blocksOf(t, page)
		for _, m := range link.FindAllStringSubmatch(codeSpan.ReplaceAllString(prose, ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			path, heading, _ := strings.Cut(m[1], "#")
			to := page
			if path != "" {
				to = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(filepath.Join("../..", to)); err != nil {
				t.Errorf("%s: the link to %s: %v", page, m[1], err)
			} else if heading != "" && !headingsOf(t, to)[heading] {
				t.Errorf("%s: the link to %s has no such heading", page, m[1])
			}
		}
	}
}

// headingsOf are the anchors of a page's headings, as GitHub makes them.
func headingsOf(t *testing.T, page string) map[string]bool {
	t.Helper()
	_, prose := blocksOf(t, page)
	anchors := map[string]bool{}
	for line := range strings.Lines(prose) {
		text := strings.TrimLeft(line, "#")
		if text == line || !strings.HasPrefix(text, " ") {
			continue
		}
		anchor := ""
		for _, r := range strings.ToLower(strings.TrimSpace(text)) {
			switch {
			case r == ' ' || r == '-':
				anchor += "-"
			case r > 127 && !strings.ContainsRune("…–—’“”·→×", r) || oneWord.MatchString(string(r)):
				anchor += string(r)
			}
		}
		anchors[anchor] = true
	}
	return anchors
}
