// Package web is an [object.Store] for the resources of a web server, and parses the lists that name them.
//
// [Open] returns a [Store] for the address of a list. A key is a line's address, relative to the list's; "" is the
// list itself. [Parse] parses a list. A resource's version is its strong ETag, otherwise the time of its last change,
// otherwise nothing. Every error of a Store is an [object.Error], whose text has no query and no credentials. All
// methods may be called concurrently, except Close.
package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"lcache/source/internal/object"
)

// Store is the server of a list, and other servers if they are allowed.
type Store struct {
	list       *url.URL
	otherHosts bool
	client     *http.Client
	apart      *http.Client // with separate connections
}

// Open returns a store for the list at an address. It sends no request. otherHosts says that lines may name other
// servers than the list's.
func Open(address string, otherHosts bool) (*Store, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("it is not the address of a list: give https://HOST/PATH/LIST")
	}
	if err := bare(u); err != nil {
		return nil, err
	}
	client := func() *http.Client {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConns, t.MaxIdleConnsPerHost = 512, 512
		t.IdleConnTimeout = 30 * time.Second
		t.DisableCompression = true
		t.MaxResponseHeaderBytes = 64 << 10
		t.ReadBufferSize = 16 << 10 // as in package s3
		if otherHosts {
			return &http.Client{Transport: t, CheckRedirect: checkRedirect}
		}
		return &http.Client{Transport: newHosts(u, t), CheckRedirect: checkRedirect}
	}
	return &Store{list: u, otherHosts: otherHosts, client: client(), apart: client()}, nil
}

// bare returns an error for a part that may be a secret, because addresses are stored and printed.
func bare(u *url.URL) error {
	switch {
	case u.User != nil:
		return errors.New("it has a user or a password: only servers that need none can be read")
	case u.RawQuery != "" || u.ForceQuery:
		return errors.New("it has a query: give an address without one")
	case u.Fragment != "":
		return errors.New("it has a fragment (#): write it as %23 if it belongs to the name")
	}
	return nil
}

// Close closes idle connections.
func (s *Store) Close() error {
	s.client.CloseIdleConnections()
	s.apart.CloseIdleConnections()
	return nil
}

// address returns the address of a key.
func (s *Store) address(key string) (*url.URL, error) {
	if key == "" {
		return s.list, nil
	}
	ref, err := url.Parse(key)
	if err != nil {
		return nil, final("it is not an address: write special letters as %%XX")
	}
	u := s.list.ResolveReference(ref)
	switch {
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return nil, final("it is not the address of a web server")
	case s.list.Scheme == "https" && u.Scheme == "http":
		return nil, final("its address is http, that of the list https")
	case origin(u) != origin(s.list) && !s.otherHosts:
		where := u.Host
		if where == s.list.Host {
			where = u.Scheme + "://" + where
		}
		return nil, final("it is on another host than the list (%s): give --http-allow-other-hosts if that is meant", where)
	}
	if err := bare(u); err != nil {
		return nil, &object.Error{Trouble: object.Final, Err: err}
	}
	return u, nil
}

// origin is the origin of a URL, as browsers define it: the same host by https, or on another port, may be another server.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// Check returns an error if a key can't be requested.
func (s *Store) Check(key string) error {
	_, err := s.address(key)
	return err
}

func (s *Store) do(ctx context.Context, method string, r object.Request) (*http.Response, error) {
	u, err := s.address(r.Key)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return nil, final("it is not an address: write special letters as %%XX")
	}
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set("User-Agent", "lcache")
	if method == http.MethodGet && !r.Whole {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", r.From, r.From+r.Len-1))
		if r.Tag != "" {
			req.Header.Set("If-Range", r.Tag) // for another version, the answer is the whole resource, with another tag
		}
	}
	client := s.client
	if r.OwnConnection {
		client = s.apart
	}
	answer, err := client.Do(req)
	if err != nil {
		return nil, explain(ctx, u, err)
	}
	if err := judge(u, answer); err != nil {
		answer.Body.Close()
		return nil, err
	}
	return answer, nil
}

