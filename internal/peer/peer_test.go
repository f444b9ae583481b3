package peer

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lcache/internal/testenv"
	"lcache/sample"
)

func TestMain(m *testing.M) { os.Exit(testenv.Run(m)) }

var dataset = sample.Fingerprint{1, 2, 3}

// shelf is a Home in memory. Its samples are made from their index.
type shelf struct {
	waits   bool          // for the source, always
	done    atomic.Uint64 // reads for others
	n       int
	size    func(sample.Index) int
	why     func(sample.Index) Why // nil: it keeps all
	hang    chan struct{}          // nil: it brings at once; else it waits until that is closed, or its context ends
	pause   time.Duration          // before each sample
	held    atomic.Int64           // samples whose bytes are being read
	asked   atomic.Int64
	content []byte
}

func (s *shelf) Samples() int            { return s.n }
func (s *shelf) Size(i sample.Index) int { return s.size(i) }
func (s *shelf) Manifest() []byte        { return s.content }
func (s *shelf) Work() (uint64, bool)    { return s.done.Load(), s.waits }

func (s *shelf) Bring(ctx context.Context, indices []sample.Index, to func(Brought)) {
	for _, i := range indices {
		if ctx.Err() != nil {
			return
		}
		s.asked.Add(1)
		if s.hang != nil {
			select {
			case <-s.hang:
			case <-ctx.Done():
				return
			}
		}
		if s.pause > 0 {
			time.Sleep(s.pause) // a slow disk
		}
		if s.why != nil {
			if w := s.why(i); w.IsAbsent() {
				to(Brought{Index: i, Why: w})
				continue
			}
		}
		b := content(i, s.size(i))
		s.held.Add(1)
		to(Brought{Index: i, Sum: sample.Sum(b), Bytes: b, Release: func() { s.held.Add(-1) }})
	}
}

// content is the bytes of a sample.
func content(i sample.Index, size int) []byte {
	b := make([]byte, size)
	r := rand.NewPCG(uint64(i), 0)
	for k := 0; k+8 <= size; k += 8 {
		v := r.Uint64()
		for j := range 8 {
			b[k+j] = byte(v >> (8 * j))
		}
	}
	return b
}

// heap is a Sink in memory.
type heap struct {
	mu     sync.Mutex
	got    map[sample.Index][]byte
	absent map[sample.Index]Why
	sums   map[sample.Index]uint64
	parts  int
	closed bool // Fetch has returned
	late   int  // calls after that
	block  chan struct{}
}

func newHeap() *heap {
	return &heap{got: map[sample.Index][]byte{}, absent: map[sample.Index]Why{}, sums: map[sample.Index]uint64{}}
}

func (h *heap) Room(p Piece) []byte {
	if h.block != nil {
		<-h.block
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		h.late++
	}
	if int(p.Offset) != len(h.got[p.Index]) {
		panic("pieces of a sample out of order")
	}
	h.got[p.Index] = append(h.got[p.Index], make([]byte, p.Length)...)
	return h.got[p.Index][p.Offset:]
}

func (h *heap) Came(p Piece) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		h.late++
	}
	h.parts++
	if p.Why.IsAbsent() {
		h.absent[p.Index] = p.Why
	} else if p.Length == 0 {
		h.got[p.Index] = []byte{}
	}
	h.sums[p.Index] = p.Sum
}

// serve serves a home on the loopback interface.
func serve(t testing.TB, h Home, o ServerOptions) (s *Server, address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s = Serve(l, o)
	s.Add(dataset, h)
	t.Cleanup(s.Close)
	return s, l.Addr().String()
}

// client returns a client that is patient, because the machine of a test may be busy, unless a test is about being late.
func client(t testing.TB, samples int, o ClientOptions) *Client {
	t.Helper()
	if o.Late == 0 {
		o.Late = time.Minute
	}
	c := NewClient(dataset, samples, o)
	t.Cleanup(c.Close)
	return c
}

func indices(from, n int) (all []sample.Index) {
	for i := range n {
		all = append(all, sample.Index(from+i))
	}
	return all
}

// fetch is Fetch for tests that look at the sink.
func fetch(c *Client, ctx context.Context, address string, indices []sample.Index, to Sink) error {
	_, err := c.Fetch(ctx, address, indices, to)
	return err
}

// released waits until the server has released all samples of a home.
func released(t *testing.T, s *shelf) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); s.held.Load() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d samples are still held", s.held.Load())
		}
	}
}

