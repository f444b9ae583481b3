package cluster

import (
	"crypto/tls"
	"net"
	"strings"
	"time"

	"lcache/internal/usage"
)

// trust makes the TLS configurations of a member's data port.
type trust interface {
	Server() *tls.Config
	Client() *tls.Config
}

// newTrust returns what the options say about the data port. nil: it is not encrypted.
func newTrust(o *Options, name string, b bind) (trust, error) {
	f := o.Certificates
	switch {
	case (f.Cert == "" || f.Key == "" || f.CA == "") && f != CertificateFiles{}:
		return nil, usage.Errorf("--tls-cert, --tls-key and --tls-ca belong together: give all three or none")
	case o.Insecure && f != CertificateFiles{}:
		return nil, usage.Errorf("--peer-insecure sends samples without encryption, and --tls-cert encrypts them: leave one of them out")
	case o.Insecure:
		if address := publicAddress(b, o.Advertise); address != "" {
			return nil, usage.Errorf("--peer-insecure: %s is a public address, where anybody could read the samples; give --listen with a private address or network, such as --listen 10.0.0.0/8, or leave --peer-insecure out", address)
		}
		o.Logger.Warn("samples travel between machines without encryption, because of --peer-insecure: every machine that reaches this one's port can read the dataset")
		return nil, nil
	case f != CertificateFiles{}:
		return NewCertificates(f, time.Now, o.Logger)
	case o.Key != nil:
		return NewIdentity(o.Key, name, time.Now)
	}
	return nil, nil // parseListen allows the loopback interface only
}

// TLS returns the TLS configurations with which this member's data port accepts connections, and connects to others. nil: without encryption.
func (m *Member) TLS() (server, client *tls.Config) {
	if m.trust == nil {
		return nil, nil
	}
	return m.trust.Server(), m.trust.Client()
}

// sharedAddresses are for a provider's own network (RFC 6598). Some clouds give them to pods.
var sharedAddresses = net.IPNet{IP: net.IPv4(100, 64, 0, 0).To4(), Mask: net.CIDRMask(10, 32)}

// isPublic reports whether an address can be reached from the internet.
func isPublic(ip net.IP) bool {
	return !ip.IsLoopback() && !ip.IsPrivate() && !ip.IsLinkLocalUnicast() && !ip.IsUnspecified() && !sharedAddresses.Contains(ip)
}

// publicAddress returns a public address at which a member would be reached; "": there is none.
func publicAddress(b bind, advertise string) string {
	ip := net.ParseIP(b.ip)
	if other := net.ParseIP(advertise); other != nil && isPublic(other) {
		return advertise
	}
	if !ip.IsUnspecified() {
		if isPublic(ip) {
			return b.ip
		}
		return ""
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return b.ip // it may be one
	}
	for _, a := range all {
		n, ok := a.(*net.IPNet)
		if ok && isPublic(n.IP) && (n.IP.To4() != nil || strings.Contains(b.ip, ":")) {
			return n.IP.String()
		}
	}
	return ""
}
