package s3_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"lcache/source/internal/object"
	"lcache/source/internal/s3"
	"lcache/source/s3test"
)

// TestManyAtOnce: many concurrent requests, each signed for its own object, share the resolved endpoint.
func TestManyAtOnce(t *testing.T) {
	g := s3test.Start(t)
	files := map[string][]byte{}
	for i := range 8 {
		files[fmt.Sprintf("p/%d", i)] = fmt.Append(nil, i)
	}
	g.Fill(t, files)
	s := open(t, g.URL, s3test.Bucket, s3.Settings{})
	var wg sync.WaitGroup
	for key, data := range files {
		wg.Go(func() {
			for range 20 {
				a, err := s.Get(t.Context(), object.Request{Key: key, Len: 1, Whole: true})
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(a.Body)
				if a.Body.Close(); err != nil || string(got) != string(data) {
					t.Errorf("%s: %q, %v", key, got, err)
				}
			}
		})
	}
	wg.Wait()
}

// TestNoTokens: each request that many goroutines send through one client is sent once, and fails with the store's
// answer. The SDK does not retry, and does not count its tokens.
func TestNoTokens(t *testing.T) {
	s3test.Environment(t)
	var asked atomic.Int64
	busy := apiError(503, "SlowDown", "Please reduce your request rate.")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		busy(w, r)
	}))
	defer server.Close()
	s := open(t, server.URL, "b", s3.Settings{})
	const readers, each = 16, 50 // the SDK has tokens for 100 retries
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			for range each {
				_, err := s.Get(t.Context(), object.Request{Key: "k", Len: 1, Whole: true})
				if e := new(object.Error); !errors.As(err, &e) || e.Trouble != object.Slow {
					t.Errorf("got %v, want the store's SlowDown", err)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := asked.Load(); n != readers*each {
		t.Errorf("%d requests, want %d", n, readers*each)
	}
}
