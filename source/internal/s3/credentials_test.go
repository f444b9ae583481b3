package s3_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"lcache/source/internal/object"
	"lcache/source/internal/s3"
	"lcache/source/s3test"
)

const expiredText = "the session token has expired: get new credentials (such as by aws sso login), and start again; a server that still runs keeps the environment it was started in: end it by lcache stop"

// tokens accepts requests signed with one session token, and refuses all others as expired.
func tokens(t *testing.T, first string) (url string, valid *atomic.Value) {
	valid = new(atomic.Value)
	valid.Store(first)
	expired := apiError(400, "ExpiredToken", "The provided token has expired.")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Amz-Security-Token") != valid.Load() {
			expired(w, r)
			return
		}
		w.Header().Set("ETag", `"x"`)
		fmt.Fprint(w, "ten bytes!")
	}))
	t.Cleanup(server.Close)
	return server.URL, valid
}

// keep writes a credentials file of the AWS tools.
func keep(t *testing.T, path, token string) {
	t.Helper()
	text := fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\naws_session_token = %s\n", s3test.Access, s3test.Secret, token)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func getTen(t *testing.T, s *s3.Store) error {
	a, err := s.Get(t.Context(), object.Request{Key: "k", Len: 10, Whole: true})
	if err == nil {
		a.Body.Close()
	}
	return err
}

func isExpired(err error) bool {
	e := new(object.Error)
	return errors.As(err, &e) && e.Trouble == object.Final && e.Error() == expiredText
}

// TestRenewedCredentials: an expired token causes an error that says so, until the AWS tools have written another one
// to their files.
func TestRenewedCredentials(t *testing.T) {
	s3test.Environment(t)
	os.Unsetenv("AWS_ACCESS_KEY_ID")
	os.Unsetenv("AWS_SECRET_ACCESS_KEY")
	file := filepath.Join(t.TempDir(), "credentials")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	keep(t, file, "first")
	url, valid := tokens(t, "first")
	s := open(t, url, "b", s3.Settings{})
	if err := getTen(t, s); err != nil {
		t.Fatal(err)
	}
	valid.Store("second")
	if err := getTen(t, s); !isExpired(err) {
		t.Errorf("got %v, want %s", err, expiredText)
	}
	if _, err := s.Stat(t.Context(), "k"); !isExpired(err) { // the answer to a HEAD does not say why
		t.Errorf("HEAD: got %v, want %s", err, expiredText)
	}
	keep(t, file, "second")
	passed := false
	for end := time.Now().Add(20 * time.Second); ; {
		err := getTen(t, s)
		e := new(object.Error)
		if err == nil {
			break
		}
		if !errors.As(err, &e) || e.Trouble != object.Transient && !isExpired(err) || time.Now().After(end) {
			t.Fatal(err)
		}
		passed = passed || e.Trouble == object.Transient
	}
	if !passed {
		t.Error("no request was told to try again: it would have failed")
	}
	if _, err := s.Stat(t.Context(), "k"); err != nil {
		t.Error(err)
	}
}

// TestExpiredEnvironment: the environment of a process does not change, so an expired token in it stays expired.
func TestExpiredEnvironment(t *testing.T) {
	s3test.Environment(t)
	t.Setenv("AWS_SESSION_TOKEN", "first")
	url, valid := tokens(t, "first")
	s := open(t, url, "b", s3.Settings{})
	if err := getTen(t, s); err != nil {
		t.Fatal(err)
	}
	valid.Store("second")
	for range 3 {
		if err := getTen(t, s); !isExpired(err) {
			t.Errorf("got %v, want %s", err, expiredText)
		}
	}
}

// TestRefusedHead: the answer to a HEAD has no text, but the error still says why it was refused.
func TestRefusedHead(t *testing.T) {
	s3test.Environment(t)
	for code, want := range map[string]string{
		"RequestTimeTooSkewed": "this machine's clock is wrong, so %s refuses its signatures: set the clock (such as by chronyc makestep)",
		"AccessDenied":         "denied: these credentials lack s3:GetObject for the bucket b: ask its owner, or give --s3-requester-pays if its readers pay",
	} {
		server := httptest.NewServer(apiError(403, code, "no"))
		_, err := open(t, server.URL, "b", s3.Settings{}).Stat(t.Context(), "k")
		if code == "RequestTimeTooSkewed" {
			want = fmt.Sprintf(want, server.URL)
		}
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v, want\n%s", code, err, want)
		}
		server.Close()
	}
}
