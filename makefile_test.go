package lcache_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestMakefileRunsAll: make test runs the Go tests of all packages on io_uring under the race detector, and on pread without it, and leaves none out by name.
func TestMakefileRunsAll(t *testing.T) {
	needMake(t)
	for target, want := range map[string]string{"test-go-race": `CGO_ENABLED=[01] .* go test .* \./\.\.\.`, "test-go-pread": `LCACHE_IO=pread LCACHE_DIRECT=0 .* go test .* \./\.\.\.`} {
		out, err := exec.Command("make", "-n", "GO=go", target).CombinedOutput()
		if err != nil || !regexp.MustCompile(want).Match(out) || regexp.MustCompile(` -(skip|run|short)\b`).Match(out) {
			t.Errorf("make %s, %v:\n%s\nwant all packages, as in %s", target, err, out, want)
		}
	}
}

// TestEachTestRuns: each test runs under the race detector, on pread, or both. scripts/test-faults names the tests that assert times.
func TestEachTestRuns(t *testing.T) {
	faults, err := os.ReadFile("scripts/test-faults")
	if err != nil {
		t.Fatal(err)
	}
	test := regexp.MustCompile(`(?ms)^func (Test\w+)\(.*?^}`)
	for _, p := range packages(t) {
		files, err := filepath.Glob(filepath.Join(p.Dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			notUnderRace := strings.HasPrefix(string(text), "//go:build !race")
			for _, found := range test.FindAllStringSubmatch(string(text), -1) {
				if strings.Contains(found[0], "\n\ttestenv.AnyIO(t)") && (notUnderRace || strings.Contains(found[0], "\n\ttestenv.WithoutRace(t)")) {
					t.Errorf("%s: %s is left out under the race detector and on pread: it never runs", file, found[1])
				}
				if strings.Contains(found[0], "testenv.Timed()") && !strings.Contains(string(faults), found[1]) {
					t.Errorf("%s: %s asserts times, and the part times of scripts/test-faults does not name it", file, found[1])
				}
			}
		}
	}
}

// TestMakefileWithoutGo: without Go, make names the missing program and the cure.
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
