package s3_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"lcache/source/internal/object"
	"lcache/source/internal/s3"
	"lcache/source/s3test"
)

// endless answers with head, and then with fill again and again, until the client closes the connection. It returns
// the number of bytes written.
func endless(w http.ResponseWriter, status int, head, fill string) (written int) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, err := io.WriteString(w, head)
	for fill := bytes.Repeat([]byte(fill), 1+64<<10/len(fill)); err == nil; {
		var n int
		n, err = w.Write(fill)
		written += n
	}
	return written
}

func contents(n int, key, more string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "<Contents><Key>p/%s%07d</Key><Size>3</Size>%s</Contents>", key, i, more)
	}
	return b.String()
}

func list(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/xml")
		fmt.Fprintf(w, "<ListBucketResult>%s</ListBucketResult>", body)
	}
}

// TestAnswersWithoutEnd: a service's answer is read only up to its limit, and the error names the limit. The service
// can write a little more than is read, because of socket buffers.
func TestAnswersWithoutEnd(t *testing.T) {
	const sockets = 16 << 20
	s3test.Environment(t)
	for name, c := range map[string]struct {
		status     int
		head, fill string
		get, list  string // %s: the address of the server; "": not requested
		most       int    // bytes
		trouble    object.Trouble
	}{
		"error": {403, "<Error><Code>AccessDenied</Code><Message>", "x", "denied: these credentials lack s3:GetObject for the bucket b: ask its owner, or give --s3-requester-pays if its readers pay (its error has more than 4 KiB, and was not read further)",
			"denied: these credentials lack s3:ListBucket for the bucket b: ask its owner, or give --s3-requester-pays if its readers pay (its error has more than 4 KiB, and was not read further)", 4 << 10, object.Final},
		"error that passes": {500, "<Error><Code>InternalError</Code><Message>", "x", "%s answers 500 (its error has more than 4 KiB, and was not read further)", "%s answers 500 (its error has more than 4 KiB, and was not read further)", 4 << 10, object.Transient},
		"long signature": {403, "<?xml version=\"1.0\"?>\n<Error><Code>SignatureDoesNotMatch</Code><CanonicalRequestBytes>", "2f ",
			"%s does not know these credentials (SignatureDoesNotMatch): check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or --s3-profile, and --s3-endpoint-url (its error has more than 4 KiB, and was not read further)", "", 4 << 10, object.Final},
		"no code": {404, "", "<a>", "it is not in the bucket (its error has more than 4 KiB, and was not read further)", "", 4 << 10, object.Gone},
		"key":     {200, "<ListBucketResult><Contents><Key>p/", "x", "", "%s does not answer as S3 does: a page of the listing has more than 16 MiB", 16 << 20, object.Final},
		"keys":    {200, "<ListBucketResult>", "<Contents/>", "", "%s does not answer as S3 does: a page of the listing has more than 1,000 keys", 1 << 20, object.Final},
		"page":    {200, "<ListBucketResult>", " ", "", "%s does not answer as S3 does: a page of the listing has more than 16 MiB", 16 << 20, object.Final},
	} {
		t.Run(name, func(t *testing.T) {
			var written atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				written.Add(int64(endless(w, c.status, c.head, c.fill)))
			}))
			check := func(what, want string, err error) {
				t.Helper()
				want = strings.ReplaceAll(want, "%s", server.URL)
				if e := new(object.Error); !errors.As(err, &e) || e.Trouble != c.trouble || e.Error() != want {
					t.Errorf("%s: %v, want class %d:\n%s", what, err, c.trouble, want)
				}
			}
			s := open(t, server.URL, "b", s3.Settings{})
			asked := 0
			if c.get != "" {
				_, err := s.Get(t.Context(), object.Request{Key: "k", Len: 10, Whole: true})
				check("get", c.get, err)
				asked++
			}
			if c.list != "" {
				err := s.List(t.Context(), "p/", 2, once, func([]s3.Item) error { return nil })
				check("list", c.list, err)
				asked++
			}
			server.Close() // waits for its answers, which end with their connections
			if most := int64(asked * (c.most + sockets)); written.Load() > most {
				t.Errorf("%d bytes were sent, want %d at most", written.Load(), most)
			}
		})
	}
}

