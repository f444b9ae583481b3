package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"lcache/internal/testenv"
	"lcache/source/s3test"
)

// A session token is sent with each request, and stands nowhere: not in what ingest and a server say, in the status, in the metrics, or in a file of the cache or its name.
func TestSessionTokenIsNowhere(t *testing.T) {
	testenv.AnyIO(t)
	s3test.Environment(t)
	t.Setenv("AWS_SESSION_TOKEN", s3test.Token)
	var refuse atomic.Value // a path
	refuse.Store("")
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Amz-Security-Token") != s3test.Token {
			t.Errorf("%s is not signed with the session token: %v", r.URL, r.Header)
		}
		if r.URL.Query().Get("list-type") != "" {
			fmt.Fprint(w, `<ListBucketResult><IsTruncated>false</IsTruncated>`)
			for i := range 6 {
				fmt.Fprintf(w, `<Contents><Key>set/c%d/%d</Key><Size>4000</Size><ETag>&quot;%d&quot;</ETag></Contents>`, i%2, i, i)
			}
			fmt.Fprint(w, `</ListBucketResult>`)
			return
		}
		if r.URL.Path == refuse.Load() {
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprintf(w, `<Error><Code>InvalidToken</Code><Message>%s</Message></Error>`, strings.Join(s3test.Secrets, " "))
			return
		}
		name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
		w.Header().Set("ETag", `"`+name+`"`)
		w.Write(bytes.Repeat([]byte(name), 4000))
	}))
	defer web.Close()
	s := newStage(t)
	said := ""
	for _, refused := range []string{"/" + s3test.Bucket + "/set/c1/5", ""} {
		refuse.Store(refused)
		out, errs, err := s.shell("lcache ingest --source s3://" + s3test.Bucket + "/set/ --cache cache --jobs 1 --s3-endpoint-url " + web.URL + " --s3-region " + s3test.Region)
		if said += out + errs; (err != nil) != (refused != "") || refused != "" && !strings.Contains(errs, "does not know these credentials (InvalidToken)") {
			t.Errorf("%v: %s%s", err, out, errs)
		}
	}
	for _, secret := range s3test.Secrets {
		if strings.Contains(said, secret) {
			t.Errorf("ingest says %s:\n%s", secret, said)
		}
	}
	out, errs, err := s.shell("if grep -rlaE '" + strings.Join(s3test.Secrets, "|") + "' cache; then exit 3; fi; grep -rla " + s3test.Bucket + " cache")
	if err != nil || out != "cache/job.json\n" {
		t.Errorf("%v: files with a secret: %s%s", err, out, errs)
	}
	s.findSecretsOfServer(t)
}
