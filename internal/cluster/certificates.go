package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"lcache/internal/errcode"
	"lcache/internal/usage"
)

// CertificateFiles are the PEM files of a member whose certificate comes from an authority of the user. The zero value is none.
type CertificateFiles struct {
	Cert string // the member's certificate, and those between it and the authority
	Key  string // its private key; the rules of ReadKey hold for the file
	CA   string // authorities: every certificate that they signed is a member's
}

// Certificates make the TLS configurations of a member from files. They read the files again when they change, at the next connection. Their methods
// may be called concurrently.
//
// A member trusts each certificate that the authority signed, whatever its name: members connect by addresses, which change. So the authority must
// sign for the machines of one cluster only.
type Certificates struct {
	files  CertificateFiles
	now    func() time.Time
	logger *slog.Logger

	mu     sync.Mutex
	loaded *certificates
	seen   [3]fileState // when loaded was read
	failed [3]fileState // when reading failed: the error is logged once
}

// certificates are the contents of the files. They are not changed.
type certificates struct {
	leaf  *tls.Certificate
	roots *x509.CertPool
}

// fileState changes when a file is replaced or written.
type fileState struct {
	device, inode, size uint64
	changed             unix.Timespec
}

// NewCertificates reads the files. now is the clock. Errors name the file.
func NewCertificates(f CertificateFiles, now func() time.Time, logger *slog.Logger) (*Certificates, error) {
	c := &Certificates{files: f, now: now, logger: logger}
	var err error
	if c.seen, err = c.states(); err != nil {
		return nil, err
	}
	c.loaded, err = c.read()
	return c, err
}

// Server returns the TLS configuration of a member that accepts connections.
func (c *Certificates) Server() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := c.current()
		return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*now.leaf}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: now.roots, Time: c.now,
			NextProtos: []string{"h2"}, SessionTicketsDisabled: true}, nil
	}}
}

// Client returns the TLS configuration of a member that connects to another one.
func (c *Certificates) Client() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Time: c.now,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.current().leaf, nil },
		// crypto/tls would compare names, and would keep the authorities that it knows now. VerifyConnection compares everything else.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			return verify(s.PeerCertificates, c.current().roots, c.now(), x509.ExtKeyUsageServerAuth)
		},
	}
}

// verify reports why an authority's certificate is not valid for a use.
func verify(chain []*x509.Certificate, roots *x509.CertPool, now time.Time, use x509.ExtKeyUsage) error {
	if len(chain) == 0 {
		return errors.New("no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{use}})
	return err
}

// current returns the newest contents that can be used.
func (c *Certificates) current() *certificates {
	c.mu.Lock()
	defer c.mu.Unlock()
	states, err := c.states()
	if err == nil && states == c.seen {
		return c.loaded
	}
	var loaded *certificates
	if err == nil {
		loaded, err = c.read()
	}
	if err != nil { // the files are being replaced, or somebody must look at them
		if states != c.failed {
			c.failed = states
			c.logger.Warn("the files of --tls-cert, --tls-key or --tls-ca have changed and can't be used: their earlier contents stay in use", "err", err)
		}
		return c.loaded
	}
	c.loaded, c.seen = loaded, states
	c.logger.Info("the files of --tls-cert, --tls-key and --tls-ca have changed: new connections use them", "valid_until", loaded.leaf.Leaf.NotAfter)
	return loaded
}

// states returns the states of the three files.
func (c *Certificates) states() (all [3]fileState, err error) {
	for i, path := range []string{c.files.Cert, c.files.Key, c.files.CA} {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return all, badFile([]string{"--tls-cert", "--tls-key", "--tls-ca"}[i], path, err)
		}
		all[i] = fileState{st.Dev, st.Ino, uint64(st.Size), st.Ctim}
	}
	return all, nil
}

// badFile is the error of the file that a flag names.
func badFile(flag, path string, err error) error {
	if of := (*os.PathError)(nil); errors.As(err, &of) && of.Path == path {
		err = of.Err // the path is named once
	}
	return errcode.Errorf(errcode.ClusterKey, "%s %s: %w", flag, usage.Name(path), err)
}

// read reads the files, and checks that other members will accept the certificate.
func (c *Certificates) read() (*certificates, error) {
	cert, err := readBounded(c.files.Cert, false)
	if err != nil {
		return nil, badFile("--tls-cert", c.files.Cert, err)
	}
	key, err := readBounded(c.files.Key, true)
	if err != nil {
		return nil, badFile("--tls-key", c.files.Key, err)
	}
	ca, err := readBounded(c.files.CA, false)
	if err != nil {
		return nil, badFile("--tls-ca", c.files.CA, err)
	}
	leaf, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, badFile("--tls-cert", c.files.Cert, fmt.Errorf("it is not a certificate in PEM, or --tls-key is not its key: %w", err))
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, badFile("--tls-ca", c.files.CA, errors.New("it has no certificate in PEM"))
	}
	chain := make([]*x509.Certificate, len(leaf.Certificate))
	for i, der := range leaf.Certificate {
		if chain[i], err = x509.ParseCertificate(der); err != nil {
			return nil, badFile("--tls-cert", c.files.Cert, err)
		}
	}
	for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if err := verify(chain, roots, c.now(), use); err != nil {
			return nil, badFile("--tls-cert", c.files.Cert, fmt.Errorf("other machines would refuse it (%w): it must be signed by --tls-ca, be valid now, and allow both serverAuth and clientAuth", err))
		}
	}
	return &certificates{&leaf, roots}, nil
}

// mostPEM bounds a file of certificates: a bundle of all public authorities has 0.2 MB.
const mostPEM = 1 << 20

// readBounded reads a small regular file. If it is secret, nobody else may read it.
func readBounded(path string, isSecret bool) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if isSecret {
		if err := checkKeyFile(f); err != nil {
			return nil, err
		}
	} else if st, err := f.Stat(); err != nil {
		return nil, err
	} else if !st.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	b, err := io.ReadAll(io.LimitReader(f, mostPEM+1))
	if err == nil && len(b) > mostPEM {
		err = fmt.Errorf("it has more than %d bytes", mostPEM)
	}
	return b, err
}
