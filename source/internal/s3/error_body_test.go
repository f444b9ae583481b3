package s3_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"lcache/source/internal/object"
	"lcache/source/internal/s3"
	"lcache/source/s3test"
)

const internalError = `<?xml version="1.0" encoding="UTF-8"?><Error><Code>InternalError</Code><Message>We encountered an internal error. Please try again.</Message></Error>`

// readThrough reads an object from a server; answer gives its n-th answer, from 0.
func readThrough(t *testing.T, o object.Object, answer func(n int, w http.ResponseWriter, r *http.Request)) (got []byte, c object.Counts, err error) {
	t.Helper()
	s3test.Environment(t)
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(int(asked.Add(1))-1, w, r) }))
	defer server.Close()
	r := object.NewReader(open(t, server.URL, "b", s3.Settings{}), object.Options{NoHedge: true})
	got = make([]byte, o.Size)
	_, err = r.Read(t.Context(), o, got)
	return got, r.Counts(), err
}

// TestErrorWith200: an error with status 200 is never taken for an object of unknown version and the same length. It
// is requested again.
func TestErrorWith200(t *testing.T) {
	size := int64(len(internalError))
	data := bytes.Repeat([]byte("x"), len(internalError))
	listed := object.Version("one")
	for name, version := range map[string]*uint64{"no version is listed": nil, "a version is listed": &listed} {
		got, c, err := readThrough(t, object.Object{Key: "k", Size: size, Version: version}, func(n int, w http.ResponseWriter, _ *http.Request) {
			if n < 2 {
				w.Header().Set("Content-Type", "application/xml")
				fmt.Fprint(w, internalError)
				return
			}
			w.Header().Set("ETag", `"one"`)
			w.Write(data)
		})
		if err != nil || !bytes.Equal(got, data) || c.Requests != 3 || c.Retries != 2 {
			t.Errorf("%s: %v, %q, %+v; want the object by two retries", name, err, got, c)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/xml")
		if strings.HasSuffix(r.URL.Path, "/slow") {
			fmt.Fprint(w, strings.ReplaceAll(internalError, "InternalError", "SlowDown"))
		} else {
			fmt.Fprint(w, internalError)
		}
	}))
	defer server.Close()
	s := open(t, server.URL, "b", s3.Settings{})
	for key, want := range map[string]object.Error{
		"k":    {Trouble: object.Transient, Err: errors.New(server.URL + " answers 200 with an error (InternalError)")},
		"slow": {Trouble: object.Slow, Err: errors.New(server.URL + " answers 200 with an error (SlowDown)")},
	} {
		_, err := s.Get(t.Context(), object.Request{Key: key, Len: size, Whole: true})
		if e := new(object.Error); !errors.As(err, &e) || e.Trouble != want.Trouble || e.Error() != want.Error() {
			t.Errorf("%s: %v, want %v", key, err, want.Err)
		}
	}
}

// TestXMLSamples: samples may be XML, short and long, and a store need not report versions.
func TestXMLSamples(t *testing.T) {
	for _, data := range []string{"<annotation/>", "<Error>of a sample</Error>", "<Error><Code>" + strings.Repeat("long ", 9000), strings.Repeat("<a>", 1365) + "b"} {
		got, c, err := readThrough(t, object.Object{Key: "k", Size: int64(len(data))}, func(_ int, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/xml")
			fmt.Fprint(w, data)
		})
		if err != nil || string(got) != data || c.Retries != 0 {
			t.Errorf("%.20q: %v, %d retries, or other bytes", data, err, c.Retries)
		}
	}
}

// TestWrongContentLength: an answer of another length than the object's, or its header's, is never accepted. A short
// one is continued, and another length counts as a change.
func TestWrongContentLength(t *testing.T) {
	data := []byte(strings.Repeat("0123456789", 1000))
	for name, c := range map[string]struct {
		says, gives int
		trouble     object.Trouble
		text        string
	}{
		"says less, and gives that": {9_000, 9_000, object.Changed, "it has 9000 bytes, had 10000"},
		"says more, and gives all":  {11_000, 10_000, object.Changed, "it has 11000 bytes, had 10000"},
		"says all, and gives less":  {10_000, 7_000, 0, ""},
		"says all, and gives none":  {10_000, 0, 0, ""},
	} {
		listed := object.Version("one")
		got, counts, err := readThrough(t, object.Object{Key: "k", Size: 10_000, Version: &listed}, func(n int, w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"one"`)
			if from, last := 0, 0; n > 0 {
				if asked := r.Header.Get("Range"); asked != "" {
					if _, err := fmt.Sscanf(asked, "bytes=%d-%d", &from, &last); err != nil || r.Header.Get("If-Match") != `"one"` {
						t.Errorf("%s: asked for %q, with %v", name, asked, r.Header)
					}
					w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/10000", from, last))
					w.WriteHeader(http.StatusPartialContent)
				}
				w.Write(data[from:])
				return
			}
			w.Header().Set("Content-Length", fmt.Sprint(c.says))
			w.Write(data[:c.gives]) // then the connection ends
		})
		e := new(object.Error)
		switch {
		case c.text == "" && (err != nil || !bytes.Equal(got, data) || counts.Requests != 2):
			t.Errorf("%s: %v, %+v, or other bytes", name, err, counts)
		case c.text != "" && (!errors.As(err, &e) || e.Trouble != c.trouble || e.Error() != c.text || counts.Requests != 1):
			t.Errorf("%s: %v after %d requests, want %s", name, err, counts.Requests, c.text)
		}
	}
}
