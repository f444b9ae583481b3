package s3_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"lcache/source/internal/object"
	"lcache/source/internal/s3"
	"lcache/source/s3test"
)

// listed is a service with a number of folders of two keys each. It answers each request with a page without keys
// first, and continues from its token.
type listed struct {
	folders int
	tokens  bool // there are some

	mu    sync.Mutex // guards after
	after []string   // values of start-after in the requests
}

func (l *listed) key(i int) string { return fmt.Sprintf("f%05d/%d", i/2, i%2) }

func (l *listed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	w.Header().Set("Content-Type", "application/xml")
	fmt.Fprint(w, "<ListBucketResult>")
	defer fmt.Fprint(w, "</ListBucketResult>")
	token, from := q.Get("continuation-token"), 0
	if q.Get("delimiter") != "" {
		from, _ = strconv.Atoi(token)
		for i := from; i < min(from+1000, l.folders); i++ {
			fmt.Fprintf(w, "<CommonPrefixes><Prefix>f%05d/</Prefix></CommonPrefixes>", i)
		}
		fmt.Fprintf(w, "<IsTruncated>%t</IsTruncated><NextContinuationToken>%d</NextContinuationToken>", from+1000 < l.folders, from+1000)
		return
	}
	if token == "" {
		l.mu.Lock()
		l.after = append(l.after, q.Get("start-after"))
		l.mu.Unlock()
		fmt.Fprint(w, "<IsTruncated>true</IsTruncated>")
		if l.tokens {
			fmt.Fprint(w, "<NextContinuationToken>more</NextContinuationToken>")
		}
		return
	}
	for from < 2*l.folders && l.key(from) <= q.Get("start-after") {
		from++
	}
	for i := from; i < min(from+1000, 2*l.folders); i++ {
		fmt.Fprintf(w, "<Contents><Key>%s</Key><Size>3</Size><ETag>&quot;x&quot;</ETag></Contents>", l.key(i))
	}
	fmt.Fprintf(w, "<IsTruncated>%t</IsTruncated>", from+1000 < 2*l.folders)
}

// TestListGoesOn: pages without keys do not end a listing. More folders than fit one page still split it.
func TestListGoesOn(t *testing.T) {
	s3test.Environment(t)
	l := &listed{folders: 2500, tokens: true}
	srv := httptest.NewServer(l)
	defer srv.Close()
	got := keys(t, open(t, srv.URL, "b", s3.Settings{}), "")
	var want []string
	for i := range 2 * l.folders {
		want = append(want, l.key(i))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d keys, want %d", len(got), len(want))
	}
	if !slices.ContainsFunc(l.after, func(a string) bool { return strings.HasSuffix(a, "/") && a > "f02000/" }) {
		t.Errorf("pages were requested after %q, want one that begins after a folder of the third page", l.after)
	}
	l.tokens = false
	err := open(t, srv.URL, "b", s3.Settings{}).List(t.Context(), "", 8, once, func([]s3.Item) error { return nil })
	lost := srv.URL + " says that a listing goes on, and not where: pack the objects into shards (tar:s3://…), which need no listing"
	if e := new(object.Error); !errors.As(err, &e) || e.Trouble != object.Final || e.Error() != lost {
		t.Errorf("%v, want\n%s", err, lost)
	}
}