func TestFetch(t *testing.T) {
	sizes := []int{0, 1, 100, 1023, 1024, 5000, 100_000, mostPart, mostPart + 1, 5_000_000}
	s := &shelf{n: 10_000, size: func(i sample.Index) int { return sizes[int(i)%len(sizes)] }, why: func(i sample.Index) Why {
		return map[sample.Index]Why{13: NotKept, 14: SourceFailed, 17: Closing}[i]
	}}
	server, address := serve(t, s, ServerOptions{})
	c := client(t, s.n, ClientOptions{})
	h := newHeap()
	var want uint64
	if _, err := c.Fetch(t.Context(), address, indices(0, 40), h); err != nil {
		t.Fatal(err)
	}
	for i := range sample.Index(40) {
		why := s.why(i)
		if h.absent[i] != why {
			t.Errorf("sample %d is absent for reason %d, want %d", i, h.absent[i], why)
		}
		if why.IsAbsent() {
			continue
		}
		b := content(i, s.size(i))
		want += uint64(len(b))
		if got, ok := h.got[i]; !ok || !bytes.Equal(got, b) || h.sums[i] != sample.Sum(b) {
			t.Errorf("sample %d of %d bytes came as %d bytes, there: %v", i, len(b), len(got), ok)
		}
	}
	all := server.Consumers(dataset)
	if len(all) != 1 || all[0].Bytes != want || all[0].Asked.IsZero() {
		t.Fatalf("consumers %+v, want one that got %d bytes", all, want)
	}
	// No message is larger than a frame, and none is smaller than a sample or a part of one.
	if least, most := (want+MostFrame-1)/MostFrame, uint64(40+want/mostPart); all[0].Sent < least || all[0].Sent > most {
		t.Errorf("%d bytes were sent in %d messages, want %d to %d", want, all[0].Sent, least, most)
	}
	released(t, s)
}

// A home may bring other sizes than it has announced: the consumer gets what it brought.
func TestSizesThatChange(t *testing.T) {
	s := &liar{shelf{n: 100, size: func(i sample.Index) int { return 3000 * int(i) }}}
	server, address := serve(t, s, ServerOptions{})
	h := newHeap()
	if _, err := client(t, s.n, ClientOptions{}).Fetch(t.Context(), address, indices(0, s.n), h); err != nil || len(h.got) != s.n {
		t.Errorf("%d samples, %v", len(h.got), err)
	}
	for i := range sample.Index(s.n) {
		if !bytes.Equal(h.got[i], content(i, s.shelf.size(i))) {
			t.Errorf("sample %d has wrong bytes", i)
		}
	}
	server.Close()
	released(t, &s.shelf)
}

// liar is a shelf that announces wrong sizes.
type liar struct{ shelf }

func (l *liar) Size(i sample.Index) int { return l.size(i) * int(i%4) / 2 }

// Many requests share a stream, from several goroutines; each gets its own samples.
func TestManyRequestsAtOnce(t *testing.T) {
	s := &shelf{n: 100_000, size: func(i sample.Index) int { return 500 + int(i)%3000 }}
	_, address := serve(t, s, ServerOptions{})
	c := client(t, s.n, ClientOptions{})
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for round := range testenv.Pick(20, 5) {
				h := newHeap()
				from := (g*20 + round) * 200
				if _, err := c.Fetch(t.Context(), address, indices(from, 200), h); err != nil {
					t.Error(err)
					return
				}
				for i := from; i < from+200; i++ {
					if !bytes.Equal(h.got[sample.Index(i)], content(sample.Index(i), s.size(sample.Index(i)))) || len(h.got) != 200 {
						t.Errorf("sample %d of %d is wrong", i, len(h.got))
						return
					}
				}
			}
		})
	}
	all.Wait()
	released(t, s)
}

func TestEncryptedFetch(t *testing.T) {
	// The certificates are the cluster's; here one made by hand for the server is enough to see that both sides ask for one.
	cert := selfSigned(t)
	s := &shelf{n: 100, size: func(i sample.Index) int { return 20_000 * int(i) }}
	_, address := serve(t, s, ServerOptions{TLS: &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS13}})
	withCert := &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13}
	h := newHeap()
	if _, err := client(t, s.n, ClientOptions{TLS: withCert}).Fetch(t.Context(), address, indices(0, s.n), h); err != nil || len(h.got) != s.n {
		t.Errorf("%d samples, %v", len(h.got), err)
	}
	for i := range sample.Index(s.n) {
		if !bytes.Equal(h.got[i], content(i, s.size(i))) {
			t.Errorf("sample %d has wrong bytes", i)
		}
	}
	for name, o := range map[string]ClientOptions{"no certificate": {TLS: &tls.Config{InsecureSkipVerify: true}, Late: 5 * time.Second}, "no encryption": {Late: 5 * time.Second}} {
		start := time.Now()
		if _, err := client(t, s.n, o).Fetch(t.Context(), address, indices(0, 10), newHeap()); !errors.Is(err, ErrLate) {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("%s: the error came after %v", name, took)
		}
	}
}

