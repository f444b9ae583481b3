package peer

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lcache/sample"
)

// TestCloseIdle: a server knows which of its consumers are connected. One that closes its idle streams is not, and can request samples again.
func TestCloseIdle(t *testing.T) {
	h := &shelf{n: 10, size: func(sample.Index) int { return 100 }}
	s, address := serve(t, h, ServerOptions{})
	c := client(t, h.n, ClientOptions{})
	c.CloseIdle() // nothing is open
	for range 2 {
		began := time.Now()
		if missing, err := c.Fetch(t.Context(), address, []sample.Index{1, 2}, newHeap()); missing != 0 || err != nil {
			t.Fatal(missing, err)
		}
		if all := s.Consumers(dataset); len(all) != 1 || !all[0].IsOpen || all[0].Asked.Before(began) {
			t.Errorf("after %v the consumers are %+v", began, all)
		}
		c.CloseIdle()
		for end := time.Now().Add(10 * time.Second); s.Consumers(dataset)[0].IsOpen; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the stream is still open")
			}
		}
	}
}

// TestCloseIdleWhileOthersFetch: closing idle streams fails no request.
func TestCloseIdleWhileOthersFetch(t *testing.T) {
	h := &shelf{n: 1000, size: func(sample.Index) int { return 100 }}
	_, address := serve(t, h, ServerOptions{})
	c := client(t, h.n, ClientOptions{})
	ctx, stop := context.WithCancel(t.Context())
	var closing, fetching sync.WaitGroup
	closing.Go(func() {
		for ctx.Err() == nil {
			c.CloseIdle()
		}
	})
	for k := range 4 {
		fetching.Go(func() {
			for n := range 100 {
				if missing, err := c.Fetch(t.Context(), address, []sample.Index{sample.Index(100*k + n)}, newHeap()); missing != 0 || err != nil {
					t.Errorf("request %d: %d missing, %v", n, missing, err)
					return
				}
			}
		})
	}
	fetching.Wait()
	stop()
	closing.Wait()
}

// Retry ends the pause after errors, because the peer is there again.
func TestRetry(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	down := make(chan struct{})
	go func() { // a peer that is down
		defer close(down)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	c := client(t, 100, ClientOptions{})
	address := l.Addr().String()
	if err := fetch(c, t.Context(), address, indices(0, 10), newHeap()); !errors.Is(err, ErrLate) {
		t.Errorf("it is down: %v", err)
	}
	link := c.peers[address]
	link.mu.Lock()
	link.retry, link.errors = time.Now().Add(time.Hour), 20
	link.mu.Unlock()
	l.(*net.TCPListener).SetDeadline(time.Now())
	<-down
	l.(*net.TCPListener).SetDeadline(time.Time{})
	server := Serve(l, ServerOptions{})
	defer server.Close()
	server.Add(dataset, &shelf{n: 100, size: func(sample.Index) int { return 1000 }})
	if err := fetch(c, t.Context(), address, indices(0, 10), newHeap()); err == nil {
		t.Error("there is no pause after errors")
	}
	c.Retry(address)
	c.Retry("127.0.0.1:1") // nothing was requested there
	if err := fetch(c, t.Context(), address, indices(0, 10), newHeap()); err != nil {
		t.Errorf("after Retry: %v", err)
	}
}

// TestRetryWhileConnecting: a request that connects to a machine that was switched off does not delay those after its return.
func TestRetryWhileConnecting(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "listener")
	defer file.Close()
	if err := cmp.Or(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	l, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	address := l.Addr().String()
	full, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	c := client(t, 100, ClientOptions{Late: time.Hour})
	if err := fetch(c, t.Context(), "127.0.0.1:1", indices(0, 10), newHeap()); err == nil {
		t.Error("nobody listens there")
	}
	lost := c.peers["127.0.0.1:1"].lostAt
	first := make(chan error, 1)
	go func() { first <- fetch(c, t.Context(), address, indices(0, 10), newHeap()) }()
	eventually(t, "connecting", func() bool {
		c.mu.Lock()
		l := c.peers[address]
		c.mu.Unlock() // before l.mu: a link locks the client
		if l == nil {
			return false
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lostAt = lost // as if an earlier connection had ended
		return l.current != nil
	})
	full.Close()
	server := Serve(l, ServerOptions{})
	defer server.Close()
	server.Add(dataset, &shelf{n: 100, size: func(sample.Index) int { return 1000 }})
	c.Retry(address)
	if err := fetch(c, t.Context(), address, indices(0, 10), newHeap()); err != nil {
		t.Errorf("after Retry: %v", err)
	}
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("the request on the old connection: %v", err)
	}
}

// TestRetryKeepsConnection: a request on a connection that works does not fail because its machine has a new name, whatever ended earlier streams of the
// connection.
func TestRetryKeepsConnection(t *testing.T) {
	h := &shelf{n: 100, size: func(sample.Index) int { return 1000 }, hang: make(chan struct{})} // each sample takes a token
	s, address := serve(t, h, ServerOptions{})
	c := client(t, h.n, ClientOptions{})
	during := func(do func()) {
		t.Helper()
		if l := c.peers[address]; l != nil {
			l.mu.Lock()
			l.retry = time.Time{}
			l.mu.Unlock()
		}
		before, done := h.asked.Load(), make(chan error, 1)
		go func() { done <- fetch(c, t.Context(), address, indices(0, 1), newHeap()) }()
		eventually(t, "the peer has the request", func() bool { return h.asked.Load() > before })
		do()
		select {
		case h.hang <- struct{}{}:
		case err := <-done:
			t.Fatalf("the request: %v", err)
		}
		if err := <-done; err != nil {
			t.Errorf("the request: %v", err)
		}
	}
	s.Remove(dataset)
	if err := fetch(c, t.Context(), address, indices(0, 1), newHeap()); !errors.Is(err, ErrRefused) {
		t.Errorf("the machine does not serve the dataset yet: %v", err)
	}
	s.Add(dataset, h)
	during(func() { c.Retry(address) })
	c.peers[address].current.fail(ErrLate) // its disks did not answer for a while
	during(func() {})
	during(func() { c.Retry(address) })
}

// TestForgetBeforeStream: a request that has a connection which is closed before it opens a stream does not make the peer late.
func TestForgetBeforeStream(t *testing.T) {
	h := &shelf{n: 10, size: func(sample.Index) int { return 100 }}
	_, address := serve(t, h, ServerOptions{})
	c := client(t, h.n, ClientOptions{})
	l, err := c.use(address)
	if err != nil {
		t.Fatal(err)
	}
	c.Forget(address)
	s, err := l.stream(c)
	if err == nil {
		<-s.over
		err = s.err()
	}
	if err != context.Canceled {
		t.Error(err)
	}
	c.unuse(l)
}
