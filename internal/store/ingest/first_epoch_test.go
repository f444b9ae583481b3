package ingest_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"lcache/internal/store/ingest"
)

// TestFirstEpoch: an ingest that does not read remote shards reports the requests of the first epoch, and of a
// full ingest. The latter equals the dry run's report, and the requests that the full ingest then sends.
func TestFirstEpoch(t *testing.T) {
	shards := map[string][]byte{"/0.tar": tarOf(t, 1, 200, 3000), "/1.tar": tarOf(t, 2, 100, 3000)}
	var gets atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			gets.Add(1)
		}
		w.Header().Set("ETag", `"1"`)
		http.ServeContent(w, r, "", time.Unix(1_700_000_000, 0), bytes.NewReader(shards[r.URL.Path]))
	}))
	defer srv.Close()
	o := ingest.Options{Source: "tar:" + srv.URL + "/{0..1}.tar", Dirs: []string{filepath.Join(t.TempDir(), "cache")}, NoPrefill: true}
	for range 2 { // the second time with a cache that has no samples yet
		r, err := ingest.Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		f := r.FirstEpoch
		if f == nil || f.Gets != 300 || f.Samples != 300 || f.Bytes != r.Bytes {
			t.Fatalf("%+v, want 300 requests for 300 samples", f)
		}
		dry := o
		dry.DryRun = true
		if d, err := ingest.Run(t.Context(), dry); err != nil || d.Cost.Gets != f.Ingest {
			t.Errorf("the dry run says %+v, %v; want %d", d, err, f.Ingest)
		}
	}
	o.NoPrefill = false
	before := gets.Load()
	r, err := ingest.Run(t.Context(), o)
	if err != nil || r.FirstEpoch != nil || r.StoredSamples != 300 || gets.Load()-before > 6 { // includes a request for the last byte of the first shard
		t.Errorf("ingest: %+v, %v, %d requests", r, err, gets.Load()-before)
	}
	o.NoPrefill = true
	if r, err = ingest.Run(t.Context(), o); err != nil || r.FirstEpoch != nil {
		t.Errorf("a full cache: %+v, %v", r.FirstEpoch, err)
	}
	few := ingest.Options{Source: "tar:" + srv.URL + "/large.tar", Dirs: []string{filepath.Join(t.TempDir(), "few")}, NoPrefill: true}
	shards["/large.tar"] = tarOf(t, 3, 3, 5<<20)
	if r, err = ingest.Run(t.Context(), few); err != nil || r.FirstEpoch != nil {
		t.Errorf("large samples: %+v, %v", r, err)
	}
}
