package object

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestGateIsFairAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(control{limit: 4, halved: -1})
		var mu sync.Mutex
		bytes, most := int64(0), int64(0)
		var order []int
		var wg sync.WaitGroup
		for i := range 40 {
			synctest.Wait() // each request comes after the one before
			wg.Go(func() {
				n := int64(20 << 20)
				if i == 20 {
					n = 100 << 20 // larger than the limit of bytes: it runs alone
				}
				g.enter(t.Context(), n)
				mu.Lock()
				order = append(order, i)
				bytes += n
				most = max(most, bytes)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				bytes -= n
				mu.Unlock()
				g.leave(n, n, false)
			})
		}
		wg.Wait()
		if most != 100<<20 || g.bytes != 0 || g.requests != 0 {
			t.Errorf("at most %d bytes under way, and %d in %d requests at the end", most, g.bytes, g.requests)
		}
		for i, n := range order {
			if n-i > 3 || i-n > 3 { // requests of the same moment may swap
				t.Errorf("the request %d was let in as number %d", n, i)
			}
		}
	})
}
