package peer

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"lcache/sample"
)

// deafRelay passes connections on to an address. After cut, those that are open pass nothing on, and stay open, as after an outage of the network that is
// longer than TCP's patience.
func deafRelay(t *testing.T, address string) (relay string, cut func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var passing sync.WaitGroup
	var mu sync.Mutex // guards the fields that follow
	var open []net.Conn
	deaf := make(chan struct{})
	pass := func(to, from net.Conn, deaf <-chan struct{}) {
		b := make([]byte, 64<<10)
		for {
			n, err := from.Read(b)
			if err != nil {
				return
			}
			select {
			case <-deaf:
				io.Copy(io.Discard, from)
				return
			default:
			}
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
	}
	passing.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", address)
			if err != nil {
				near.Close()
				continue
			}
			mu.Lock()
			open = append(open, near, far)
			now := deaf
			mu.Unlock()
			passing.Go(func() { pass(far, near, now) })
			passing.Go(func() { pass(near, far, now) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		passing.Wait()
	})
	return l.Addr().String(), func() {
		mu.Lock()
		defer mu.Unlock()
		close(deaf)
		deaf = make(chan struct{})
	}
}

// TestDeadConnection: after a peer was silent, it is not asked again on the same connection, which may be dead, and what works on a new one is not late.
func TestDeadConnection(t *testing.T) {
	t.Parallel()
	s := &shelf{n: 10, size: func(sample.Index) int { return 100 }}
	_, address := serve(t, s, ServerOptions{})
	relay, cut := deafRelay(t, address)
	c := client(t, s.n, ClientOptions{Late: 500 * time.Millisecond})
	works := func() bool {
		missing, err := c.Fetch(t.Context(), relay, indices(0, 10), newHeap())
		return missing == 0 && err == nil
	}
	eventually(t, "no answer at first", works)
	cut()
	if err := fetch(c, t.Context(), relay, indices(0, 10), newHeap()); !errors.Is(err, ErrLate) {
		t.Errorf("on a dead connection: %v", err)
	}
	eventually(t, "no answer on a new connection", works)
}
