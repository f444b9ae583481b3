package s3_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"lcache/source/internal/object"
	"lcache/source/internal/s3"
	"lcache/source/s3test"
)

// apiError answers with an error in the form of S3.
func apiError(status int, code, text string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/xml")
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>%s</Message></Error>`, code, text)
	}
}

func page(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(status)
		fmt.Fprint(w, "<!DOCTYPE html><html><body>Please log in</body></html>")
	}
}

func TestErrors(t *testing.T) {
	s3test.Environment(t)
	const denied, deniedHelp = "denied: these credentials lack ", " for the bucket b: ask its owner, or give --s3-requester-pays if its readers pay"
	wrongRegion := "the bucket b is in the region ap-south-1, not eu-test-7: give --s3-region ap-south-1"
	expired := expiredText
	for name, c := range map[string]struct {
		answer    http.HandlerFunc
		get, list string // %s: the address of the server
		trouble   object.Trouble
		after     time.Duration
	}{
		"wrong region":            {apiError(301, "PermanentRedirect", "use the endpoint", "X-Amz-Bucket-Region", "ap-south-1"), wrongRegion, "", object.Final, 0},
		"wrong region, signature": {apiError(400, "AuthorizationHeaderMalformed", "the region &apos;x&apos; is wrong; expecting &apos;ap-south-1&apos;"), wrongRegion, "", object.Final, 0},
		"redirect to another host": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusTemporaryRedirect)
		}, "the bucket b is not in the region eu-test-7 of %s: give --s3-region, or --s3-endpoint-url", "", object.Final, 0},
		"no bucket":     {apiError(404, "NoSuchBucket", "no"), "bucket b not found at %s: check its name, and --s3-endpoint-url", "", object.Final, 0},
		"no object":     {apiError(404, "NoSuchKey", "no"), "it is not in the bucket", "bucket b not found at %s: check its name, and --s3-endpoint-url", object.Gone, 0},
		"denied":        {apiError(403, "AccessDenied", "Access Denied"), denied + "s3:GetObject" + deniedHelp, denied + "s3:ListBucket" + deniedHelp, object.Final, 0},
		"unknown keys":  {apiError(403, "InvalidAccessKeyId", "LCACHETESTACCESSKEY is not known"), "%s does not know these credentials (InvalidAccessKeyId): check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or --s3-profile, and --s3-endpoint-url", "", object.Final, 0},
		"clock skew":    {apiError(403, "RequestTimeTooSkewed", "skew"), "this machine's clock is wrong, so %s refuses its signatures: set the clock (such as by chronyc makestep)", "", object.Final, 0},
		"expired":       {apiError(400, "ExpiredToken", "expired"), expired, "", object.Final, 0},
		"archived":      {apiError(403, "InvalidObjectState", "glacier"), "it is archived (Glacier): restore it first", "", object.Final, 0},
		"page":          {page(200), "%s answers with a web page, not as S3 does: check --s3-endpoint-url, and whether a proxy (HTTPS_PROXY) stands between", "", object.Final, 0},
		"page with 403": {page(403), "%s answers with a web page, not as S3 does: check --s3-endpoint-url, and whether a proxy (HTTPS_PROXY) stands between", "", object.Final, 0},
		"slow down":     {apiError(503, "SlowDown", "slow"), "%s asks for fewer requests (SlowDown)", "", object.Slow, 0},
		"429":           {apiError(429, "", "", "Retry-After", "7"), "%s asks for fewer requests (TooManyRequests)", "", object.Slow, 7 * time.Second},
		"500":           {apiError(500, "InternalError", "no"), "%s answers 500", "", object.Transient, 0},
		"502 page":      {page(502), "%s answers 502", "", object.Transient, 0},
		"412":           {apiError(412, "PreconditionFailed", "no"), "%s answers 412", "", object.Changed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(c.answer)
			defer server.Close()
			s := open(t, server.URL, "b", s3.Settings{})
			check := func(what, want string, trouble object.Trouble, err error) {
				want = strings.ReplaceAll(want, "%s", server.URL)
				e := new(object.Error)
				if !errors.As(err, &e) || e.Error() != want || e.Trouble != trouble || e.After != c.after {
					t.Errorf("%s: %v (class %d, after %v), want class %d:\n%s", what, err, e.Trouble, e.After, trouble, want)
				}
			}
			_, err := s.Get(t.Context(), object.Request{Key: "k", Len: 10, Whole: true})
			check("get", c.get, c.trouble, err)
			listed := c.trouble
			if c.list == "" {
				c.list = c.get
			} else {
				listed = object.Final
			}
			err = s.List(t.Context(), "p/", 2, once, func([]s3.Item) error { return nil })
			check("list", c.list, listed, err)
		})
	}
}

func TestNoCredentials(t *testing.T) {
	s3test.Environment(t)
	os.Unsetenv("AWS_ACCESS_KEY_ID")
	os.Unsetenv("AWS_SECRET_ACCESS_KEY")
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.Header.Get("Authorization") != "" {
			t.Error("a request is signed")
		}
		w.Header().Set("ETag", `"x"`)
		fmt.Fprint(w, "ten bytes!")
	}))
	defer server.Close()
	_, err := open(t, server.URL, "b", s3.Settings{}).Get(t.Context(), object.Request{Key: "k", Len: 10, Whole: true})
	want := "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, give --s3-profile NAME, or --s3-unsigned if the bucket is public"
	if err == nil || err.Error() != want || asked != 0 {
		t.Errorf("%v after %d requests, want none and\n%s", err, asked, want)
	}
	if a, err := open(t, server.URL, "b", s3.Settings{Unsigned: true}).Get(t.Context(), object.Request{Key: "k", Len: 10, Whole: true}); err != nil {
		t.Errorf("unsigned: %v", err)
	} else {
		a.Body.Close()
	}
	_, err = s3.Open(t.Context(), "b", s3.Settings{Profile: "none"})
	if err == nil || !strings.HasPrefix(err.Error(), "the AWS configuration can't be used: ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("a profile that is not there: %v", err)
	}
}

func TestUnreachable(t *testing.T) {
	s3test.Environment(t)
	server := httptest.NewServer(nil)
	url := server.URL
	server.Close()
	_, err := open(t, url, "b", s3.Settings{}).Stat(t.Context(), "k")
	if e := new(object.Error); !errors.As(err, &e) || e.Trouble != object.Transient || e.Error() != url+" can't be reached: connection refused" {
		t.Errorf("no server listens: got %v", err)
	}
}

func TestRequesterPays(t *testing.T) {
	s3test.Environment(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Amz-Request-Payer") != "requester" || r.Header.Get("X-Amz-Checksum-Mode") != "" || !strings.HasPrefix(r.URL.Path, "/b/") {
			t.Errorf("the request is for %s, with %v", r.URL, r.Header)
		}
		w.Header().Set("ETag", `"x"`)
		fmt.Fprint(w, "ten bytes!")
	}))
	defer server.Close()
	a, err := open(t, server.URL, "b", s3.Settings{RequesterPays: true}).Get(t.Context(), object.Request{Key: "k", Len: 10, Whole: true})
	if err != nil {
		t.Fatal(err)
	}
	a.Body.Close()
}

func TestSettings(t *testing.T) {
	environ := func(name string) string {
		return map[string]string{"AWS_ENDPOINT_URL": "http://general", "AWS_ENDPOINT_URL_S3": "http://of.s3:9000/"}[name]
	}
	none := func(string) string { return "" }
	for _, c := range []struct {
		given   string
		environ func(string) string
		want    string
		err     string
	}{
		{"", none, "", ""},
		{"", environ, "http://of.s3:9000", ""},
		{"https://given/", environ, "https://given", ""},
		{"HTTPS://Given:443", none, "https://given", ""},
		{"http://given:80/Path/", none, "http://given/Path", ""},
		{"http://[::1]:80", none, "http://[::1]", ""},
		{"http://given:443", none, "http://given:443", ""},
		{"https://given:80", none, "https://given:80", ""},
		{"http://given:8080", none, "http://given:8080", ""},
		{"given:9000", none, "", "--s3-endpoint-url: it must be like https://minio.example:9000"},
		{"https://me:hush@given", none, "", "--s3-endpoint-url: it must have no user, password or query: give credentials by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or --s3-profile"},
	} {
		got, err := s3.Settings{Endpoint: c.given}.Completed(c.environ)
		if c.err != "" && (err == nil || err.Error() != c.err) || c.err == "" && (err != nil || got.Endpoint != c.want) {
			t.Errorf("%q: %q, %v; want %q %q", c.given, got.Endpoint, err, c.want, c.err)
		}
	}
	for src, want := range map[string]string{"s3://b": "b|", "s3://b/": "b|", "s3://b/p": "b|p/", "s3://b/p/": "b|p/", "s3://b/p/q r": "b|p/q r/"} {
		if bucket, prefix, err := s3.Split(src); err != nil || bucket+"|"+prefix != want {
			t.Errorf("%s: %s|%s, %v; want %s", src, bucket, prefix, err, want)
		}
	}
	for _, src := range []string{"s3://", "s3:///p", "s3://me:hush@b/p", "s3://b/p?X-Amz-Signature=hush"} {
		if _, _, err := s3.Split(src); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v, want an error without the secret", src, err)
		}
	}
}
