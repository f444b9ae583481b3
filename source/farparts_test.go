package source_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lcache/sample"
	"lcache/source"
	"lcache/source/sourcetest"
)

// farParts is a web server with one sample of three parts that are megabytes apart, as columns of an Arrow file are. hold is called for each range of the file.
func farParts(t testing.TB, hold func()) (source.Source, sample.Entry, []byte) {
	t.Helper()
	data, index, want := sourcetest.Content(1, 5<<20), "shard\toffset\tlength\tpart\tname\n", []byte(nil)
	for k := range 3 {
		index += fmt.Sprintf("a\t%d\t%d\tp%d\tx\n", k<<21, 1000+k, k)
		want = append(want, data[k<<21:][:1000+k]...)
	}
	listed := atomic.Bool{}
	web := &site{files: map[string][]byte{}, etags: map[string]int{}, ranges: true}
	web.Write("a", data)
	web.Write("index.tsv", []byte(index))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if listed.Load() && strings.HasSuffix(r.URL.Path, "/a") && r.Header.Get("Range") != "" {
			hold()
		}
		web.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	s, err := source.Open("ranges:"+srv.URL+"/data/index.tsv", source.Options{Remote: source.Remote{NoHedge: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	_, entries, err := s.List(t.Context(), nil)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%d samples, %v", len(entries), err)
	}
	listed.Store(true)
	return s, entries[0], want
}

// TestFarParts: parts of a sample that are far apart are requested at the same time over a network.
func TestFarParts(t *testing.T) {
	arrived, all := atomic.Int32{}, make(chan bool)
	s, e, want := farParts(t, func() {
		if arrived.Add(1) == 3 {
			close(all)
		}
		select {
		case <-all:
		case <-time.After(30 * time.Second):
			t.Error("a request waited 30 s for the requests of the other parts")
		}
	})
	got := make([]byte, e.Size)
	if err := s.Read(t.Context(), e, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("other bytes, or %v", err)
	}
}

// BenchmarkFarParts reads a sample of three far parts from a server that answers after 20 ms.
func BenchmarkFarParts(b *testing.B) {
	s, e, _ := farParts(b, func() { time.Sleep(20 * time.Millisecond) })
	got := make([]byte, e.Size)
	for b.Loop() {
		if err := s.Read(b.Context(), e, got); err != nil {
			b.Fatal(err)
		}
	}
}
