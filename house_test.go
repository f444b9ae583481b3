// Package lcache_test checks the rules for all packages: which package may import which, and that each has a doc comment. It has
// only tests, and none that a package could have itself.
package lcache_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/version"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "lcache"

// mayImport is the table of the house: a package, and what of ours it may import. A package below another one, like
// source/sourcetest, may import the same packages as that one, and that one itself.
var mayImport = map[string][]string{
	"sample":                   nil,
	"iouring":                  nil,
	"shuffle":                  nil,
	"chunker":                  {"sample"},
	"source/internal/tarshard": nil,
	"source/internal/records":  nil,
	"source/internal/object":   nil,
	"source/internal/s3":       {"source/internal/object"},
	"source/internal/web":      {"source/internal/object"},
	"source/s3test":            {"internal/testenv"},
	"source":                   {"sample", "source/internal/object", "source/internal/records", "source/internal/s3", "source/internal/tarshard", "source/internal/web"},
	"internal/compress":        {"sample"},
	"internal/serve/staging":   {"sample"},
	"internal/disk/blockio":    {"iouring"},

	"internal/disk/durable/durabletest": {"internal/disk/blockio"},

	"logfile":                        {"internal/disk/blockio", "sample"},
	"metaindex":                      {"sample"},
	"internal/plan":                  nil,
	"internal/importance/losses":     nil,
	"internal/memquota":              nil,
	"internal/cluster":               {"internal/cluster/homes"},
	"internal/cluster/homes":         nil,
	"internal/cluster/lister":        {"internal/cluster", "internal/cluster/homes", "internal/peer", "sample"},
	"internal/cluster/peers":         {"internal/cluster", "internal/cluster/homes", "sample"},
	"internal/peer":                  {"sample"},
	"internal/errcode":               nil,
	"cmd/lcache/internal/simulate":   {"internal/cluster/homes"},
	"cmd/lcache/internal/scenario":   {"cmd/lcache/internal/simulate"},
	"cmd/lcache/internal/hitratio":   {"internal/importance", "internal/importance/draw", "internal/importance/policy", "internal/importance/score", "internal/importance/substitute", "internal/importance/losses", "sample"},
	"cmd/lcache/internal/chart":      {"cmd/lcache/internal/scenario", "cmd/lcache/internal/hitratio"},
	"cmd/lcache/internal/planner":    {"internal/serve/status", "internal/plan", "cmd/lcache/internal/doctor", "cmd/lcache/internal/attach", "chunker", "source"},
	"internal/serve/schedule":        {"internal/memquota", "shuffle", "chunker", "sample"},
	"internal/store/cache":           {"internal/plan", "internal/serve/schedule", "logfile", "internal/compress", "source", "chunker", "metaindex", "internal/disk/blockio", "sample", "internal/store/cachedir"},
	"internal/serve/fetch":           {"logfile", "internal/serve/staging", "source", "metaindex", "internal/compress", "sample"},
	"internal/serve/fetch/fetchtest": {"internal/serve/fetch", "internal/disk/blockio", "logfile", "internal/serve/staging", "source", "metaindex", "internal/compress", "sample", "internal/testenv"},
	"internal/serve/prefetch":        {"internal/serve/fetch", "logfile", "internal/serve/staging", "metaindex", "chunker", "sample"},
	"reorder":                        {"internal/serve/fetch", "logfile", "internal/serve/staging", "metaindex", "chunker", "internal/compress", "sample"},
	"internal/store/mover":           {"internal/store/cache", "reorder", "internal/serve/fetch", "internal/serve/staging", "logfile", "chunker", "internal/serve/schedule", "internal/disk/blockio", "sample"},
	"internal/store/resort":          {"internal/store/mover", "internal/store/cache", "reorder", "internal/serve/fetch", "internal/serve/staging", "logfile", "chunker", "internal/serve/schedule", "internal/disk/blockio", "sample"},
	"internal/serve/deliver":         {"internal/serve/staging", "internal/serve/fetch", "metaindex", "chunker", "sample"},
	"internal/store/ingest":          {"internal/store/cache", "internal/store/mover", "internal/store/resort", "internal/serve/schedule", "logfile", "internal/compress", "source", "chunker", "metaindex", "internal/disk/blockio", "sample", "internal/store/cachedir"},
	"internal/serve/status":          nil,
	"internal/importance/disk":       {"internal/store/cache", "internal/serve/deliver", "internal/importance/state"},
	"internal/importance/memory":     {"internal/importance/state", "internal/importance", "internal/importance/policy", "internal/importance/substitute", "internal/serve/staging", "sample"},
	"internal/importance/packing":    {"internal/store/cache", "internal/serve/schedule", "internal/serve/staging", "logfile", "metaindex", "internal/importance/substitute", "sample"},
	"internal/importance/session":    {"internal/serve/status", "internal/importance/memory", "internal/memquota", "internal/serve/schedule", "internal/serve/deliver", "internal/importance/state", "internal/importance/draw", "internal/importance/policy", "internal/importance/score", "internal/importance/substitute", "sample"},

	"internal/importance/numeric":     nil,
	"internal/importance/score":       {"internal/importance/numeric", "sample"},
	"internal/importance/draw":        {"internal/importance/numeric", "internal/importance/score", "sample"},
	"internal/importance/policy":      {"internal/importance/numeric", "sample"},
	"internal/importance/substitute":  {"internal/importance/numeric", "internal/importance/policy", "sample"},
	"internal/importance":             {"internal/importance/score", "internal/importance/draw", "internal/importance/policy", "internal/importance/substitute", "sample"},
	"internal/importance/state":       {"internal/importance", "internal/importance/score", "internal/importance/draw", "internal/importance/policy", "internal/importance/substitute", "sample"},
	"internal/importance/epochlayout": {"chunker", "internal/serve/prefetch", "internal/importance/state", "internal/importance/policy", "sample"},
	"engine/internal/count":           {"internal/serve/status", "internal/serve/schedule", "internal/verdict", "sample"},
	"engine/internal/events":          {"internal/serve/status", "internal/verdict"},

	"engine":                         {"internal/peer", "engine/internal/count", "engine/internal/events", "internal/serve/status", "internal/importance/disk", "internal/importance/epochlayout", "internal/importance/memory", "internal/importance/packing", "internal/importance/session", "internal/memquota", "internal/store/cache", "internal/store/mover", "internal/serve/schedule", "internal/serve/deliver", "internal/serve/fetch", "internal/serve/prefetch", "reorder", "logfile", "internal/serve/staging", "source", "chunker", "metaindex", "internal/plan", "internal/importance/state", "internal/importance/policy", "internal/importance/score", "internal/importance/substitute", "sample"},
	"server":                         {"internal/errcode", "internal/serve/status", "internal/memquota", "internal/serve/deliver", "engine", "internal/serve/schedule", "internal/importance/score", "sample"},
	"internal/store/cachedir":        nil,
	"internal/testenv":               nil,
	"internal/verdict":               nil,
	"cmd/lcache/internal/attach":     {"internal/serve/status"},
	"cmd/lcache/internal/prometheus": {"internal/serve/status"},
	"cmd/lcache/internal/overview":   {"internal/serve/status"},
	"cmd/lcache/internal/monitor":    {"internal/serve/status", "cmd/lcache/internal/prometheus", "cmd/lcache/internal/overview"},
	"cmd/lcache/internal/devices":    {"internal/store/cache", "cmd/lcache/internal/doctor", "cmd/lcache/internal/attach", "internal/plan"},
	"cmd/lcache/internal/doctor":     {"internal/disk/blockio", "internal/store/cachedir", "source", "sample"},
	"cmd/lcache/internal/diagnosis":  {"internal/serve/status"},
	"cmd/lcache/internal/bundle":     {"internal/serve/status", "cmd/lcache/internal/attach", "cmd/lcache/internal/doctor"},
	"cmd/lcache/internal/launch":     {"internal/cluster", "internal/cluster/homes", "internal/cluster/lister", "internal/cluster/peers", "internal/peer", "internal/serve/fetch", "internal/serve/status", "cmd/lcache/internal/attach", "internal/store/ingest", "engine", "server", "cmd/lcache/internal/prometheus", "cmd/lcache/internal/monitor", "cmd/lcache/internal/overview", "internal/verdict", "internal/store/cache", "internal/store/cachedir", "logfile", "internal/serve/schedule", "internal/plan", "source", "sample"},
	"cmd/lcache/internal/bench":      {"cmd/lcache/internal/launch", "engine", "server", "internal/verdict", "cmd/lcache/internal/doctor"},
	"cmd/lcache/internal/demo":       {"internal/serve/status", "cmd/lcache/internal/launch", "cmd/lcache/internal/attach", "internal/store/ingest", "cmd/lcache/internal/doctor", "internal/store/cache", "internal/serve/schedule"},
	"cmd/lcache":                     {"internal/cluster", "internal/peer", "internal/serve/status", "cmd/lcache/internal/launch", "cmd/lcache/internal/devices", "cmd/lcache/internal/attach", "cmd/lcache/internal/bench", "cmd/lcache/internal/bundle", "cmd/lcache/internal/demo", "cmd/lcache/internal/diagnosis", "cmd/lcache/internal/doctor", "internal/store/ingest", "engine", "server", "cmd/lcache/internal/monitor", "cmd/lcache/internal/overview", "internal/verdict", "internal/store/cache", "internal/store/cachedir", "internal/serve/schedule", "internal/plan", "cmd/lcache/internal/planner", "cmd/lcache/internal/hitratio", "cmd/lcache/internal/chart", "cmd/lcache/internal/scenario", "cmd/lcache/internal/simulate", "shuffle", "source", "sample", "iouring"},
}

