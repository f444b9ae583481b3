package main

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
)

// TestListOverHTTPS reads a list by HTTP/2 from a server whose certificate is trusted. The server sends no versions, so the bytes that were read first decide whether a file has changed. A redirect to http is not followed.
func TestListOverHTTPS(t *testing.T) {
	testenv.AnyIO(t)
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect from https to http is followed") }))
	defer plain.Close()
	var changed, old atomic.Bool
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			old.Store(true)
		}
		switch {
		case r.URL.Path == "/LIST":
			fmt.Fprint(w, "a\t7\r\nb\t7\r\n")
		case r.URL.Path == "/AWAY":
			http.Redirect(w, r, plain.URL+"/LIST", http.StatusFound)
		case r.URL.Path == "/b" && changed.Load():
			fmt.Fprint(w, "changed")
		default:
			fmt.Fprint(w, "as ever")
		}
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	s := &everySource{stage: newStage(t)}
	trusted := filepath.Join(t.TempDir(), "ca.pem")
	writeFile(t, trusted, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})))
	s.env = append(s.env, "SSL_CERT_FILE="+trusted)
	var r ingest.Report
	if errs := s.document(t, "lcache ingest --json --source "+srv.URL+"/LIST --cache cache", &r); r.Samples != 2 || r.ReadSamples != 2 || old.Load() {
		t.Errorf("%d samples, %d read; not all by HTTP/2: %v: %s", r.Samples, r.ReadSamples, old.Load(), errs)
	}
	verify := "lcache verify --json --cache cache --against " + srv.URL + "/LIST"
	var v cache.VerifyReport
	if s.document(t, verify, &v); v.Good != 2 || v.Different+v.Uncompared != 0 {
		t.Errorf("%+v", v)
	}
	changed.Store(true)
	if s.document(t, verify, &v); v.Different != 1 {
		t.Errorf("one has changed: %+v", v)
	}
	_, errs, err := s.shell("lcache ingest --source " + srv.URL + "/AWAY --cache away")
	if want := fmt.Sprintf("lcache ingest: list source %q: %s: it redirects from https to http, which is not followed [LC031]\n", srv.URL+"/AWAY", strings.TrimPrefix(srv.URL, "https://")); err == nil || errs != want {
		t.Errorf("%v: %swant %s", err, errs, want)
	}
}

// TestHeadWithABody: a server that answers a HEAD with bytes is read all the same, and its bytes are not shown.
func TestHeadWithABody(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodHead {
			fmt.Fprint(w, map[bool]string{true: "a\nb\n", false: "bytes"}[r.URL.Path == "/LIST"])
			return
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhush!")
		t.Cleanup(func() { conn.Close() })
	}))
	defer srv.Close()
	s := newStage(t)
	out, errs, err := s.shell("lcache ingest --progress none --source " + srv.URL + "/LIST --cache cache")
	if err != nil || !strings.Contains(out, "2 samples") || strings.Contains(errs, "hush") {
		t.Errorf("%v: %s%s", err, out, errs)
	}
}
