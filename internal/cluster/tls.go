package cluster

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"sync"
	"time"
)

// leafLife is how long a member's certificate is valid. It is renewed at half its lifetime. It starts an hour early, because clocks differ.
const leafLife = 24 * time.Hour

// serverName is the name in every certificate. Addresses change, and the key alone decides who belongs to a cluster.
const serverName = "lcache"

// An Identity makes the certificates of one member, which are signed by the cluster's key. Its methods may be called concurrently.
type Identity struct {
	name      string // of the member
	now       func() time.Time
	authority *x509.Certificate
	signer    ed25519.PrivateKey
	roots     *x509.CertPool

	mu   sync.Mutex
	leaf *tls.Certificate // the newest
}

// NewIdentity returns the identity of a member. now is the clock.
func NewIdentity(k *Key, name string, now func() time.Time) (*Identity, error) {
	// The authority's certificate is the same in every process: its dates and its serial number are constants.
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "lcache cluster"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.authority.Public(), k.authority)
	if err != nil {
		return nil, fmt.Errorf("make the cluster's certificate: %w", err)
	}
	authority, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make the cluster's certificate: %w", err)
	}
	id := &Identity{name: name, now: now, authority: authority, signer: k.authority, roots: x509.NewCertPool()}
	id.roots.AddCert(authority)
	_, err = id.certificate()
	return id, err
}

// Server returns the TLS configuration of a member that accepts connections from others. Both sides must have the cluster's key.
func (id *Identity) Server() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: id.roots, Time: id.now,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return id.certificate() },
	}
}

// Client returns the TLS configuration of a member that connects to another one.
func (id *Identity) Client() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: id.roots, ServerName: serverName, Time: id.now,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return id.certificate() },
	}
}

// certificate returns a certificate that is valid for half of its life at least.
func (id *Identity) certificate() (*tls.Certificate, error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	now := id.now()
	if id.leaf != nil && now.After(id.leaf.Leaf.NotBefore) && now.Before(id.leaf.Leaf.NotAfter.Add(-leafLife/2)) {
		return id.leaf, nil
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: id.name}, DNSNames: []string{serverName}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(leafLife),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, id.authority, public, id.signer)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	id.leaf = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private, Leaf: leaf}
	return id.leaf, nil
}
