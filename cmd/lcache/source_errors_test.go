package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"lcache/source/s3test"
)

// TestSourceErrors holds what lcache ingest says, whole, where a source can't be had: one line each, with its cure and without a secret.
func TestSourceErrors(t *testing.T) {
	s3test.Environment(t)
	t.Setenv("AWS_SESSION_TOKEN", s3test.Token)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		bucket, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		said, ok := map[string]struct {
			status int
			code   string
		}{
			"elsewhere": {301, "PermanentRedirect"}, "none": {404, "NoSuchBucket"}, "denied": {403, "AccessDenied"}, "skewed": {403, "RequestTimeTooSkewed"},
			"expired": {400, "ExpiredToken"}, "unknown": {403, "InvalidAccessKeyId"},
		}[bucket]
		if bucket == "LONG" {
			w.Header().Set("Content-Length", strconv.Itoa(1<<30+1))
			return
		}
		if !ok {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<!DOCTYPE html><html><body>Please log in</body></html>")
			return
		}
		w.Header().Set("X-Amz-Bucket-Region", "ap-south-1")
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(said.status)
		if r.Header.Get("X-Amz-Security-Token") != s3test.Token {
			t.Errorf("%s is not signed with the session token: %v", r.URL, r.Header)
		}
		fmt.Fprintf(w, `<Error><Code>%s</Code><Message>of %s</Message></Error>`, said.code, strings.Join(s3test.Secrets, " with "))
	}))
	defer web.Close()
	dir := t.TempDir()
	shard := func(name string, cut int, members ...string) {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, m := range members {
			if err := w.WriteHeader(&tar.Header{Name: m, Size: 1000, Mode: 0o644}); err != nil {
				t.Fatal(err)
			}
			w.Write(make([]byte, 1000))
		}
		w.Close()
		if err := os.WriteFile(filepath.Join(dir, name), b.Bytes()[:b.Len()-cut], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	shard("short.tar", 2000, "a.jpg", "b.jpg")
	shard("twice.tar", 0, "a.jpg", "a.JPG")
	if err := os.WriteFile(filepath.Join(dir, "x.tar.gz"), []byte("\x1f\x8b"+strings.Repeat("x", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	help := " for the bucket denied: ask its owner, or give --s3-requester-pays if its readers pay"
	for _, c := range []struct{ src, want string }{
		{"s3://elsewhere/p/", `list source "s3://elsewhere/p/": the bucket elsewhere is in the region ap-south-1, not eu-test-7: give --s3-region ap-south-1`},
		{"s3://none/p/", `list source "s3://none/p/": bucket none not found at URL: check its name, and --s3-endpoint-url`},
		{"s3://denied/p/", `list source "s3://denied/p/": denied: these credentials lack s3:ListBucket` + help},
		{"tar:s3://denied/x.tar", `list source "tar:s3://denied/x.tar": shard "x.tar": denied: these credentials lack s3:GetObject` + help},
		{"tar:s3://expired/x.tar", `list source "tar:s3://expired/x.tar": shard "x.tar": the session token has expired: get new credentials (such as by aws sso login), and start again; a server that still runs keeps the environment it was started in: end it by lcache stop`},
		{"tar:s3://skewed/x.tar", `list source "tar:s3://skewed/x.tar": shard "x.tar": this machine's clock is wrong, so URL refuses its signatures: set the clock (such as by chronyc makestep)`},
		{"tar:s3://none/x.tar", `list source "tar:s3://none/x.tar": shard "x.tar": bucket none not found at URL: check its name, and --s3-endpoint-url`},
		{"tar:s3://elsewhere/x.tar", `list source "tar:s3://elsewhere/x.tar": shard "x.tar": the bucket elsewhere is in the region ap-south-1, not eu-test-7: give --s3-region ap-south-1`},
		{"tar:s3://page/x.tar", `list source "tar:s3://page/x.tar": shard "x.tar": URL answers with a web page, not as S3 does: check --s3-endpoint-url, and whether a proxy (HTTPS_PROXY) stands between`},
		{"tar:URL/x.tar", `list source "tar:URL/x.tar": shard "x.tar": it is a web page, not a shard: check the address, and whether a proxy or a login stands between`},
		{"s3://skewed/p/", `list source "s3://skewed/p/": this machine's clock is wrong, so URL refuses its signatures: set the clock (such as by chronyc makestep)`},
		{"s3://expired/p/", `list source "s3://expired/p/": the session token has expired: get new credentials (such as by aws sso login), and start again; a server that still runs keeps the environment it was started in: end it by lcache stop`},
		{"s3://unknown/p/", `list source "s3://unknown/p/": URL does not know these credentials (InvalidAccessKeyId): check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or --s3-profile, and --s3-endpoint-url`},
		{"s3://page/p/", `list source "s3://page/p/": URL answers with a web page, not as S3 does: check --s3-endpoint-url, and whether a proxy (HTTPS_PROXY) stands between`},
		{"URL/LIST", `list source "URL/LIST": it is a web page, not a list: check the address, and whether a proxy or a login stands between`},
		{"URL/LONG", `list source "URL/LONG": it has more than 1073741824 bytes: split it`},
		{"tar:" + dir + "/short.tar", `list source "tar:DIR/short.tar": shard "short.tar" is truncated: its member "b.jpg" ends at byte 3048, and the shard has 2096: copy or write it again`},
		{"tar:" + dir + "/twice.tar", `list source "tar:DIR/twice.tar": shard "twice.tar": sample "a" has the part "jpg" twice, as "a.jpg" and as "a.JPG": rename one of them`},
		{"tar:" + dir + "/x.tar.gz", `list source "tar:DIR/x.tar.gz": shard "x.tar.gz" is compressed, and samples can't be read at random in it: unpack it (gunzip) and name the .tar, or give --stream to read it once, front to back`},
		{"tar:" + dir + "/none.tar", `list source "tar:DIR/none.tar": shard "none.tar" is missing: put it there, or correct the pattern`},
	} {
		real := strings.NewReplacer("URL", web.URL, "DIR", dir)
		args := []string{"ingest", "--source", real.Replace(c.src), "--cache", filepath.Join(t.TempDir(), "cache")}
		if strings.Contains(c.src, "s3:") {
			args = append(args, "--s3-endpoint-url", web.URL, "--s3-region", s3test.Region)
		}
		var out, errs bytes.Buffer
		code := run(args, &out, &errs)
		if got, want := withoutCodes(errs.String()), "lcache ingest: "+real.Replace(c.want)+"\n"; code != exitError || !strings.Contains(errs.String(), " [LC0") || out.Len() != 0 || got != want {
			t.Errorf("%s: exit code %d, %q\n%s\nwant\n%s", c.src, code, out.String(), got, want)
		}
	}
	os.Unsetenv("AWS_ACCESS_KEY_ID")
	os.Unsetenv("AWS_SECRET_ACCESS_KEY")
	var errs bytes.Buffer
	code := run([]string{"ingest", "--source", "s3://b/p/", "--cache", filepath.Join(t.TempDir(), "cache"), "--s3-endpoint-url", web.URL}, &bytes.Buffer{}, &errs)
	want := "lcache ingest: list source \"s3://b/p/\": no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, give --s3-profile NAME, or --s3-unsigned if the bucket is public\n"
	if code != exitError || withoutCodes(errs.String()) != want {
		t.Errorf("exit code %d\n%s\nwant\n%s", code, errs.String(), want)
	}
}