// everywhere are leaves that any package may import: they stand in for something that the language lacks.
var everywhere = []string{"internal/disk/offheap", "internal/host", "internal/units", "internal/usage", "internal/disk/durable", "internal/trust", "internal/jsonbytes", "internal/errcode"}

// drawers are package names that do not describe a content.
var drawers = []string{"util", "utils", "common", "types", "helper", "helpers", "config", "misc", "base"}

type pkg struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
}

// packages lists all packages, by the go command.
func packages(t *testing.T) []pkg {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,Imports", "./...")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var all []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("decode go list: %v", err)
		}
		if len(p.GoFiles) > 0 {
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		t.Fatal("go list shows no package")
	}
	return all
}

// home is the entry of the table that a package falls under: itself, or the nearest folder above it.
func home(path string) string {
	for name := path; name != "." && name != "/"; name = filepath.Dir(name) {
		if slices.Contains(everywhere, name) {
			return name
		}
		if _, ok := mayImport[name]; ok {
			return name
		}
	}
	return ""
}

func local(importPath string) (string, bool) {
	return strings.CutPrefix(importPath, module+"/")
}

func TestImportTable(t *testing.T) {
	for _, p := range packages(t) {
		name, _ := local(p.ImportPath)
		in := home(name)
		if in == "" {
			t.Errorf("package %s is not in mayImport: add it, with the packages that it may import", p.ImportPath)
			continue
		}
		for _, imported := range p.Imports {
			to, ours := local(imported)
			if !ours {
				continue
			}
			switch target := home(to); {
			case target == in && name != to:
				if name == in {
					t.Errorf("%s imports %s, which is below it", name, to)
				}
			case !slices.Contains(mayImport[in], target) && !slices.Contains(everywhere, target):
				t.Errorf("%s imports %s; it may import only %v", name, to, mayImport[in])
			case to != target:
				t.Errorf("%s imports %s, which belongs to %s alone", name, to, target)
			}
		}
	}
}

