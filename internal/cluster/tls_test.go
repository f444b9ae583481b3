package cluster

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

func identity(t *testing.T, k *Key, name string, now func() time.Time) *Identity {
	t.Helper()
	id, err := NewIdentity(k, name, now)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// shake connects a client to a server, and returns the errors of both and the name by which the server knows the client.
func shake(t *testing.T, server, client *tls.Config) (name string, serverErr, clientErr error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			serverErr = err
			return
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(10 * time.Second))
		s := tls.Server(c, server)
		if serverErr = s.Handshake(); serverErr == nil {
			name = s.ConnectionState().PeerCertificates[0].Subject.CommonName
			_, serverErr = s.Write([]byte("ok"))
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	s := tls.Client(c, client)
	if clientErr = s.Handshake(); clientErr == nil {
		_, clientErr = io.ReadFull(s, make([]byte, 2)) // the server refuses a certificate after its own part of the handshake
	}
	<-done
	return name, serverErr, clientErr
}

func TestMembersWithOneKeyTrustEachOther(t *testing.T) {
	k := testKey(t)
	a, b := identity(t, k, "a", time.Now), identity(t, k, "b", time.Now)
	if name, serverErr, clientErr := shake(t, a.Server(), b.Client()); serverErr != nil || clientErr != nil || name != "b" {
		t.Errorf("server: %v, client %q: %v", serverErr, name, clientErr)
	}
}

func TestStrangersAreRefused(t *testing.T) {
	k := testKey(t)
	id, other := identity(t, k, "a", time.Now), identity(t, testKey(t), "b", time.Now)
	later := func() time.Time { return time.Now().Add(3 * leafLife) }
	expired := identity(t, k, "c", func() time.Time { return time.Now().Add(-3 * leafLife) })
	anonymous := id.Client()
	anonymous.GetClientCertificate = nil
	old := expired.Client()
	old.Time = time.Now // it does not look at its own certificate
	// Only the client half of each is asked: that both sides fail is TLS's matter.
	for name, c := range map[string]struct{ server, client *tls.Config }{
		"another key of the client":  {id.Server(), other.Client()},
		"no certificate":             {id.Server(), anonymous},
		"an expired certificate":     {id.Server(), old},
		"a server that has not it":   {other.Server(), id.Client()},
		"TLS 1.2":                    {id.Server(), &tls.Config{MaxVersion: tls.VersionTLS12, RootCAs: id.roots, ServerName: serverName}},
		"a clock that is days ahead": {id.Server(), identity(t, k, "d", later).Client()},
	} {
		if _, serverErr, clientErr := shake(t, c.server, c.client); serverErr == nil || clientErr == nil {
			t.Errorf("%s: server: %v, client: %v", name, serverErr, clientErr)
		}
	}
}

// A connection after days gets a certificate that is valid then.
func TestCertificatesAreRenewed(t *testing.T) {
	now := time.Now()
	clock := func() time.Time { return now }
	k := testKey(t)
	a, b := identity(t, k, "a", clock), identity(t, k, "b", clock)
	server, client := a.Server(), b.Client()
	first, _ := a.certificate()
	now = now.Add(leafLife / 3)
	if again, _ := a.certificate(); again != first {
		t.Error("a third of its life is over, and the certificate is another one")
	}
	for range 5 {
		now = now.Add(2 * leafLife)
		if _, serverErr, clientErr := shake(t, server, client); serverErr != nil || clientErr != nil {
			t.Fatalf("on %s: server: %v, client: %v", now, serverErr, clientErr)
		}
	}
	now = now.Add(-3000 * time.Hour) // somebody sets the clock right
	if _, serverErr, clientErr := shake(t, server, client); serverErr != nil || clientErr != nil {
		t.Errorf("after the clock went back: server: %v, client: %v", serverErr, clientErr)
	}
	if last, _ := a.certificate(); !strings.Contains(last.Leaf.DNSNames[0], serverName) || last == first {
		t.Error("the certificate was not renewed")
	}
}
