package engine

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lcache/internal/importance/state"
	"lcache/internal/store/ingest"
	"lcache/sample"
)

// TestPackagesAreOff: unless a job's L-samples may be substituted for each other, neither the cache nor the server's memory has a trace of packages: while samples stay in place, are sorted, drawn by
// importance, or substituted within their class, and after each restart.
func TestPackagesAreOff(t *testing.T) {
	inLayouts(t, func(t *testing.T, layout string) {
		for _, of := range [][2]string{{"plain", ""}, {"impact", `"method":"impact","params":{"s_share":0,"warmup":1}`}, {"spider", `"method":"spider","substitute":"class","params":{"ratio":[0.6,0.3],"m":2,"max_uses":3}`}} {
			name, text := of[0], of[1]
			d, o, _ := lowBed(t, 500, ingest.Options{}) // of its own: a log in the order of another job becomes packages
			o.Layout = layout
			for life := range 2 {
				e := open(t, o)
				if text == "" {
					orders := [][][]sample.Index{d.drawn(7, 1)[0], d.drawn(8, 1)[0], d.drawn(9, 1)[0]}
					for epoch, batches := range orders {
						push(t, e, epoch, 0, batches)
					}
					for epoch, batches := range orders {
						d.readAsked(t, e, epoch, 0, batches)
					}
				} else {
					l := losing{d: d, e: e, world: 1}
					l.ask(t, 0, fmt.Sprintf(`{"name":%q,"batch_size":64,"cache":%d,"seed":5,%s}`, name, d.total/5, text))
					c := attach(t, e)
					for epoch := 3 * life; epoch < 3*life+3; epoch++ {
						l.observed(t, c, epoch, func(int) { withoutPackages(t, e) })
					}
					c.Disconnected()
				}
				withoutPackages(t, e)
				closeEngine(t, e)
				without(t, o.Dirs[0])
			}
		}
	})
}

// withoutPackages checks a server and its files.
func withoutPackages(t *testing.T, e *Engine) {
	t.Helper()
	if packages, packer, memory := e.cache.Store.Packages(), e.packer(), e.cache.Facts().Packages; packages != nil || packer != nil || memory != 0 {
		t.Fatalf("packages %v, packer %v; the sizes count %d bytes for packages", packages, packer, memory)
	}
	without(t, e.cache.Dirs[0])
}

// without checks the files of a cache.
func without(t *testing.T, dir string) {
	t.Helper()
	for _, entry := range list(t, dir) {
		name := strings.TrimSuffix(entry.Name(), ".new")
		known := []string{"LOCK", "FORMAT", "arena", "journal-0", "journal-1", "places", "line-0", "line-1", "manifest", "sums", "inodes", "listing", "job.json", state.FilePrefix + "impact", state.FilePrefix + "spider"}
		if !slices.Contains(known, name) {
			t.Fatalf("there is a file %s", entry.Name())
		}
		if !strings.HasPrefix(name, "journal") || name != entry.Name() {
			continue
		}
		head, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil && (binary.LittleEndian.Uint32(head[8:]) != 1 || binary.LittleEndian.Uint32(head[76:]) != 0) {
			t.Fatalf("the header of %s is % x", name, head[:80])
		}
	}
}