func TestRefusals(t *testing.T) {
	s := &shelf{n: 10, size: func(sample.Index) int { return 10 }}
	server, address := serve(t, s, ServerOptions{})
	c := NewClient(sample.Fingerprint{9}, 10, ClientOptions{})
	defer c.Close()
	if _, err := c.Fetch(t.Context(), address, indices(0, 1), newHeap()); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "09000000") {
		t.Errorf("another dataset: %v", err)
	}
	server.Remove(dataset)
	if _, err := client(t, 10, ClientOptions{}).Fetch(t.Context(), address, indices(0, 1), newHeap()); !errors.Is(err, ErrRefused) {
		t.Errorf("a dataset that was removed: %v", err)
	}
	server.Add(dataset, s)
	if _, err := client(t, 20, ClientOptions{}).Fetch(t.Context(), address, indices(5, 10), newHeap()); !errors.Is(err, ErrRefused) {
		t.Errorf("samples that do not exist: %v", err)
	}
	d := client(t, 10, ClientOptions{})
	for _, n := range []int{0, MostIndices + 1} {
		if _, err := d.Fetch(t.Context(), address, indices(0, n), newHeap()); err == nil {
			t.Errorf("a request of %d samples was sent", n)
		}
	}
	if _, err := d.Fetch(t.Context(), "127.0.0.1:1", indices(0, 1), newHeap()); !errors.Is(err, ErrLate) {
		t.Errorf("a port without a listener: %v", err)
	}
}

// A peer whose disk hangs says so by MARKs that stand still; one that is stopped says nothing. Both are late, within a time that is bounded, and what
// was asked of them is over. A peer that is only slow is not late.
func TestLatePeers(t *testing.T) {
	late := 1500 * time.Millisecond
	hangs := &shelf{n: 100, size: func(sample.Index) int { return 100 }, hang: make(chan struct{})}
	_, address := serve(t, hangs, ServerOptions{})
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, at := range map[string]string{"hangs": address, "silent": silent.Addr().String()} {
		c := client(t, 100, ClientOptions{Late: late})
		h := newHeap()
		done := make(chan error, 1)
		go func() { done <- fetch(c, context.Background(), at, indices(0, 10), h) }()
		select {
		case err := <-done:
			if !errors.Is(err, ErrLate) {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(late + 30*time.Second):
			t.Fatalf("%s: the request did not end", name)
		}
		// The next request does not wait again: no stream to such a peer is opened for a while.
		if _, err := c.Fetch(context.Background(), at, indices(0, 10), h); !errors.Is(err, ErrLate) {
			t.Errorf("%s, again: %v", name, err)
		}
	}
	close(hangs.hang)
	released(t, hangs)

	// A home that brings nothing, because it reads for others, is not late before it reads nothing any longer.
	busy := &shelf{n: 100, size: func(sample.Index) int { return 100 }, hang: make(chan struct{})}
	busy.done.Store(1000) // of earlier streams
	_, address = serve(t, busy, ServerOptions{})
	began := time.Now()
	var reading sync.WaitGroup
	reading.Go(func() {
		for time.Since(began) < 3*late {
			busy.done.Add(1)
			time.Sleep(10 * time.Millisecond)
		}
	})
	if _, err := client(t, 100, ClientOptions{Late: late}).Fetch(t.Context(), address, indices(0, 10), newHeap()); !errors.Is(err, ErrLate) || time.Since(began) < 3*late {
		t.Errorf("a busy home: %v after %v", err, time.Since(began))
	}
	reading.Wait()
	close(busy.hang)
	released(t, busy)

	slow := &shelf{n: 100, size: func(sample.Index) int { return 300_000 }, pause: 300 * time.Millisecond}
	_, address = serve(t, slow, ServerOptions{})
	h := newHeap()
	if _, err := client(t, 100, ClientOptions{Late: 5 * time.Second}).Fetch(t.Context(), address, indices(0, 20), h); err != nil || len(h.got) != 20 {
		t.Errorf("a slow peer: %d samples, %v", len(h.got), err)
	}
}

// A peer that comes back is asked again.
func TestPeerComesBack(t *testing.T) {
	s := &shelf{n: 100, size: func(sample.Index) int { return 1000 }}
	server, address := serve(t, s, ServerOptions{})
	c := client(t, 100, ClientOptions{})
	if _, err := c.Fetch(t.Context(), address, indices(0, 10), newHeap()); err != nil {
		t.Fatal(err)
	}
	server.Close()
	if _, err := c.Fetch(t.Context(), address, indices(0, 10), newHeap()); !errors.Is(err, ErrLate) {
		t.Errorf("it is gone: %v", err)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	again := Serve(l, ServerOptions{})
	defer again.Close()
	again.Add(dataset, s)
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		h := newHeap()
		if _, err = c.Fetch(t.Context(), address, indices(0, 10), h); err == nil && len(h.got) == 10 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after a minute: %v", err)
		}
	}
}

