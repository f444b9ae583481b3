package lcache_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// opening are the calls that open a file by its name. Files that lcache reads back later are opened by package trust, which asks who could have written them.
var opening = []string{"os.Open", "os.OpenFile", "os.ReadFile", "os.WriteFile", "os.Create", "os.OpenRoot", "unix.Open", "unix.Openat", "syscall.Open"}

// openNoCache maps source files that open other files to a description of those.
var openNoCache = map[string]string{
	"cmd/lcache/internal/attach/client.go":    "the folder of a socket",
	"cmd/lcache/internal/attach/registry.go":  "a file that it makes, in a folder that it has checked",
	"cmd/lcache/internal/bench/python.go":     "a script in its own temporary folder",
	"cmd/lcache/internal/demo/demo.go":        "a script in its own temporary folder",
	"cmd/lcache/internal/devices/devices.go":  "the file that --facts names",
	"cmd/lcache/doctor_bundle.go":             "the bundle that --inspect names",
	"cmd/lcache/order_state.go":               "the states that order --diff names",
	"cmd/lcache/internal/bundle/bundle.go":    "the bundle that --bundle names, which must not exist yet",
	"cmd/lcache/manual.go":                    "the manual pages, in the folder that the user names",
	"cmd/lcache/internal/doctor/place.go":     "a file that it has just made",
	"cmd/lcache/internal/doctor/reading.go":   "files of a source, /proc",
	"cmd/lcache/internal/doctor/report.go":    "the file that --save names",
	"internal/disk/durable/durable.go":        "a folder, to sync it",
	"internal/disk/durable/version.go":        "a file that must not exist yet",
	"engine/memory.go":                        "/proc",
	"internal/cluster/certificates.go":        "the files that --tls-cert, --tls-key and --tls-ca name, which may be links; the key is checked as that of a cluster is",
	"internal/cluster/key.go":                 "the file that --cluster-key names, which may be a link; it checks more than package trust does",
	"cmd/lcache/internal/hitratio/trace.go":   "the trace that the user names",
	"internal/store/ingest/shared_listing.go": "the labels that the user names",
	"internal/store/ingest/dryrun.go":         "a file in its own temporary folder",
	"cmd/lcache/internal/launch/headspace.go": "a file in its own temporary folder",
	"cmd/lcache/internal/launch/signals.go":   "/dev/tty",
	"cmd/lcache/internal/monitor/holder.go":   "/proc",
	"cmd/lcache/internal/monitor/guard.go":    "the token that the user names",
	"cmd/lcache/internal/chart/picture.go":    "the picture that the user names",
	"cmd/lcache/internal/planner/gather.go":   "the facts that the user names",
	"cmd/lcache/internal/scenario/file.go":    "the scenario that the user names",
	"server/listen.go":                        "the folder of a socket",
	"shuffle/values.go":                       "a file that a recipe's parameter names",
	"source/dir.go":                           "the source",
	"source/filelist.go":                      "a list of files that the user names",
	"source/labels.go":                        "the labels that the user names",
	"source/open.go":                          "files of the source",
	"internal/serve/staging/memory.go":        "/proc, /sys",
	"internal/trust/trust.go":                 "it is where the others open files",
	"internal/testenv/tools.go":               "the list of programs that could not be installed for tests",
}

// TestFilesOfCachesAreOpenedByTrust: a file of a cache that is opened in another way could be another user's, a link, or a pipe that is never written.
func TestFilesOfCachesAreOpenedByTrust(t *testing.T) {
	unused := maps.Clone(openNoCache)
	for _, p := range packages(t) {
		name, _ := local(p.ImportPath)
		if slices.ContainsFunc([]string{"test", "testing"}, func(end string) bool { return strings.HasSuffix(name, end) }) || strings.Contains(name, "test/") {
			continue // for tests alone
		}
		for _, file := range p.GoFiles {
			path := filepath.Join(name, file)
			set := token.NewFileSet()
			f, err := parser.ParseFile(set, filepath.Join(p.Dir, file), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if of, ok := call.X.(*ast.Ident); ok && slices.Contains(opening, of.Name+"."+call.Sel.Name) {
					delete(unused, path)
					if openNoCache[path] == "" {
						t.Errorf("%s: %s.%s: open files of caches by package trust, or describe this file in openNoCache", set.Position(n.Pos()), of.Name, call.Sel.Name)
					}
				}
				return true
			})
		}
	}
	for path := range unused {
		t.Errorf("openNoCache has %s, which opens nothing: take it out", path)
	}
}
