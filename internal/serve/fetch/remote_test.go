package fetch_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lcache/internal/serve/fetch"
	"lcache/internal/serve/fetch/fetchtest"
	"lcache/internal/serve/staging"
	"lcache/sample"
	"lcache/source"
)

// TestRemoteSourceInTrouble: a read from a server that does not answer, or answers only with errors, has one layer of
// retries and one time limit. Its error has the number of attempts and the reason, however long each answer took.
func TestRemoteSourceInTrouble(t *testing.T) {
	const patience = 900 * time.Millisecond
	for name, c := range map[string]struct {
		serve http.HandlerFunc
		cause string
		least int // requests
	}{
		"no answer":   {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "no byte came for 300ms", 2},
		"only errors": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, "503", 2},
		"late errors": {func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(patience / 10)
			w.WriteHeader(http.StatusServiceUnavailable)
		}, "503", 2},
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int64
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				c.serve(w, r)
			}))
			defer srv.Close()
			remote, err := source.Open(srv.URL+"/LIST", source.Options{Patience: patience})
			if err != nil {
				t.Fatal(err)
			}
			defer remote.Close()
			b := &bed{io: fetchtest.OpenIO(t)}
			o := fetchtest.Options{Sizes: []uint32{3000}, Staging: staging.Options{SideBytes: 1 << 20, SpareBytes: 1 << 20}, Fetch: fetch.Options{SourceTimeout: patience}}
			o.Log.IO = b.io
			b.Bed = fetchtest.New(t, o)
			b.Source.Source = source.NewRetrying(remote, source.Retry{})
			began := time.Now()
			_, _, err = b.Fetcher.FetchAll(t.Context(), []sample.Index{0})
			took := time.Since(began)
			if err == nil {
				t.Fatal("a sample came from a server that has none")
			}
			tried := regexp.MustCompile(`\(tried (\d+) times`).FindAllStringSubmatch(err.Error(), -1)
			if len(tried) != 1 || !strings.Contains(err.Error(), c.cause) || !strings.Contains(err.Error(), fmt.Sprintf("no byte in %v", patience)) {
				t.Fatalf("its error is %q, want one count of tries, and the cause", err)
			}
			if n, _ := strconv.Atoi(tried[0][1]); n < c.least || int64(n) != requests.Load() {
				t.Errorf("%d requests, the error says %d; want at least %d", requests.Load(), n, c.least)
			}
			if most := patience + patience/3; took > most+5*time.Second { // a busy machine may be slow
				t.Errorf("it took %v, want about %v at most", took, most)
			}
		})
	}
}
