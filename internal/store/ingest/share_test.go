package ingest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"lcache/internal/store/ingest"
	"lcache/source"
)

// TestShares: a share is a range of adjacent samples in the listing. Together the shares are the source, and no
// sample is read twice.
func TestShares(t *testing.T) {
	var list strings.Builder
	for i := range 10 {
		fmt.Fprintf(&list, "%d\t1\n", i)
	}
	var mu sync.Mutex // guards asked
	var asked []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/LIST" {
			fmt.Fprint(w, list.String())
			return
		}
		mu.Lock()
		asked = append(asked, strings.TrimPrefix(r.URL.Path, "/"))
		mu.Unlock()
		fmt.Fprint(w, "x")
	}))
	defer srv.Close()
	o := ingest.Options{Source: srv.URL + "/LIST", Dirs: []string{filepath.Join(t.TempDir(), "cache")}, Remote: source.Remote{NoHedge: true}}
	for _, c := range []struct {
		share, shares int
		want          string
	}{{1, 3, "3 4 5"}, {2, 3, "6 7 8 9"}, {0, 3, "0 1 2"}, {0, 1, ""}} {
		asked = nil
		o.Share, o.Shares = c.share, c.shares
		dry := o
		dry.DryRun = true
		cost, err := ingest.Run(t.Context(), dry)
		if err != nil {
			t.Fatal(err)
		}
		r, err := ingest.Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(asked)
		if got := strings.Join(asked, " "); got != c.want || r.ReadSamples != int64(len(asked)) {
			t.Errorf("share %d/%d: %s are asked for, want %s; %d samples were read", c.share, c.shares, got, c.want, r.ReadSamples)
		}
		if want := int64(len(strings.Fields(c.want))); c.shares > 1 && cost.Cost.Gets != want {
			t.Errorf("share %d/%d: %d GETs were told, want %d", c.share, c.shares, cost.Cost.Gets, want)
		}
	}
}