// After Fetch has returned, its sink is left alone, even if its answers arrive just then.
func TestSinkIsLeftAlone(t *testing.T) {
	s := &shelf{n: 10_000, size: func(sample.Index) int { return 2000 }}
	_, address := serve(t, s, ServerOptions{})
	c := client(t, s.n, ClientOptions{})
	for round := range testenv.Pick(200, 40) {
		ctx, cancel := context.WithCancel(t.Context())
		h := newHeap()
		go func() {
			time.Sleep(time.Duration(round%20) * 50 * time.Microsecond) // at another point each time
			cancel()
		}()
		_, err := c.Fetch(ctx, address, indices(0, 2000), h)
		h.mu.Lock()
		h.closed = true
		h.mu.Unlock()
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		defer func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.late > 0 {
				t.Errorf("round %d: the sink was called %d times after Fetch had returned", round, h.late)
			}
		}()
	}
	released(t, s)
}

// A consumer that takes nothing does not hold the home's memory for ever, and costs other consumers nothing.
func TestConsumerThatTakesNothing(t *testing.T) {
	s := &shelf{n: 10_000, size: func(sample.Index) int { return 100_000 }}
	server, address := serve(t, s, ServerOptions{Window: 64 << 10})
	c := client(t, s.n, ClientOptions{Window: func() int32 { return 64 << 10 }, Late: time.Minute})
	h := newHeap()
	h.block = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- fetch(c, ctx, address, indices(0, 1000), h) }()
	other := newHeap()
	if _, err := client(t, s.n, ClientOptions{}).Fetch(t.Context(), address, indices(0, 20), other); err != nil || len(other.got) != 20 {
		t.Errorf("another consumer: %d samples, %v", len(other.got), err)
	}
	released(t, s) // the home's memory does not wait for the consumer
	if n := s.asked.Load(); n > 200 {
		t.Errorf("%d samples were brought for a consumer that takes nothing", n)
	}
	close(h.block)
	if err := <-done; err != nil || len(h.got) != 1000 {
		t.Errorf("it goes on with %d samples, %v", len(h.got), err)
	}
	server.Close()
	released(t, s)
}

func TestManifest(t *testing.T) {
	whole := content(5, 3_500_000)
	s := &shelf{n: 1, content: whole}
	_, address := serve(t, s, ServerOptions{})
	c := client(t, 1, ClientOptions{})
	for _, offset := range []int{0, 1, 2_000_000, len(whole)} {
		var got []byte
		err := c.Manifest(t.Context(), address, uint64(offset), uint64(len(whole)), func(total uint64, b []byte) error {
			if total != uint64(len(whole)) {
				return fmt.Errorf("total %d", total)
			}
			got = append(got, b...)
			return nil
		})
		if err != nil || !bytes.Equal(got, whole[offset:]) {
			t.Errorf("from %d: %d bytes, %v", offset, len(got), err)
		}
	}
	if err := c.Manifest(t.Context(), address, uint64(len(whole)+1), 1<<30, nil); !errors.Is(err, ErrRefused) {
		t.Errorf("beyond its end: %v", err)
	}
	if err := c.Manifest(t.Context(), address, 0, 1000, func(uint64, []byte) error { return nil }); !errors.Is(err, ErrFrame) {
		t.Errorf("larger than allowed: %v", err)
	}
	enough := errors.New("enough")
	if err := c.Manifest(t.Context(), address, 0, 1<<30, func(uint64, []byte) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("stopped: %v", err)
	}
}
