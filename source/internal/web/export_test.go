package web

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"syscall"
)

// A Check is called by a net.Dialer with the address that it is about to connect to.
type Check func(network, address string, c syscall.RawConn) error

// DialOthers makes the store connect to other hosts than the list's with the test's dialer, which must call check.
func (s *Store) DialOthers(dial func(ctx context.Context, address string, check Check) (net.Conn, error)) {
	s.each(func(h *hosts) {
		h.others.DialContext = func(ctx context.Context, _, address string) (net.Conn, error) {
			return dial(ctx, address, h.dialer.Control)
		}
	})
}

// Through sends all requests through a proxy. Names are resolved only on this machine.
func (s *Store) Through(proxy *url.URL) {
	noDNS := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no DNS in this test") }}
	s.each(func(h *hosts) { h.own.Proxy, h.dialer.Resolver = http.ProxyURL(proxy), noDNS })
}

func (s *Store) each(do func(h *hosts)) {
	for _, c := range []*http.Client{s.client, s.apart} {
		do(c.Transport.(*hosts))
	}
}
