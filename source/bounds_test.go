package source_test

import (
	"archive/tar"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lcache/source"
)

// TestMostParts: a sample in a shard, or of files with the same stem, has at most 65,535 parts.
func TestMostParts(t *testing.T) {
	const most = 65535
	at := filepath.Join(t.TempDir(), "x.tar")
	var list strings.Builder
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, list.String()) }))
	defer srv.Close()
	for n, want := range map[int]string{most: "", most + 1: "it has 65536 parts, at most 65535: "} {
		f, err := os.Create(at)
		if err != nil {
			t.Fatal(err)
		}
		w := tar.NewWriter(f)
		list.Reset()
		for i := range n {
			if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("a.%d", i), Mode: 0o644}); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&list, "a.%d\t1\t\te\n", i)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		for src, opts := range map[string]source.Options{"tar:" + at: {}, srv.URL + "/LIST": {Group: source.GroupStem}} {
			_, entries, err := openRemote(t, src, opts).List(t.Context(), nil)
			if want == "" && (err != nil || len(entries) != 1 || len(entries[0].Parts) != n) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s with %d parts: %.300v", src, n, err)
			}
		}
	}
}

// TestSizesThatServersTell: sizes from a server are checked against their bounds before they are used.
func TestSizesThatServersTell(t *testing.T) {
	size := ""
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"x"`)
		switch {
		case r.URL.Path == "/LIST":
			fmt.Fprint(w, "a\n")
		case r.Method == http.MethodHead:
			w.Header().Set("Content-Length", size)
		default:
			w.Header().Set("Content-Range", strings.Replace(r.Header.Get("Range"), "=", " ", 1)+"/"+size)
			w.WriteHeader(http.StatusPartialContent)
			fmt.Fprint(w, "x")
		}
	}))
	defer srv.Close()
	size = "4294967296"
	if _, _, err := openRemote(t, srv.URL+"/LIST", source.Options{}).List(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "it has 4294967296 bytes, and a sample must have less than 4 GiB") {
		t.Errorf("a sample of 4 GiB: %v", err)
	}
	size = "9223372036854775807"
	v, err := source.SurveyOf(t.Context(), openRemote(t, "tar:"+srv.URL+"/{a,b}.tar", source.Options{}), 0, 1)
	if err == nil || !strings.Contains(err.Error(), "all shards together have at most 9223372036854775807") {
		t.Errorf("two shards of 2^63-1 bytes: %+v, %v", v, err)
	}
	if v, err := source.SurveyOf(t.Context(), openRemote(t, "tar:"+srv.URL+"/a.tar", source.Options{}), 0, 1); err != nil || v.Gets != 1<<41 {
		t.Errorf("a shard of 2^63-1 bytes: %+v, %v", v, err)
	}
}