// TestPagesWithoutEnd: listings end even if pages have no keys or repeat.
func TestPagesWithoutEnd(t *testing.T) {
	s3test.Environment(t)
	const pack = ": pack the objects into shards (tar:s3://…), which need no listing"
	page := func(token string) string {
		return "<IsTruncated>true</IsTruncated><NextContinuationToken>" + token + "</NextContinuationToken>"
	}
	for name, c := range map[string]struct {
		page func(n int) string // the n-th answer, from 0
		want string
		asks int
	}{
		"always another token": {func(n int) string { return page(fmt.Sprint(n)) }, "%s gives 500 pages of a listing in a row that have no key, and says that it goes on" + pack, 500},
		"the same token":       {func(int) string { return page("a") }, "%s gives a continuation token again that it gave before, so the listing would not end" + pack, 2},
		"tokens in turn":       {func(n int) string { return page(string("abc"[n%3])) }, "%s gives a continuation token again that it gave before, so the listing would not end" + pack, 4},
		"a long token":         {func(n int) string { return page(strings.Repeat("a", 8193)) }, "%s gives a continuation token of 8193 bytes, at most 8192" + pack, 1},
		"folders and no keys": {func(n int) string {
			return page(fmt.Sprint(n)) + "<CommonPrefixes><Prefix>p/</Prefix></CommonPrefixes>"
		}, "%s gives 500 pages of a listing in a row that have no key, and says that it goes on" + pack, 500},
		"1,001 keys":             {func(int) string { return contents(1001, "", "") }, "%s does not answer as S3 does: a page of the listing has more than 1,000 keys", 1},
		"1,001 folders":          {func(int) string { return strings.Repeat("<CommonPrefixes><Prefix>p/</Prefix></CommonPrefixes>", 1001) }, "%s does not answer as S3 does: a page of the listing has more than 1,000 keys", 1},
		"a key of 1,025 bytes":   {func(int) string { return contents(1, strings.Repeat("k", 1016), "") }, "the listing of %s has a key of 1025 bytes, at most 1024: \"p/" + strings.Repeat("k", 198) + "…\"", 1},
		"an ETag of 1,025 bytes": {func(int) string { return contents(1, "", "<ETag>"+strings.Repeat("e", 1025)+"</ETag>") }, `the key "p/0000000" in the listing of %s: its version (ETag) has 1025 bytes, at most 1024`, 1},
		"a size below 0":         {func(int) string { return "<Contents><Key>p/k</Key><Size>-1</Size></Contents>" }, `%s tells no size of the key "p/k" that is 0 or more`, 1},
		"no size":                {func(int) string { return "<Contents><Key>p/k</Key></Contents>" }, `%s tells no size of the key "p/k" that is 0 or more`, 1},
	} {
		asked := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			list(c.page(asked))(w, r)
			asked++
		}))
		err := open(t, server.URL, "b", s3.Settings{}).List(t.Context(), "p/", 2, once, func([]s3.Item) error { return nil })
		want := strings.ReplaceAll(c.want, "%s", server.URL)
		if e := new(object.Error); !errors.As(err, &e) || e.Trouble != object.Final || e.Error() != want || asked != c.asks {
			t.Errorf("%s: %v after %d requests, want %d and\n%s", name, err, asked, c.asks, want)
		}
		server.Close()
	}
	for name, page := range map[string]string{
		"1,000 keys": contents(1000, "", "<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;x&quot;</ETag><ChecksumAlgorithm>CRC32</ChecksumAlgorithm><ChecksumType>FULL_OBJECT</ChecksumType><Owner><ID>a</ID><DisplayName>b</DisplayName></Owner><StorageClass>STANDARD</StorageClass>"),
		"long":       contents(1, strings.Repeat("k", 1015), "<ETag>"+strings.Repeat("e", 1024)+"</ETag>"),
	} {
		server := httptest.NewServer(list(page))
		if err := open(t, server.URL, "b", s3.Settings{}).List(t.Context(), "p/", 2, once, func([]s3.Item) error { return nil }); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		server.Close()
	}
}

// TestCredentialsWithoutEnd: an answer with credentials is read up to 1 MiB, whatever service sends it.
func TestCredentialsWithoutEnd(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("token"), 0o600); err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	sso := filepath.Join(home, ".aws", "sso", "cache", "d033e22ae348aeb5660fc2140aec35850c4da997.json") // sha1 of "admin"
	for path, text := range map[string]string{
		sso:                                   `{"accessToken": "x", "expiresAt": "2999-01-01T00:00:00Z"}`,
		filepath.Join(home, ".aws", "config"): "[profile sso]\nsso_session = admin\nsso_account_id = 1\nsso_role_name = r\nregion = us-east-1\n[sso-session admin]\nsso_region = us-east-1\nsso_start_url = https://sso.example\n",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, environ := range map[string]map[string]string{
		"STS":       {"AWS_WEB_IDENTITY_TOKEN_FILE": token, "AWS_ROLE_ARN": "arn:aws:iam::1:role/r", "AWS_ENDPOINT_URL_STS": "%s"},
		"SSO":       {"AWS_PROFILE": "sso", "AWS_CONFIG_FILE": filepath.Join(home, ".aws", "config"), "HOME": home, "AWS_ENDPOINT_URL_SSO": "%s"},
		"container": {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "%s/credentials"},
		"IMDS":      {"AWS_EC2_METADATA_DISABLED": "false", "AWS_EC2_METADATA_SERVICE_ENDPOINT": "%s"},
	} {
		t.Run(name, func(t *testing.T) {
			s3test.Environment(t)
			os.Unsetenv("AWS_ACCESS_KEY_ID")
			os.Unsetenv("AWS_SECRET_ACCESS_KEY")
			var written, asked atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				if strings.HasSuffix(r.URL.Path, "/api/token") {
					w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "60")
					fmt.Fprint(w, "token")
					return
				}
				if strings.HasSuffix(r.URL.Path, "/security-credentials/") {
					fmt.Fprint(w, "role")
					return
				}
				head := `{"AccessKeyId": "`
				if name == "STS" {
					head = "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>"
				}
				written.Add(int64(endless(w, 200, head, "x")))
			}))
			for name, value := range environ {
				t.Setenv(name, strings.ReplaceAll(value, "%s", server.URL))
			}
			s := open(t, "http://127.0.0.1:1", "b", s3.Settings{})
			const want = "the credentials can't be read: an answer with credentials has more than 1 MiB: check the address of the service that gives them, and whether a proxy stands between"
			var err error
			for range 20 { // STS uses POST, and the SDK ends such a request when its answer begins; net/http may then break off the answer
				if _, err = s.Stat(t.Context(), "k"); err.Error() == want {
					break
				}
			}
			if e := new(object.Error); !errors.As(err, &e) || e.Trouble != object.Final || e.Error() != want {
				t.Errorf("%v, want\n%s", err, want)
			}
			server.Close()
			if n := written.Load(); n == 0 || n > asked.Load()*17<<20 {
				t.Errorf("%d bytes were sent", n)
			}
		})
	}
}