// TestTableHasNoCycle checks the table itself: a new line can't reverse two layers.
func TestTableHasNoCycle(t *testing.T) {
	var visit func(name string, path []string)
	visit = func(name string, path []string) {
		if slices.Contains(path, name) {
			t.Fatalf("cycle in the table: %s → %s", strings.Join(path, " → "), name)
		}
		for _, to := range mayImport[name] {
			if _, ok := mayImport[to]; !ok {
				t.Errorf("%s may import %s, which the table does not have", name, to)
			}
			visit(to, append(slices.Clone(path), name))
		}
	}
	for name := range mayImport {
		visit(name, nil)
	}
}

// TestArchitectureTable: docs/architecture.md has a row for each package of the table, and no other ones.
func TestArchitectureTable(t *testing.T) {
	page, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([\\w/]+)/` \\| .+ \\|$").FindAllStringSubmatch(string(page), -1) {
		rows[m[1]] = true
	}
	all := slices.Concat(slices.Collect(maps.Keys(mayImport)), everywhere)
	for _, name := range all {
		if !rows[name] {
			t.Errorf("docs/architecture.md has no row for package %s", name)
		}
	}
	for name := range rows {
		if !slices.Contains(all, name) {
			t.Errorf("docs/architecture.md has a row for %s, which is not in the table of the house", name)
		}
	}
}

func TestNames(t *testing.T) {
	for _, p := range packages(t) {
		if slices.Contains(drawers, filepath.Base(p.ImportPath)) {
			t.Errorf("package %s: its name does not describe its content", p.ImportPath)
		}
	}
}

var sentenceEnd = regexp.MustCompile(`[.:?](\s|$)`)

// TestPackageDocs checks each package's doc comment: touching its package line, in one file, two to ten sentences or more
// where a format is drawn, never lost to an empty line.
func TestPackageDocs(t *testing.T) {
	for _, p := range packages(t) {
		var docs []string
		name := ""
		for _, file := range p.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Fatal(err)
			}
			name = f.Name.Name
			if f.Doc != nil {
				docs = append(docs, f.Doc.Text())
			} else if lost := lostDoc(f); lost != "" {
				t.Errorf("%s/%s: the comment %q does not touch the package line", p.ImportPath, file, lost)
			}
		}
		if len(docs) != 1 {
			t.Errorf("package %s has %d package docs, want one", p.ImportPath, len(docs))
			continue
		}
		want := "Package " + name + " "
		if name == "main" {
			want = "Command " + filepath.Base(p.ImportPath) + " "
		}
		if !strings.HasPrefix(docs[0], want) {
			t.Errorf("package %s: its doc begins %.40q, want %q", p.ImportPath, docs[0], want)
		}
		if n := len(sentenceEnd.FindAllString(docs[0], -1)); n < 2 {
			t.Errorf("package %s: its doc has %d sentence, want at least two: hidden details, types, limits", p.ImportPath, n)
		}
	}
}

// lostDoc is a comment above the package line that a reader takes for the doc and the tools do not.
func lostDoc(f *ast.File) string {
	for _, c := range f.Comments {
		if text := c.Text(); c.End() < f.Package && strings.HasPrefix(text, "Package ") {
			return strings.SplitN(text, "\n", 2)[0]
		}
	}
	return ""
}

// numbersOnly are files whose JSON has no text from outside.
var numbersOnly = []string{"shuffle/values.go", "cmd/lcache/internal/simulate/machine.go", "cmd/lcache/order.go", "cmd/lcache/order_list.go"}

var codec = regexp.MustCompile(`\bjson\.(Marshal|MarshalIndent|Unmarshal|NewEncoder)\(`)

// TestNamesSurviveJSON: encoding/json would write U+FFFD for each byte of a name that is not UTF-8, and so make two names one.
func TestNamesSurviveJSON(t *testing.T) {
	for _, p := range packages(t) {
		name, _ := local(p.ImportPath)
		if name == "internal/jsonbytes" || strings.HasSuffix(name, "test") {
			continue
		}
		for _, file := range p.GoFiles {
			text, err := os.ReadFile(filepath.Join(p.Dir, file))
			if err != nil {
				t.Fatal(err)
			}
			if call := codec.Find(text); call != nil && !slices.Contains(numbersOnly, filepath.Join(name, file)) {
				t.Errorf("%s/%s calls %s: call it of package jsonbytes", name, file, call)
			}
		}
	}
}

// TestGoVersion: archive/tar of older versions reads a sparse member of a shard into memory without end (CVE-2026-32288).
func TestGoVersion(t *testing.T) {
	text, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\ngo ")
	wants, _, _ := strings.Cut(rest, "\n")
	const least = "1.26.2"
	if version.Compare("go"+wants, "go"+least) < 0 {
		t.Errorf("go.mod wants Go %s, which is older than %s", wants, least)
	}
}

// TestNeeds64Bit: a build for a 32-bit processor fails with the reason before it compiles anything.
func TestNeeds64Bit(t *testing.T) {
	for _, arch := range []string{"386", "arm", "mips", "mipsle"} {
		cmd := exec.Command("go", "list", "-deps", "./cmd/lcache")
		cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "64-bit") {
			t.Errorf("%s: %v\n%.300s", arch, err, out)
		}
	}
}
