package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lcache/internal/errcode"
)

// authority is one of a user, with ECDSA as most have it.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T, dir, name string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key, write(t, filepath.Join(dir, name+".pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), 0o644)}
}

// issue writes a certificate of the authority, and replaces the one that is there, as a program for certificates does: by rename.
func (a *authority) issue(t *testing.T, dir, name string, life time.Duration, uses ...x509.ExtKeyUsage) CertificateFiles {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if uses == nil {
		uses = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name + ".example"}, ExtKeyUsage: uses,
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(life)}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	put := func(suffix, kind string, b []byte) string {
		path := filepath.Join(dir, name+suffix)
		if err := os.Rename(write(t, path+".new", string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b})), 0o600), path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return CertificateFiles{Cert: put(".crt", "CERTIFICATE", der), Key: put(".key", "PRIVATE KEY", secret), CA: a.file}
}

func certificatesOf(t *testing.T, f CertificateFiles) *Certificates {
	t.Helper()
	c, err := NewCertificates(f, time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCertificatesOfAnAuthority(t *testing.T) {
	dir := t.TempDir()
	ours, theirs := newAuthority(t, dir, "ours"), newAuthority(t, dir, "theirs")
	a, b := certificatesOf(t, ours.issue(t, dir, "a", time.Hour)), certificatesOf(t, ours.issue(t, dir, "b", time.Hour))
	if name, serverErr, clientErr := shake(t, a.Server(), b.Client()); serverErr != nil || clientErr != nil || name != "b" {
		t.Errorf("one authority: %q, server: %v, client: %v", name, serverErr, clientErr)
	}
	stranger := certificatesOf(t, theirs.issue(t, dir, "c", time.Hour))
	if _, serverErr, _ := shake(t, a.Server(), stranger.Client()); serverErr == nil {
		t.Error("the server takes a certificate of another authority")
	}
	trusting := stranger.Client() // it does not look at the server
	trusting.VerifyConnection = nil
	if _, serverErr, clientErr := shake(t, a.Server(), trusting); serverErr == nil || clientErr == nil {
		t.Errorf("another authority's client: server: %v, client: %v", serverErr, clientErr)
	}
	if _, _, clientErr := shake(t, stranger.Server(), b.Client()); clientErr == nil {
		t.Error("the client takes a server of another authority")
	}
	anonymous := b.Client()
	anonymous.GetClientCertificate = nil
	if _, serverErr, _ := shake(t, a.Server(), anonymous); serverErr == nil {
		t.Error("the server takes a client without a certificate")
	}
	key := identity(t, testKey(t), "k", time.Now)
	if _, serverErr, clientErr := shake(t, a.Server(), key.Client()); serverErr == nil || clientErr == nil {
		t.Errorf("a client with the certificate of a key: server: %v, client: %v", serverErr, clientErr)
	}
}

// TestCertificatesAreReadAgain: a connection after a change uses the new files. Files that can't be used change nothing.
func TestCertificatesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	ours, next := newAuthority(t, dir, "ours"), newAuthority(t, dir, "next")
	files := ours.issue(t, dir, "a", time.Hour)
	logs := &lines{}
	a, err := NewCertificates(files, time.Now, slog.New(slog.NewTextHandler(logs, nil)))
	if err != nil {
		t.Fatal(err)
	}
	server, client := a.Server(), a.Client()
	works := func(what string) {
		t.Helper()
		if _, serverErr, clientErr := shake(t, server, client); serverErr != nil || clientErr != nil {
			t.Errorf("%s: server: %v, client: %v", what, serverErr, clientErr)
		}
	}
	works("at first")
	first := a.current()
	if again := a.current(); again != first {
		t.Error("the files did not change, and were read again")
	}
	ours.issue(t, dir, "a", 2*time.Hour)
	works("with a new certificate")
	second := a.current()
	if second == first || !second.leaf.Leaf.NotAfter.After(first.leaf.Leaf.NotAfter) {
		t.Error("the new certificate is not in use")
	}
	// Half of a change: another key, and the certificate has not come yet.
	good := testRead(t, files.Key)
	write(t, files.Key, "-----BEGIN", 0o600)
	for range 5 {
		works("with half a key")
	}
	if n := strings.Count(logs.String(), "can't be used"); n != 1 {
		t.Errorf("%d warnings of one change:\n%s", n, logs)
	}
	write(t, files.Key, good, 0o600)
	works("with the key again")
	// Both machines go over to another authority: the file has both for a while.
	write(t, files.CA, testRead(t, ours.file)+testRead(t, next.file), 0o644)
	b := certificatesOf(t, next.issue(t, dir, "b", time.Hour))
	if _, serverErr, _ := shake(t, server, b.Client()); serverErr == nil {
		t.Error("the client does not know the server's authority")
	}
	write(t, next.file, testRead(t, ours.file), 0o644)
	if _, serverErr, clientErr := shake(t, server, b.Client()); serverErr != nil || clientErr != nil {
		t.Errorf("after the change of the authority: server: %v, client: %v", serverErr, clientErr)
	}
	if err := os.Remove(files.Cert); err != nil {
		t.Fatal(err)
	}
	works("without its file")
}

func testRead(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestBadCertificates(t *testing.T) {
	dir := t.TempDir()
	ours, theirs := newAuthority(t, dir, "ours"), newAuthority(t, dir, "theirs")
	good := ours.issue(t, dir, "good", time.Hour)
	other := ours.issue(t, dir, "other", time.Hour)
	open := ours.issue(t, dir, "open", time.Hour)
	if err := os.Chmod(open.Key, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		files CertificateFiles
		want  string
	}{
		"no certificate":         {CertificateFiles{dir + "/none", good.Key, good.CA}, "--tls-cert " + dir + "/none: no such file"},
		"no key":                 {CertificateFiles{good.Cert, dir + "/none", good.CA}, "--tls-key " + dir + "/none: no such file"},
		"no file of authorities": {CertificateFiles{good.Cert, good.Key, dir + "/none"}, "--tls-ca " + dir + "/none: no such file"},
		"another key":            {CertificateFiles{good.Cert, other.Key, good.CA}, "--tls-key is not its key"},
		"another authority":      {CertificateFiles{good.Cert, good.Key, theirs.file}, "signed by --tls-ca"},
		"an expired certificate": {ours.issue(t, dir, "old", -time.Hour), "valid now"},
		"for clients only":       {ours.issue(t, dir, "client", time.Hour, x509.ExtKeyUsageClientAuth), "both serverAuth and clientAuth"},
		"a key that others read": {open, "chmod 600"},
		"no authority":           {CertificateFiles{good.Cert, good.Key, write(t, dir+"/empty", "", 0o644)}, "no certificate in PEM"},
		"an endless authority":   {CertificateFiles{good.Cert, good.Key, "/dev/zero"}, "not a regular file"},
		"a large authority":      {CertificateFiles{good.Cert, good.Key, write(t, dir+"/large", strings.Repeat("x", mostPEM+1), 0o644)}, "more than 1048576 bytes"},
	} {
		_, err := NewCertificates(c.files, time.Now, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: the error is %v, want %q", name, err, c.want)
		} else if code, ok := errcode.Of(err); !ok || code != errcode.ClusterKey {
			t.Errorf("%s: the code is %q", name, code)
		}
	}
}

func TestTrust(t *testing.T) {
	dir := t.TempDir()
	files := newAuthority(t, dir, "ours").issue(t, dir, "a", time.Hour)
	key := testKey(t)
	for name, c := range map[string]struct {
		o    Options
		tls  bool
		want string // of the error
	}{
		"a key":                 {Options{Key: key}, true, ""},
		"certificates":          {Options{Key: key, Certificates: files}, true, ""},
		"neither":               {Options{}, false, ""},
		"insecure":              {Options{Key: key, Insecure: true}, false, ""},
		"two of three files":    {Options{Key: key, Certificates: CertificateFiles{Cert: files.Cert, Key: files.Key}}, false, "belong together"},
		"insecure certificates": {Options{Key: key, Certificates: files, Insecure: true}, false, "leave one of them out"},
		"a public name":         {Options{Key: key, Insecure: true, Advertise: "203.0.113.7", Listen: "0.0.0.0:0"}, false, "203.0.113.7 is a public address"},
	} {
		if c.o.Listen == "" {
			c.o.Listen = "127.0.0.1:0"
		}
		m, err := Start(t.Context(), c.o)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: the error is %v, want %q", name, err, c.want)
		}
		if err != nil {
			continue
		}
		server, client := m.TLS()
		if (server != nil) != c.tls || (client != nil) != c.tls {
			t.Errorf("%s: TLS %v and %v", name, server != nil, client != nil)
		}
		m.Close()
	}
}

func TestPublicAddresses(t *testing.T) {
	for address, want := range map[string]bool{"127.0.0.1": false, "10.1.2.3": false, "172.16.0.1": false, "192.168.1.1": false, "100.64.0.1": false, "169.254.0.1": false, "fe80::1": false, "fd00::1": false, "::1": false, "0.0.0.0": false,
		"8.8.8.8": true, "203.0.113.7": true, "2001:db8::1": true, "100.128.0.1": true} {
		if got := isPublic(net.ParseIP(address)); got != want {
			t.Errorf("%s is public: %v", address, got)
		}
	}
	if got := publicAddress(bind{ip: "8.8.8.8"}, ""); got != "8.8.8.8" {
		t.Errorf("it listens on %q", got)
	}
}