// Get requests bytes of a resource.
func (s *Store) Get(ctx context.Context, r object.Request) (*object.Answer, error) {
	answer, err := s.do(ctx, http.MethodGet, r)
	if err != nil {
		return nil, err
	}
	a := &object.Answer{Body: answer.Body, Size: answer.ContentLength, Tag: tag(answer.Header)}
	if answer.StatusCode == http.StatusPartialContent {
		a.From, a.Size = object.ContentRange(answer.Header.Get("Content-Range"))
	}
	return a, nil
}

// Stat returns the size and version of a resource.
func (s *Store) Stat(ctx context.Context, key string) (object.Info, error) {
	answer, err := s.do(ctx, http.MethodHead, object.Request{Key: key})
	if err != nil {
		return object.Info{}, err
	}
	answer.Body.Close()
	page := strings.HasPrefix(strings.ToLower(answer.Header.Get("Content-Type")), "text/html")
	return object.Info{Size: answer.ContentLength, Tag: tag(answer.Header), Page: page}, nil
}

// tag returns the strong ETag of an answer, otherwise the time of the last change.
func tag(h http.Header) string {
	if etag := h.Get("ETag"); strings.HasPrefix(etag, `"`) {
		return etag
	}
	return h.Get("Last-Modified")
}

func final(format string, args ...any) error {
	return &object.Error{Trouble: object.Final, Err: fmt.Errorf(format, args...)}
}

// judge returns an error for an answer without bytes of the resource.
func judge(u *url.URL, a *http.Response) error {
	switch code := a.StatusCode; {
	case code == http.StatusOK || code == http.StatusPartialContent:
		if e := a.Header.Get("Content-Encoding"); e != "" && e != "identity" {
			return final("%s answers in the encoding %q, which was not asked for", u.Host, e)
		}
		return nil
	case code == http.StatusNotFound || code == http.StatusGone:
		return &object.Error{Trouble: object.Gone, Err: fmt.Errorf("%s answers %d", u.Host, code)}
	case code == http.StatusPreconditionFailed || code == http.StatusRequestedRangeNotSatisfiable:
		return &object.Error{Trouble: object.Changed, Err: fmt.Errorf("%s answers %d", u.Host, code)}
	case code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable:
		e := &object.Error{Trouble: object.Slow, Err: fmt.Errorf("%s answers %d", u.Host, code)}
		if seconds, err := strconv.Atoi(a.Header.Get("Retry-After")); err == nil && seconds > 0 {
			e.After = time.Duration(min(seconds, 3600)) * time.Second
		}
		return e
	case code >= 500 || code == http.StatusRequestTimeout:
		return &object.Error{Trouble: object.Transient, Err: fmt.Errorf("%s answers %d", u.Host, code)}
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return final("%s answers %d: lcache reads only public files from a web server", u.Host, code)
	}
	return final("%s answers %d", u.Host, a.StatusCode)
}

// explain returns the error of a request without an answer. Errors around the innermost one have the whole address in
// their text.
func explain(ctx context.Context, u *url.URL, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if dns := new(net.DNSError); errors.As(err, &dns) && dns.IsNotFound {
		return final("%s can't be reached: the host does not exist", u.Host)
	}
	if private := new(privateError); errors.As(err, &private) {
		return final("%s redirects to %s: give --http-allow-other-hosts if that is meant", u.Host, private)
	}
	if errors.Is(err, errRedirect) {
		for e := err; e != nil; e = errors.Unwrap(e) {
			if errors.Unwrap(e) == errRedirect {
				return final("%s: %s, which is not followed", u.Host, e)
			}
		}
	}
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	if text := err.Error(); strings.Contains(text, "certificate") || strings.Contains(text, "HTTP response to HTTPS client") {
		return final("%s can't be trusted: %s", u.Host, text)
	}
	return &object.Error{Trouble: object.Transient, Err: fmt.Errorf("%s can't be reached: %s", u.Host, err)}
}
