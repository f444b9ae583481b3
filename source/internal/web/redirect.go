package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"
)

// errRedirect is the class of errors about redirects that are not followed.
var errRedirect = errors.New("it redirects")

// checkRedirect follows one redirect to the same scheme. The next request has no Referer, user or password, because
// another host must get none of them.
func checkRedirect(r *http.Request, via []*http.Request) error {
	if len(via) > 1 {
		return fmt.Errorf("%w more than once", errRedirect)
	}
	if r.URL.Scheme != via[0].URL.Scheme {
		return fmt.Errorf("%w from %s to %s", errRedirect, via[0].URL.Scheme, r.URL.Scheme)
	}
	r.Header.Del("Referer")
	r.URL.User = nil
	return nil
}

// hosts sends requests to the list's origin through own, and redirected requests to other hosts through others, which
// connects only to public addresses.
type hosts struct {
	origin      string // origin of the list
	own, others *http.Transport
	dialer      *net.Dialer // of others
}

func newHosts(list *url.URL, own *http.Transport) *hosts {
	h := &hosts{origin: origin(list), own: own, others: own.Clone()}
	h.dialer = &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second, Control: checkDialled}
	h.others.DialContext = h.dialer.DialContext
	h.others.Proxy = nil // requests through a proxy go through own
	return h
}

// RoundTrip implements http.RoundTripper. A proxy resolves names itself, so the address that it will connect to is
// not known here. So RoundTrip resolves the name before it sends the request.
func (h *hosts) RoundTrip(r *http.Request) (*http.Response, error) {
	if origin(r.URL) == h.origin {
		return h.own.RoundTrip(r)
	}
	answer, err := h.toOther(r)
	if private := new(privateError); errors.As(err, &private) {
		return nil, &privateError{host: r.URL.Host, why: private.why}
	}
	return answer, err
}

func (h *hosts) toOther(r *http.Request) (*http.Response, error) {
	proxy, err := h.own.Proxy(r)
	if err != nil {
		return nil, err
	}
	if proxy == nil {
		return h.others.RoundTrip(r)
	}
	if err := h.checkName(r.Context(), r.URL.Hostname()); err != nil {
		return nil, err
	}
	return h.own.RoundTrip(r)
}

// checkName returns an error for a host with an address that is not public.
func (h *hosts) checkName(ctx context.Context, name string) error {
	resolver := h.dialer.Resolver
	if resolver == nil {
		resolver = net.DefaultResolver
	}
	found, err := resolver.LookupNetIP(ctx, "ip", name)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return &privateError{why: "whose address can't be found here, so that it may be in a private network behind the proxy"}
	}
	for _, address := range found {
		if err := checkAddress(address); err != nil {
			return err
		}
	}
	return nil
}

// checkDialled is a net.Dialer's Control. It sees the address after the name was resolved, so DNS can't return
// another one afterwards.
func checkDialled(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	return checkAddress(at.Addr())
}

var (
	nat64  = netip.MustParsePrefix("64:ff9b::/96") // its last four bytes are an IPv4 address
	notAny = []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/8"),      // this network
		netip.MustParsePrefix("100.64.0.0/10"),  // shared by the customers of a carrier
		netip.MustParsePrefix("64:ff9b:1::/48"), // NAT64 of a local network
		netip.MustParsePrefix("2002::/16"),      // 6to4, like
		netip.MustParsePrefix("::/96"),          // IPv4-compatible addresses, contains any IPv4 address
	}
)

// checkAddress returns an error for addresses that are not public: loopback, link-local, private, unspecified and
// multicast addresses.
func checkAddress(a netip.Addr) error {
	a = a.Unmap().WithZone("")
	if nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	private := !a.IsGlobalUnicast() || a.IsPrivate()
	for _, p := range notAny {
		private = private || p.Contains(a)
	}
	if private {
		return &privateError{why: fmt.Sprintf("whose address %s is not public", a)}
	}
	return nil
}

// privateError means that a redirect leads to a host that is not public, or may not be.
type privateError struct{ host, why string }

func (e *privateError) Error() string { return e.host + ", " + e.why }

// CloseIdleConnections is called by http.Client.CloseIdleConnections.
func (h *hosts) CloseIdleConnections() {
	h.own.CloseIdleConnections()
	h.others.CloseIdleConnections()
}
