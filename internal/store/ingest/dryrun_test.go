package ingest_test

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/source"
	"lcache/source/sourcetest"
)

// stateOf returns the files of a cache, except the lock, with their times and sizes.
func stateOf(t *testing.T, dir string) (state string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Base(path) == "LOCK" || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			state += fmt.Sprintln(path, info.Size(), info.ModTime())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// TestDryRunOverACache: a dry run reports the cost of the missing samples, which the next ingest then pays, and does
// not change the cache. Cases: no cache, a part of it, all of it, and a changed source.
func TestDryRunOverACache(t *testing.T) {
	const samples, part = 40, 15
	var mu sync.Mutex // guards files
	files := map[string][]byte{}
	put := func(name string, data []byte) {
		mu.Lock()
		defer mu.Unlock()
		files[name] = data
	}
	list := ""
	for i := range samples {
		list += fmt.Sprintf("%d\n", i)
		put(fmt.Sprint("/", i), sourcetest.Content(byte(i), 1000+i))
	}
	put("/LIST", []byte(list))
	for i := range 3 {
		put(fmt.Sprintf("/t-%d.tar", i), tarOf(t, byte(i), 30, 1000))
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		data := files[r.URL.Path]
		mu.Unlock()
		w.Header().Set("ETag", fmt.Sprintf(`"%x"`, crc32.ChecksumIEEE(data)))
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}))
	defer srv.Close()
	for name, c := range map[string]struct {
		src, changes string
		changed      []byte
		reads        int64 // number of samples, after one object has changed
		gets, begins int64 // GETs for all samples, and GETs if a part is there
	}{
		"list":   {srv.URL + "/LIST", "/7", sourcetest.Content(99, 1007), 1, samples, samples - part},
		"shards": {"tar:" + srv.URL + "/t-{0..2}.tar", "/t-1.tar", tarOf(t, 77, 30, 1000), 30, 3, 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "cache")
			o := ingest.Options{Source: c.src, Dirs: []string{dir}, Jobs: 1, Remote: source.Remote{NoHedge: true}}
			dry := func() *ingest.Cost {
				t.Helper()
				o := o
				o.DryRun = true
				r, err := ingest.Run(t.Context(), o)
				if err != nil {
					t.Fatal(err)
				}
				return r.Cost
			}
			if cost := dry(); cost.Gets != c.gets {
				t.Errorf("without a cache: %+v", cost)
			}
			ctx, cancel := context.WithCancel(t.Context())
			broken := o
			broken.Progress = func(p cache.Progress) {
				if p.Samples == part {
					cancel()
				}
			}
			if _, err := ingest.Run(ctx, broken); err == nil {
				t.Fatal("it was not broken off")
			}
			goesOn := func(when string, wantGets, wantReads int64) {
				t.Helper()
				before := stateOf(t, dir)
				cost := dry()
				if after := stateOf(t, dir); after != before {
					t.Errorf("%s: the dry run changed\n%s to\n%s", when, before, after)
				}
				r, err := ingest.Run(t.Context(), o)
				if err != nil {
					t.Fatal(err)
				}
				if cost.Index == 0 && (cost.Samples != r.ReadSamples || cost.Bytes != r.ReadBytes) || cost.Gets != wantGets || r.ReadSamples != wantReads {
					t.Errorf("%s: the dry run told %+v, want %d GETs; %d samples were read, want %d, with %d bytes", when, cost, wantGets, r.ReadSamples, wantReads, r.ReadBytes)
				}
				if name == "list" && cost.Listed+cost.Gets != r.Remote.Requests {
					t.Errorf("%s: the dry run told %+v, and %d requests were made", when, cost, r.Remote.Requests)
				}
			}
			all := int64(samples)
			if name == "shards" {
				all = 90
			}
			goesOn("a part is there", c.begins, all-part)
			goesOn("all is there", 0, 0)
			mu.Lock()
			was := files[c.changes]
			mu.Unlock()
			put(c.changes, c.changed)
			defer put(c.changes, was)
			if name == "list" {
				goesOn("one has changed", 1, c.reads)
			} else if cost := dry(); cost.Index != 1 {
				t.Errorf("one shard has changed: %+v, want one index", cost)
			}
			if err := os.WriteFile(filepath.Join(dir, cache.ManifestName), []byte("damaged"), 0o600); err != nil {
				t.Fatal(err)
			}
			if cost := dry(); name == "list" && cost.Samples != samples {
				t.Errorf("the cache is damaged: %+v, want the cost of all", cost)
			}
		})
	}
	other := ingest.Options{Source: srv.URL + "/7", Dirs: []string{filepath.Join(t.TempDir(), "cache")}, DryRun: true}
	if _, err := ingest.Run(t.Context(), other); err == nil {
		t.Error("bytes were taken for a list")
	}
}
