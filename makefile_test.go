package lcache_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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

// above returns the folder of a list that a package lies in; "": none of them.
func above(name string, folders []string) string {
	for _, folder := range folders {
		if name == folder || strings.HasPrefix(name, folder+"/") {
			return folder
		}
	}
	return ""
}

// TestMakefileIOPackages: a package whose tests choose their I/O by environment runs with pread and buffered files, too.
func TestMakefileIOPackages(t *testing.T) {
	listed := listOf(t, `\nIO_PACKAGES := .*\$\(wildcard ([^)]*)\)`)
	for _, name := range listed {
		if _, err := os.Stat(name); err != nil {
			t.Errorf("IO_PACKAGES has %s: %v", name, err)
		}
	}
	testFiles(t, func(folder, text string) {
		if strings.Contains(text, `os.Getenv("LCACHE_IO")`) && above(folder, listed) == "" {
			t.Errorf("IO_PACKAGES lacks %s", folder)
			listed = append(listed, folder)
		}
	})
}

// TestMakefileSequential: a package that is left out where races are looked for starts no goroutine and has no lock.
func TestMakefileSequential(t *testing.T) {
	listed := listOf(t, `\nSEQUENTIAL := \$\(addprefix \./,([^)]*)\)`)
	seen := map[string]bool{}
	parallel := regexp.MustCompile(`(?m)"sync(/atomic)?"|^\s*(go|defer go) |\.Go\(|"golang.org/x/sync`)
	for _, p := range packages(t) {
		name, _ := local(p.ImportPath)
		top := above(name, listed)
		if top == "" {
			continue
		}
		seen[top] = true
		for _, file := range p.GoFiles {
			text, err := os.ReadFile(filepath.Join(p.Dir, file))
			if err != nil {
				t.Fatal(err)
			}
			if found := parallel.Find(text); found != nil {
				t.Errorf("%s/%s has %q: take %s out of SEQUENTIAL", name, file, found, top)
			}
		}
	}
	for _, name := range listed {
		if !seen[name] {
			t.Errorf("SEQUENTIAL has %s, which is no package", name)
		}
	}
}

// TestMakefileTests: each test that make check leaves out, or make test runs without the race detector or on one kind of I/O, is there. One that got another name would be run otherwise.
func TestMakefileTests(t *testing.T) {
	there := map[string]bool{}
	folders := map[string][]string{}
	name := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	testFiles(t, func(folder, text string) {
		for _, found := range name.FindAllStringSubmatch(text, -1) {
			there[found[1]] = true
			folders[found[1]] = append(folders[found[1]], folder)
		}
	})
	run := listOf(t, `\nWITHOUT_RACE_PACKAGES := \$\(addprefix \./,([^)]*)\)`)
	for _, test := range listOf(t, `\nWITHOUT_RACE := ([^\n]*)`) {
		name, _, _ := strings.Cut(test, "/")
		for _, folder := range folders[name] {
			if !slices.Contains(run, folder) {
				t.Errorf("WITHOUT_RACE has %s, and %s, which also has it, is not in WITHOUT_RACE_PACKAGES: there it would not run", test, folder)
			}
		}
	}
	for _, test := range listOf(t, `\nLONG_TESTS := ([^\n]*)`) {
		if !there[test] {
			t.Errorf("LONG_TESTS has %s, which is no test", test)
		}
	}
	for _, list := range []string{"WITHOUT_RACE", "ANY_IO"} {
		for _, test := range listOf(t, `\n`+list+` := ([^\n]*)`) {
			if name, _, _ := strings.Cut(test, "/"); !there[name] {
				t.Errorf("%s has %s, which is no test", list, test)
			}
		}
	}
	for _, test := range listOf(t, `\nANY_IO_PYTHON := ([^\n]*)`) {
		file, name, one := strings.Cut(test, "::")
		text, err := os.ReadFile(filepath.Join("python/tests", file))
		if err != nil || one && !strings.Contains(string(text), "\ndef "+name+"(") {
			t.Errorf("ANY_IO_PYTHON has %s, which is no test: %v", test, err)
		}
	}
}

// TestMakefileWithoutGo: without Go, make says what is missing and what to do.
func TestMakefileWithoutGo(t *testing.T) {
	needMake(t)
	out, err := exec.Command("make", "-n", "GO=/nowhere/go", "build").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "/nowhere/go is not installed") || !strings.Contains(string(out), "https://go.dev/dl") || strings.Contains(string(out), "not found") {
		t.Errorf("make without Go said %q, and ended with %v", out, err)
	}
	if out, err := exec.Command("make", "-n", "GO=/nowhere/go", "clean").CombinedOutput(); err != nil || !strings.Contains(string(out), "rm -rf") {
		t.Errorf("make clean without Go said %q, and ended with %v", out, err)
	}
}

// TestMakefileDemo: make demo says that it compiles before it does, because a compiler is silent for minutes.
func TestMakefileDemo(t *testing.T) {
	needMake(t)
	out, err := exec.Command("make", "-n", "demo").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if said, build := strings.Index(string(out), "a few minutes"), strings.Index(string(out), " build -ldflags"); said < 0 || build < said {
		t.Errorf("make demo does not say first that it compiles:\n%s", out)
	}
}

func needMake(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("no make here")
	}
}
