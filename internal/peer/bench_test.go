package peer

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"lcache/sample"
)

// discard is a Sink that has one room for all.
type discard struct{ b []byte }

func (d *discard) Room(p Piece) []byte { return d.b[:p.Length] }
func (d *discard) Came(Piece)          {}

// memory is a Home whose samples are all the same bytes.
type memory struct {
	n int
	b []byte
}

func (m *memory) Samples() int          { return m.n }
func (m *memory) Size(sample.Index) int { return len(m.b) }
func (m *memory) Manifest() []byte      { return nil }
func (m *memory) Work() (uint64, bool)  { return 0, false }
func (m *memory) Bring(_ context.Context, indices []sample.Index, to func(Brought)) {
	for _, i := range indices {
		to(Brought{Index: i, Bytes: m.b})
	}
}

// BenchmarkFetch carries samples over the loopback interface. CPU-s/GB is that of both sides.
func BenchmarkFetch(b *testing.B) {
	for _, size := range []int{16_000, 100_000} {
		for _, encrypted := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d bytes, TLS %v", size, encrypted), func(b *testing.B) {
				h := &memory{n: 1 << 20, b: make([]byte, size)}
				so, co := ServerOptions{}, ClientOptions{Late: time.Minute}
				if encrypted {
					so.TLS, co.TLS = pair(b)
				}
				_, address := serve(b, h, so)
				c := client(b, h.n, co)
				const perList = 64
				b.SetBytes(int64(size * perList))
				cpu := cpuTime()
				b.ResetTimer()
				var all sync.WaitGroup
				for range 2 { // two LISTs at a time
					all.Go(func() {
						d := &discard{make([]byte, MostFrame)}
						for range (b.N + 1) / 2 {
							if _, err := c.Fetch(b.Context(), address, indices(0, perList), d); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
				gb := float64(b.N) * float64(size*perList) / 1e9
				b.ReportMetric((cpuTime()-cpu).Seconds()/gb, "CPU-s/GB")
			})
		}
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// pair returns the configurations of a server and a client that trust each other.
func pair(b *testing.B) (server, client *tls.Config) {
	cert := selfSigned(b)
	return &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS13},
		&tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13}
}

// BenchmarkOthers carries bytes over the loopback interface without gRPC: what the alternatives of docs/adr/0048-grpc.md cost. CPU-s/GB is that of both
// sides.
func BenchmarkOthers(b *testing.B) {
	const message = 1 << 20
	carry := func(name string, read func(b *testing.B, encrypted bool) io.Reader) {
		for _, encrypted := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s, TLS %v", name, encrypted), func(b *testing.B) {
				r, buffer := read(b, encrypted), make([]byte, message)
				b.SetBytes(message)
				cpu := cpuTime()
				b.ResetTimer()
				for range b.N {
					if _, err := io.ReadFull(r, buffer); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric((cpuTime()-cpu).Seconds()/(float64(b.N)*message/1e9), "CPU-s/GB")
			})
		}
	}
	endless := func(w io.Writer) {
		for sent := make([]byte, message); ; {
			if _, err := w.Write(sent); err != nil {
				return
			}
		}
	}
	listen := func(b *testing.B, encrypted bool) (net.Listener, *tls.Config) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { l.Close() })
		if !encrypted {
			return l, nil
		}
		server, client := pair(b)
		return tls.NewListener(l, server), client
	}
	carry("TCP", func(b *testing.B, encrypted bool) io.Reader {
		l, trust := listen(b, encrypted)
		go func() {
			if c, err := l.Accept(); err == nil {
				endless(c)
				c.Close()
			}
		}()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		if encrypted {
			c = tls.Client(c, trust)
		}
		b.Cleanup(func() { c.Close() })
		return c
	})
	carry("HTTP 1.1", func(b *testing.B, encrypted bool) io.Reader {
		l, trust := listen(b, encrypted)
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { endless(w) })}
		go s.Serve(l)
		scheme := map[bool]string{false: "http://", true: "https://"}[encrypted]
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: trust}}
		answer, err := client.Get(scheme + l.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { answer.Body.Close(); s.Close(); client.CloseIdleConnections() })
		return answer.Body
	})
}
