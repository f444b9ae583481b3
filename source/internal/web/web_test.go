package web_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"lcache/source/internal/object"
	"lcache/source/internal/web"
)

func open(t *testing.T, address string) *web.Store {
	t.Helper()
	s, err := web.Open(address, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// server serves data at /d/x, with a strong ETag, and calls other for all other paths.
func server(t *testing.T, data []byte, etag *string, other http.HandlerFunc) *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("/d/x", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", *etag)
		http.ServeContent(w, r, "", time.Unix(1_700_000_000, 0), bytes.NewReader(data))
	})
	if other != nil {
		mux.HandleFunc("/", other)
	}
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func TestGet(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 100)
	etag := `"one"`
	srv := server(t, data, &etag, nil)
	s := open(t, srv.URL+"/d/list")
	get := func(r object.Request) (string, object.Answer) {
		t.Helper()
		r.Key = "x"
		a, err := s.Get(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		b, err := io.ReadAll(a.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b), *a
	}
	for _, r := range []object.Request{{Whole: true, Len: 1000}, {From: 15, Len: 10}, {From: 15, Len: 10, Tag: `"one"`, OwnConnection: true}} {
		b, a := get(r)
		if want := string(data[r.From : r.From+r.Len]); b != want || a.From != r.From || a.Size != 1000 || a.Tag != etag {
			t.Errorf("%+v: %d bytes, %+v", r, len(b), a)
		}
	}
	if b, a := get(object.Request{From: 15, Len: 10, Tag: `"other"`}); len(b) != 1000 || a.From != 0 || a.Tag != etag {
		t.Errorf("a range of another version: %d bytes, %+v; want the whole, with its tag", len(b), a)
	}
	if info, err := s.Stat(t.Context(), "x"); err != nil || info != (object.Info{Size: 1000, Tag: etag}) {
		t.Errorf("%+v, %v", info, err)
	}
	for _, weak := range []string{`W/"one"`, ""} {
		etag = weak
		if info, err := s.Stat(t.Context(), "x"); err != nil || info.Tag != "Tue, 14 Nov 2023 22:13:20 GMT" {
			t.Errorf("ETag %s: %+v, %v; want the time of the last change", weak, info, err)
		}
	}
	if _, err := s.Get(t.Context(), object.Request{Key: "x", From: 5000, Len: 1}); !isTrouble(err, object.Changed) {
		t.Errorf("a range behind the end: %v", err)
	}
}

func isTrouble(err error, want object.Trouble) bool {
	e := new(object.Error)
	return errors.As(err, &e) && e.Trouble == want
}

func TestErrors(t *testing.T) {
	status := func(code int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
		}
	}
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	hops := 0
	for name, c := range map[string]struct {
		answer  http.HandlerFunc
		want    string // %s: the server's host
		trouble object.Trouble
	}{
		"gone":              {status(404), "%s answers 404", object.Gone},
		"denied":            {status(403), "%s answers 403: lcache reads only public files from a web server", object.Final},
		"slow":              {status(503, "Retry-After", "3"), "%s answers 503", object.Slow},
		"many":              {status(429), "%s answers 429", object.Slow},
		"error":             {status(500), "%s answers 500", object.Transient},
		"changed":           {status(412), "%s answers 412", object.Changed},
		"compressed":        {status(200, "Content-Encoding", "gzip"), `%s answers in the encoding "gzip", which was not asked for`, object.Final},
		"redirect to https": {status(302, "Location", secure.URL+"/?token=hush"), "%s: it redirects from http to https, which is not followed", object.Final},
		"redirects for ever": {func(w http.ResponseWriter, r *http.Request) {
			hops++
			http.Redirect(w, r, "/more", http.StatusFound)
		}, "%s: it redirects more than once, which is not followed", object.Final},
	} {
		etag := `"x"`
		srv := server(t, nil, &etag, c.answer)
		host := strings.TrimPrefix(srv.URL, "http://")
		_, err := open(t, srv.URL+"/d/list").Get(t.Context(), object.Request{Key: "y", Len: 10, Whole: true})
		if want := strings.ReplaceAll(c.want, "%s", host); !isTrouble(err, c.trouble) || err.Error() != want {
			t.Errorf("%s: %v; want class %d: %s", name, err, c.trouble, want)
		}
	}
	if hops != 2 {
		t.Errorf("%d requests for a redirect to itself, want 2", hops)
	}
}

