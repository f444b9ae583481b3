package web_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lcache/source/internal/object"
	"lcache/source/internal/web"
)

// requests has one request of each kind: for the list, a sample, its size, and a part of a shard.
var requests = map[string]func(ctx context.Context, s *web.Store) error{
	"list":   getting(object.Request{Key: "", Whole: true}),
	"sample": getting(object.Request{Key: "a/1.bin", Len: 10, Whole: true}),
	"shard":  getting(object.Request{Key: "a/1.tar", From: 3, Len: 4}),
	"hedge":  getting(object.Request{Key: "a/1.bin", Len: 10, Whole: true, OwnConnection: true}),
	"HEAD": func(ctx context.Context, s *web.Store) error {
		_, err := s.Stat(ctx, "a/1.bin")
		return err
	},
}

func getting(r object.Request) func(ctx context.Context, s *web.Store) error {
	return func(ctx context.Context, s *web.Store) error {
		a, err := s.Get(ctx, r)
		if err == nil {
			_, err = io.Copy(io.Discard, a.Body)
			a.Body.Close()
		}
		return err
	}
}

// redirecting is a server that redirects every request to an address.
func redirecting(t *testing.T, to string) (host string, list string) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusFound)
	}))
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://"), srv.URL + "/d/list"
}

// TestRedirectToPrivateHost: a redirect never reaches a host that is not public, whatever its name, even if the list
// is on such a host.
func TestRedirectToPrivateHost(t *testing.T) {
	var asked atomic.Int64
	meta := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { asked.Add(1) }))
	defer meta.Close()
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(meta.URL, "http://"))
	for target, address := range map[string]string{
		"127.0.0.1:" + port: "127.0.0.1", "localhost:" + port: "", "[::ffff:127.0.0.1]:" + port: "127.0.0.1", "0.0.0.0:" + port: "0.0.0.0", "[::]:" + port: "::",
		"169.254.169.254": "169.254.169.254", "[fe80::1%25lo]": "fe80::1", "10.1.2.3": "10.1.2.3", "172.31.0.1": "172.31.0.1", "192.168.0.1": "192.168.0.1",
		"100.64.0.1": "100.64.0.1", "100.127.255.254": "100.127.255.254", "[fd00::1]": "fd00::1", "224.0.0.1": "224.0.0.1", "[ff02::1]": "ff02::1",
		"[::1]": "::1", "0.1.2.3": "0.1.2.3", "255.255.255.255": "255.255.255.255", "[64:ff9b::a9fe:a9fe]": "169.254.169.254", "[64:ff9b:1::a00:1]": "64:ff9b:1::a00:1", "[2002:a00:1::]": "2002:a00:1::", "[::a00:1]": "::a00:1",
	} {
		host, list := redirecting(t, "http://"+target+"/latest/meta-data/?secret=hush")
		s := open(t, list)
		for kind, ask := range requests {
			err := ask(t.Context(), s)
			named, _ := url.PathUnescape(target)
			begins := fmt.Sprintf("%s redirects to %s, whose address %s", host, named, address)
			if !isTrouble(err, object.Final) || !strings.HasPrefix(err.Error(), begins) || !strings.HasSuffix(err.Error(), " is not public: give --http-allow-other-hosts if that is meant") {
				t.Errorf("%s, %s: %v, want %s…", target, kind, err, begins)
			}
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("%d requests reached the other host", n)
	}
}

// TestRedirectToOwnOrigin: the list's own server may redirect to itself, wherever it is.
func TestRedirectToOwnOrigin(t *testing.T) {
	etag := `"x"`
	srv := server(t, []byte("0123456789"), &etag, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/d/x", http.StatusFound) })
	for kind, ask := range requests {
		if err := ask(t.Context(), open(t, srv.URL+"/list")); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestRedirectToPublicHost: a public host is reached, and learns nothing about where the request comes from.
func TestRedirectToPublicHost(t *testing.T) {
	etag := `"x"`
	var headers atomic.Pointer[http.Header]
	cdn := server(t, []byte("0123456789"), &etag, func(w http.ResponseWriter, r *http.Request) {
		headers.Store(&r.Header)
		w.Header().Set("ETag", etag)
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader("0123456789"))
	})
	_, list := redirecting(t, "http://me:hush@cdn.example/x?signature=1")
	for kind, ask := range requests {
		s := open(t, list)
		resolved := "203.0.113.7:80"
		s.DialOthers(func(ctx context.Context, address string, check web.Check) (net.Conn, error) {
			if address != "cdn.example:80" {
				t.Errorf("%s: %s is dialled", kind, address)
			}
			if err := check("tcp4", resolved, nil); err != nil {
				return nil, err
			}
			return new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(cdn.URL, "http://"))
		})
		if err := ask(t.Context(), s); err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		for _, name := range []string{"Referer", "Authorization", "Cookie", "Proxy-Authorization"} {
			if v := headers.Load().Get(name); v != "" {
				t.Errorf("%s: the other host got %s: %s", kind, name, v)
			}
		}
		s.Close()
		resolved = "127.0.0.1:80" // DNS returns another address afterwards
		if err := ask(t.Context(), s); !isTrouble(err, object.Final) || !strings.Contains(err.Error(), "cdn.example, whose address 127.0.0.1 is not public") {
			t.Errorf("%s: %v, want an error about the address that is dialled now", kind, err)
		}
	}
}

// TestRedirectBehindProxy: the name is resolved before the request goes to the proxy.
func TestRedirectBehindProxy(t *testing.T) {
	for target, want := range map[string]string{
		"203.0.113.7":        "",
		"169.254.169.254":    "169.254.169.254, whose address 169.254.169.254 is not public: give --http-allow-other-hosts if that is meant",
		"localhost":          "localhost, whose address ",
		"no-such.invalid:80": "no-such.invalid:80, whose address can't be found here, so that it may be in a private network behind the proxy: give --http-allow-other-hosts if that is meant",
	} {
		reached := ""
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Host == "list.example" {
				http.Redirect(w, r, "http://"+target+"/x", http.StatusFound)
				return
			}
			reached = r.URL.Host
		}))
		u, err := url.Parse(proxy.URL)
		if err != nil {
			t.Fatal(err)
		}
		s := open(t, "http://list.example/list")
		s.Through(u)
		err = requests["list"](t.Context(), s)
		if want == "" && (err != nil || reached != target) || want != "" && (!isTrouble(err, object.Final) || !strings.HasPrefix(err.Error(), "list.example redirects to "+want) || reached != "") {
			t.Errorf("%s: %v, the proxy was asked for %q", target, err, reached)
		}
		proxy.Close()
	}
}
