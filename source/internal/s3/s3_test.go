package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"lcache/source/internal/object"
	"lcache/source/internal/s3"
	"lcache/source/s3test"
)

func open(t *testing.T, url, bucket string, set s3.Settings) *s3.Store {
	t.Helper()
	set.Endpoint = url
	if set.Region == "" {
		set.Region = s3test.Region
	}
	s, err := s3.Open(t.Context(), bucket, set)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// once sends a request without retries.
func once(ctx context.Context, send func(ctx context.Context) error) error { return send(ctx) }

func keys(t *testing.T, s *s3.Store, prefix string) []string {
	t.Helper()
	var all []string
	err := s.List(t.Context(), prefix, 8, once, func(items []s3.Item) error {
		for _, i := range items {
			all = append(all, i.Key)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

func TestGetAndStat(t *testing.T) {
	g := s3test.Start(t)
	data := bytes.Repeat([]byte("0123456789"), 100)
	g.Fill(t, map[string][]byte{"a/x y+%": data})
	s := open(t, g.URL, s3test.Bucket, s3.Settings{})
	info, err := s.Stat(t.Context(), "a/x y+%")
	if err != nil || info.Size != 1000 || info.Tag == "" {
		t.Fatalf("%+v, %v", info, err)
	}
	read := func(r object.Request) (string, int64, error) {
		r.Key = "a/x y+%"
		a, err := s.Get(t.Context(), r)
		if err != nil {
			return "", 0, err
		}
		defer a.Body.Close()
		b, err := io.ReadAll(a.Body)
		if a.Size != 1000 || a.Tag != info.Tag {
			t.Errorf("answer to %+v: %+v, want 1000 bytes and the tag %s", r, a, info.Tag)
		}
		return string(b), a.From, err
	}
	if b, from, err := read(object.Request{Len: 1000, Whole: true}); err != nil || b != string(data) || from != 0 {
		t.Errorf("whole: %d bytes from %d, %v", len(b), from, err)
	}
	if b, from, err := read(object.Request{From: 15, Len: 10, Tag: info.Tag, OwnConnection: true}); err != nil || b != "5678901234" || from != 15 {
		t.Errorf("range: %q from %d, %v", b, from, err)
	}
	for class, r := range map[object.Trouble]object.Request{
		object.Changed: {Key: "a/x y+%", From: 15, Len: 10, Tag: "other"},
		object.Gone:    {Key: "a/none", Len: 1, Whole: true},
	} {
		_, err := s.Get(t.Context(), r)
		if e := new(object.Error); !errors.As(err, &e) || e.Trouble != class {
			t.Errorf("%+v: %v, want the class %d", r, err, class)
		}
	}
	g.Fill(t, map[string][]byte{"other": data[:10]}) // with the same client
	if info, err := s.Stat(t.Context(), "other"); err != nil || info.Size != 10 {
		t.Errorf("another object: %+v, %v", info, err)
	}
	_, err = s.Get(t.Context(), object.Request{Key: "a/x y+%", From: 2000, Len: 10})
	if e := new(object.Error); !errors.As(err, &e) || e.Trouble != object.Changed {
		t.Errorf("a range behind the end: %v", err)
	}
}

func TestList(t *testing.T) {
	g := s3test.Start(t)
	names := []string{"new\nline", "tab\tx", "-rf", "100%", "q?&=#", "a+b c", "ümläut", "日本", "\U0001F642", "*", "quote'\"", "<xml>&amp;"}
	files := map[string][]byte{}
	var want []string
	for i, n := range names {
		files["odd/"+n] = []byte{byte(i)}
		want = append(want, "odd/"+n)
	}
	for i := range 30 { // many folders, one of them with several pages
		files[fmt.Sprintf("many/%c/%d", 'a'+i%26, i)] = nil
	}
	for i := range 1100 {
		files[fmt.Sprintf("many/m/%05d", i*7)] = nil
	}
	for i := range 1200 { // no folder, and names with a common prefix
		files[fmt.Sprintf("flat/img_%06d", i*31)] = nil
	}
	g.Fill(t, files)
	s := open(t, g.URL, s3test.Bucket, s3.Settings{})
	slices.Sort(want)
	if got := keys(t, s, "odd/"); !slices.Equal(got, want) {
		t.Errorf("keys are\n%q, want\n%q", got, want)
	}
	for _, prefix := range []string{"many/", "flat/", "", "none/"} {
		var want []string
		for k := range files {
			if strings.HasPrefix(k, prefix) {
				want = append(want, k)
			}
		}
		slices.Sort(want)
		// The gateway lists folders as keys that end in a slash only if they were created as such.
		if got := keys(t, s, prefix); !slices.Equal(got, want) {
			t.Errorf("below %q: %d keys, want %d", prefix, len(got), len(want))
		}
	}
}

// TestEncodedKeys: the gateway sends keys as they are. S3 encodes them, so they may have characters that XML does not
// allow.
func TestEncodedKeys(t *testing.T) {
	s3test.Environment(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("encoding-type") != "url" {
			t.Errorf("asked by %s, want the keys encoded", r.URL)
		}
		w.Header().Set("Content-Type", "application/xml")
		fmt.Fprint(w, `<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>`+
			`<Contents><Key>p/a+b%2Bc%01%0A%25</Key><Size>3</Size><ETag>&quot;x-2&quot;</ETag></Contents></ListBucketResult>`)
	}))
	defer server.Close()
	if got := keys(t, open(t, server.URL, "b", s3.Settings{}), "p/"); !slices.Equal(got, []string{"p/a b+c\x01\n%"}) {
		t.Errorf("keys are %q", got)
	}
}

// TestListingThatDoesNotGrow: some services ignore start-after, and begin each page with the first key. Others list
// keys in no order. A listing of either is an error.
func TestListingThatDoesNotGrow(t *testing.T) {
	s3test.Environment(t)
	for name, c := range map[string]struct {
		key  func(page, i int) int
		want string
	}{
		"each page is the first": {func(_, i int) int { return i }, `lists the key "p/0000" behind "p/`},
		"a page is unsorted":     {func(_, i int) int { return 2000 - i }, `lists the key "p/1999" behind "p/2000`},
		"a page repeats a key":   {func(page, i int) int { return page*1000 + min(i, 998) }, `lists the key "p/0998" behind "p/0998`},
	} {
		t.Run(name, func(t *testing.T) {
			var pages atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				page := int(pages.Add(1)) - 1
				if page > 1000 {
					t.Error("more than 1,000 requests")
				}
				w.Header().Set("Content-Type", "application/xml")
				fmt.Fprint(w, `<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>`)
				for i := range 1000 {
					fmt.Fprintf(w, `<Contents><Key>p/%04d</Key><Size>3</Size><ETag>&quot;x&quot;</ETag></Contents>`, c.key(page, i))
				}
				fmt.Fprint(w, `</ListBucketResult>`)
			}))
			defer server.Close()
			given := 0
			err := open(t, server.URL, "b", s3.Settings{}).List(t.Context(), "p/", 8, once, func(items []s3.Item) error {
				given += len(items)
				return nil
			})
			const advice = `": it does not go on where it is asked to (start-after), or has another order than S3, so more than 1,000 keys can't be listed: pack the objects into shards (tar:s3://…), which need no listing`
			if e := new(object.Error); !errors.As(err, &e) || e.Trouble != object.Final || !strings.HasPrefix(e.Error(), server.URL+" "+c.want) || !strings.HasSuffix(e.Error(), advice) {
				t.Errorf("%v, want\n%s %s…%s", err, server.URL, c.want, advice)
			}
			if given > 1000 {
				t.Errorf("%d keys were given on", given)
			}
		})
	}
}