func TestOneRedirectIsFollowed(t *testing.T) {
	etag := `"x"`
	data := []byte("0123456789")
	to := server(t, data, &etag, nil)
	from := server(t, nil, &etag, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, to.URL+"/d/x?signature=hush", http.StatusFound)
	})
	s, err := web.Open(from.URL+"/list", true)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a, err := s.Get(t.Context(), object.Request{Key: "y", From: 3, Len: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	if b, _ := io.ReadAll(a.Body); string(b) != "3456" || a.From != 3 {
		t.Errorf("%q from %d", b, a.From)
	}
}

func TestAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"https://me:hush@host/list":   "it has a user or a password: only servers that need none can be read",
		"https://host/list?sig=hush":  "it has a query: give an address without one",
		"https:///list":               "it is not the address of a list: give https://HOST/PATH/LIST",
		"https://host/list#part":      "it has a fragment (#): write it as %23 if it belongs to the name",
		"https://host/a%20b/list.txt": "",
	} {
		_, err := web.Open(address, false)
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
	s, err := web.Open("https://host/d/list", false)
	if err != nil {
		t.Fatal(err)
	}
	other, _ := web.Open("https://host/d/list", true)
	for key, ok := range map[string][2]bool{"a/b.jpg": {true, true}, "/top": {true, true}, "https://host/x": {true, true}, "https://other/x": {false, true},
		"//other/x": {false, true}, "http://host/x": {false, false}, "https://me:hush@host/x": {false, false}, "x?sig=hush": {false, false},
		"file:///etc/passwd": {false, false}, "a%zz": {false, false}, "x#y": {false, false}, "a b": {true, true}, "日本": {true, true}} {
		if err := s.Check(key); (err == nil) != ok[0] || err != nil && strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", key, err)
		}
		if err := other.Check(key); (err == nil) != ok[1] {
			t.Errorf("%s, with other hosts: %v", key, err)
		}
	}
}

// TestOrigins: the same host with another scheme or port is another server. A default port makes no difference.
func TestOrigins(t *testing.T) {
	for _, c := range []struct{ list, key, said string }{
		{"http://host/d/list", "http://HOST:80/x", ""},
		{"https://host:443/d/list", "https://host/x", ""},
		{"http://host/d/list", "https://host/x", "https://host"},
		{"http://host/d/list", "http://host:8080/x", "host:8080"},
		{"https://[::1]/d/list", "https://[::1]:443/x", ""},
		{"https://[::1]/d/list", "https://[::2]/x", "[::2]"},
	} {
		want := ""
		if c.said != "" {
			want = "it is on another host than the list (" + c.said + "): give --http-allow-other-hosts if that is meant"
		}
		if err := open(t, c.list).Check(c.key); want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%s in %s: %v, want %q", c.key, c.list, err, want)
		}
		other, err := web.Open(c.list, true)
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Check(c.key); err != nil {
			t.Errorf("%s in %s, with other hosts: %v", c.key, c.list, err)
		}
	}
}

