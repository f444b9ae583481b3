package ingest_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
)

// TestMemoryOfPieces: samples of a few bytes are far apart in their shards, so each reader has a piece of 4 MiB for
// them. The memory of all readers together is bounded, however small the samples are.
func TestMemoryOfPieces(t *testing.T) {
	testenv.WithoutRace(t)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	gap := make([]byte, 200<<10)
	add := func(name string, data []byte) {
		if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(data)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		w.Write(data)
	}
	for i := range 320 {
		add(fmt.Sprintf("%04d.bin", i), []byte{byte(i), byte(i >> 8)})
		add("left-out", gap) // without a dot
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex // guards most
	most := uint64(0)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"1"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b.Bytes()))
	}))
	defer srv.Close()
	o := ingest.Options{Source: "tar:" + srv.URL + "/{0..7}.tar", Dirs: []string{filepath.Join(t.TempDir(), "cache")}, Memory: 64 << 20, NoPrefill: true}
	if _, err := ingest.Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	o.NoPrefill = false
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	o.Progress = func(p cache.Progress) {
		var now runtime.MemStats
		if p.Stage == "reading" && p.Samples%64 == 0 {
			runtime.GC() // measures memory in use, not garbage
			runtime.ReadMemStats(&now)
			mu.Lock()
			defer mu.Unlock()
			most = max(most, now.HeapInuse)
		}
	}
	r, err := ingest.Run(t.Context(), o)
	if err != nil || r.StoredSamples != 8*320 {
		t.Fatalf("%+v, %v", r, err)
	}
	const bound = 24 * (4 << 20) * 2 // pieces of all readers, and as much again for pieces that are read while others are stored
	if took := int64(most) - int64(before.HeapInuse); took > bound {
		t.Errorf("the readers took %d MiB, want at most %d", took>>20, bound>>20)
	} else {
		t.Logf("the readers took %d MiB", took>>20)
	}
}
