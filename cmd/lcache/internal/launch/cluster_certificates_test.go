package launch

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lcache/internal/cluster"
	"lcache/internal/serve/fetch"
	"lcache/sample"
)

// authority signs certificates, as a user's own authority does.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.cert = &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	var der []byte
	if der, a.key = sign(t, a.cert, a.cert, nil); t.Failed() {
		t.FailNow()
	}
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

// sign makes a key and its certificate. Without by it signs itself.
func sign(t *testing.T, template, parent *x509.Certificate, by *ecdsa.PrivateKey) ([]byte, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if by == nil {
		by = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	return der, key
}

// issue puts a new certificate into the files, each by a rename.
func (a *authority) issue(t *testing.T, f cluster.CertificateFiles, life time.Duration) {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "a machine"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(life),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, key := sign(t, template, a.cert, a.key)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for path, b := range map[string][]byte{f.CA: a.pem, f.Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), f.Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})} {
		if err := os.WriteFile(path+".new", b, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
}

// asksFor is a fetch.Sink of one sample.
type asksFor struct {
	data []byte
	came bool
}

func (a *asksFor) Room(p fetch.Arrival) []byte {
	a.data = make([]byte, p.Length)
	return a.data
}
func (a *asksFor) Came(p fetch.Arrival) { a.came = !p.Absent }

// connects reports why a machine can't get a sample from another one by a new connection. The other machine is the sample's home.
func connects(t *testing.T, from, to *local, files map[sample.Index][]byte) error {
	t.Helper()
	index := sample.Index(0)
	for ; !to.link.IsHome(index); index++ {
	}
	address, ok := from.link.Holder(index, 0)
	if !ok {
		t.Fatalf("sample %d: no machine is asked", index)
	}
	from.link.client.Forget(address)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	sink := &asksFor{}
	err := from.link.Fetch(ctx, address, []sample.Index{index}, sink)
	if err == nil && (!sink.came || !bytes.Equal(sink.data, files[index])) {
		t.Errorf("sample %d came: %v, with %d of %d bytes, or other ones", index, sink.came, len(sink.data), len(files[index]))
	}
	return err
}

// TestOwnCertificates: machines with certificates of one authority send each other samples. One with an expired certificate, or with one of another authority,
// gets nothing and is asked for nothing, while its training goes on from the source. New files are used by the next connection, without a restart.
func TestOwnCertificates(t *testing.T) {
	key := testKey(t)
	ours, theirs := newAuthority(t), newAuthority(t)
	var files [2]cluster.CertificateFiles
	for i := range files {
		dir := t.TempDir()
		files[i] = cluster.CertificateFiles{Cert: filepath.Join(dir, "crt"), Key: filepath.Join(dir, "key"), CA: filepath.Join(dir, "ca")}
		ours.issue(t, files[i], time.Hour)
	}
	servers, contents := machines(t, 2, func(machine int, o *cluster.Options) { o.Key, o.Certificates = key, files[machine] })
	good, other := servers[0], servers[1]
	bothWays := func(what, want string) {
		t.Helper()
		if err := connects(t, good, other, contents); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
		if err := connects(t, other, good, contents); (err == nil) != (want == "") { // the reason may be known to the good machine only
			t.Errorf("%s, the other way: %v, want %q", what, err, want)
		}
	}
	bothWays("certificates of one authority", "")
	theirs.issue(t, files[1], time.Hour)
	refused := good.link.of.View().Refused
	bothWays("another authority", "certificate signed by unknown authority")
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) { // the other side may know it first
		if v := good.link.of.View(); v.Refused > refused && strings.Contains(v.LastRefusal, "certificate") {
			break
		} else if time.Now().After(end) {
			t.Errorf("%d connections were refused, before %d; the last one: %q", v.Refused, refused, v.LastRefusal)
			break
		}
	}
	for rank, l := range servers { // the source has all samples
		if n, err := readRank(l, 0, rank, contents); err != nil || n != len(contents)/2 {
			t.Errorf("an epoch in which the machines refuse each other: %d samples, %v", n, err)
		}
	}
	const life = 1500 * time.Millisecond
	ends := time.Now().Add(life)
	ours.issue(t, files[1], life)
	bothWays("the first authority again", "")
	time.Sleep(time.Until(ends.Add(time.Second))) // a certificate ends at a whole second; nothing tells of it
	bothWays("a certificate that has expired", "certificate has expired")
	ours.issue(t, files[1], time.Hour)
	bothWays("a new certificate", "")
}