func TestParse(t *testing.T) {
	got, err := web.Parse([]byte("\ufeffa.jpg\r\n\n# remark\nb/c.jpg\t10\nd\t\tcat\ne\t7\t3\tabc\nf\t7\t3\t\"abc\"\ng\t7\t\tW/\"abc\""))
	want := []web.Line{{"a.jpg", -1, "", "", 1}, {"b/c.jpg", 10, "", "", 4}, {"d", -1, "cat", "", 5}, {"e", 7, "3", `"abc"`, 6}, {"f", 7, "3", `"abc"`, 7}, {"g", 7, "", "", 8}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\n%v, want\n%v", err, got, want)
	}
	for text, want := range map[string]string{
		"a\nb\tx\n":                            "line 2: its size is not a number: want an address and, after tabs, SIZE, LABEL and ETAG",
		"\t5":                                  "line 1: it has no address",
		"a\t-1":                                "line 1: its size is not a number: want an address and, after tabs, SIZE, LABEL and ETAG",
		"a\t1\t2\t3\t4":                        "line 1: 5 fields: want an address and, after tabs, SIZE, LABEL and ETAG",
		"a\t1\t\t" + strings.Repeat("e", 1023): "line 1: its version (ETag) has 1025 bytes, at most 1024",
		strings.Repeat("k", 65537):             "line 1: its address has 65537 bytes, at most 65536: shorten it",
		"a" + strings.Repeat("\t", 10_000_000): "line 1: 10000001 fields: want an address and, after tabs, SIZE, LABEL and ETAG",
		" \n<!DOCTYPE html><body>log in":       "it is a web page, not a list: check the address, and whether a proxy or a login stands between",
		"PK\x03\x04\x00":                       "it is binary data, not a list: give the address of a text with one address a line",
	} {
		if _, err := web.Parse([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestLongHeaders: the headers of an answer are bounded.
func TestLongHeaders(t *testing.T) {
	header, value := "", ""
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Header().Set(header, value) }))
	defer srv.Close()
	for _, c := range []struct {
		header, value, want string
	}{
		{"ETag", `"` + strings.Repeat("e", 1023) + `"`, "its version (ETag) has 1025 bytes, at most 1024"},
		{"Last-Modified", strings.Repeat("m", 1025), "its version (ETag) has 1025 bytes, at most 1024"},
		{"X", strings.Repeat("x", 70_000), "server response headers exceeded 65536 bytes"},
	} {
		header, value = c.header, c.value
		s := open(t, srv.URL+"/list")
		r := object.NewReader(s, object.Options{NoHedge: true, Patience: time.Millisecond, Idle: 10 * time.Second})
		_, read := r.Read(t.Context(), object.Object{Key: "x", Size: 1}, make([]byte, 1))
		_, stat := r.Stat(t.Context(), "x")
		for what, err := range map[string]error{"read": read, "stat": stat} {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %s: %v, want %s", c.header, what, err, c.want)
			}
		}
	}
}

// TestReader uses a reader on the store: an ETag that changes between two ranges, and a list whose answer is cut
// once.
func TestReader(t *testing.T) {
	data := make([]byte, 9<<20)
	n := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n++
		w.Header().Set("ETag", fmt.Sprintf(`"%d"`, n))
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}))
	defer srv.Close()
	r := object.NewReader(open(t, srv.URL+"/list"), object.Options{})
	if _, err := r.Read(t.Context(), object.Object{Key: "x", Size: 9 << 20}, make([]byte, 9<<20)); !isTrouble(err, object.Changed) {
		t.Errorf("another ETag in the second range: %v", err)
	}
	tries := 0
	cut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "6")
		if tries++; tries == 1 {
			fmt.Fprint(w, "a\n")
			panic(http.ErrAbortHandler)
		}
		fmt.Fprint(w, "a\nb\nc\n")
	}))
	defer cut.Close()
	r = object.NewReader(open(t, cut.URL+"/list"), object.Options{})
	if list, err := r.ReadAll(t.Context(), "", 100); err != nil || string(list) != "a\nb\nc\n" || tries != 2 {
		t.Errorf("%q after %d tries, %v", list, tries, err)
	}
	if _, err := r.ReadAll(t.Context(), "", 5); !isTrouble(err, object.Final) {
		t.Errorf("a list that is too long: %v", err)
	}
}
