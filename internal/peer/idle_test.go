package peer

import (
	"context"
	"sync"
	"testing"
	"time"

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
