package monitor_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lcache/cmd/lcache/internal/monitor"
	"lcache/internal/serve/status"
)

func TestLoopbackUnlessToldOtherwise(t *testing.T) {
	s := listen(t, monitor.Options{Addr: ":0"})
	if !strings.HasPrefix(s.URL(), "http://127.0.0.1:") {
		t.Errorf("an address without a host listens at %s", s.URL())
	}
}

// TestHealth: what a probe reads while the source is listed, when samples are served, when devices fail, and when a server does not answer.
func TestHealth(t *testing.T) {
	s := listen(t, monitor.Options{Token: "a token of 16 or more"})
	base := strings.TrimSuffix(s.PageURL(), "/")
	probe := func(path string, want int, sentence string) {
		t.Helper()
		if code, text := get(t, base+path, nil); code != want || text != sentence+"\n" {
			t.Errorf("%s: %d %q, want %d %q", path, code, text, want, sentence)
		}
	}
	probe("/healthz", http.StatusOK, "The process answers.")
	probe("/readyz", http.StatusServiceUnavailable, "The source is being listed.")
	s.Add("train", always(document()))
	probe("/readyz", http.StatusServiceUnavailable, "The source is being listed.")
	s.SetReady()
	probe("/readyz", http.StatusOK, "Samples are served.")
	half, none := document(), document()
	half.Cache.Devices[0].State = "aside"
	none.Cache.Devices[0].State, none.Cache.Devices[1].State = "aside", "aside"
	s.Add("half", always(half))
	probe("/readyz", http.StatusOK, "Samples are served.")
	s.Add("none", always(none))
	probe("/readyz", http.StatusServiceUnavailable, "No device of the cache works: samples come from the source.")
	probe("/healthz", http.StatusOK, "The process answers.")
	s.Add("gone", func() (status.Document, error) { return status.Document{}, errors.New("the server is gone") })
	probe("/healthz", http.StatusServiceUnavailable, "A server does not answer.")
}

// TestToken: with a token, metrics need it, as a bearer token or as a password; health does not.
func TestToken(t *testing.T) {
	const token = "0123456789abcdef"
	s := listen(t, monitor.Options{Token: token})
	s.Add("train", always(document()))
	s.SetReady()
	for _, c := range []struct {
		name   string
		change func(*http.Request)
		want   int
	}{
		{"without", nil, http.StatusUnauthorized},
		{"another", func(r *http.Request) { r.Header.Set("Authorization", "Bearer 0123456789abcdeF") }, http.StatusUnauthorized},
		{"empty", func(r *http.Request) { r.Header.Set("Authorization", "Bearer ") }, http.StatusUnauthorized},
		{"as a name", func(r *http.Request) { r.SetBasicAuth(token, "") }, http.StatusUnauthorized},
		{"in the query", func(r *http.Request) { r.URL.RawQuery = "token=" + token }, http.StatusUnauthorized},
		{"bearer", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }, http.StatusOK},
		{"password", func(r *http.Request) { r.SetBasicAuth("anybody", token) }, http.StatusOK},
		{"of another page", func(r *http.Request) { r.SetBasicAuth("anybody", token); r.Host = "attacker.example" }, http.StatusForbidden},
		{"localhost", func(r *http.Request) { r.SetBasicAuth("anybody", token); r.Host = "localhost:9400" }, http.StatusOK},
		{"POST", func(r *http.Request) { r.SetBasicAuth("anybody", token); r.Method = http.MethodPost }, http.StatusMethodNotAllowed},
	} {
		code, text := get(t, s.URL(), c.change)
		if code != c.want || strings.Contains(text, token) {
			t.Errorf("%s: %d, want %d: %.80s", c.name, code, c.want, text)
		}
		if ok := strings.Contains(text, "lcache_hits_total"); ok != (c.want == http.StatusOK) {
			t.Errorf("%s: metrics %v", c.name, ok)
		}
	}
}

func TestReadToken(t *testing.T) {
	for text, want := range map[string]string{
		"0123456789abcdef\n": "", "0123456789abcde": "has 15 characters", "": "has 0 characters", "0123456789 abcdef": "one word", "0123456789abcdef\x00": "one word",
		strings.Repeat("a", 1024): "", strings.Repeat("a", 1025): "has 1025 characters",
	} {
		path := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		token, err := monitor.ReadToken(path)
		switch {
		case want == "" && (err != nil || string(token) != strings.TrimSpace(text)):
			t.Errorf("%q: %q, %v", text, string(token), err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || len(text) > 3 && strings.Contains(err.Error(), text)):
			t.Errorf("%q: %v, want %s without the token", text, err, want)
		}
	}
	if _, err := monitor.ReadToken(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
