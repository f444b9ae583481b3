package session

import (
	"sync"
	"testing"
	"time"

	"lcache/internal/importance/policy"
	"lcache/internal/importance/substitute"
	"lcache/internal/memquota"
	"lcache/internal/serve/deliver"
	"lcache/sample"
)

// TestOrderRetractedDuringDelivery: the worker retracts an order and plans it again, while a delivery of it is being
// counted.
func TestOrderRetractedDuringDelivery(t *testing.T) {
	two := &Requested{byRank: map[int][][]sample.Index{0: {{1, 2, 3}}}, kinds: substitute.Kinds{0}, places: 3, world: 1, size: 3}
	s := &Session{orders: announced{requested: map[int]*Requested{}}}
	served, requested := []sample.Index{1, 5, 3}, []sample.Index{1, 2, 3}
	stop := make(chan struct{})
	var worker sync.WaitGroup
	worker.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			s.mu.Lock()
			s.orders.requested[1] = two
			s.mu.Unlock()
			s.dropRequested(func(int) bool { return true })
		}
	})
	counted := 0
	for until := time.Now().Add(10 * time.Second); counted < 1000 && time.Now().Before(until); {
		if kinds := s.Kinds(deliver.Position{Epoch: 1}, served, requested); kinds != nil {
			counted++
			if kinds[1] != policy.Substitute {
				t.Errorf("kinds %v", kinds)
			}
		}
	}
	close(stop)
	worker.Wait()
	if counted == 0 {
		t.Error("no delivery found the order")
	}
}

// TestRequestedOrdersAreCountedExactly: the bytes counted for requested orders are the bytes given back, even if
// one had no room, and if one is kept again.
func TestRequestedOrdersAreCountedExactly(t *testing.T) {
	orders := memquota.New(0).Share(100, 100)
	b := newBed(t, shade, func(b *bed) { b.o.Orders = memquota.New(0).Share(1<<16, 1<<16) })
	b.Stop(errOver)
	b.Session.o.Orders = orders
	w := &worker{Session: b.Session}
	order := func(n int) *Requested {
		return &Requested{byRank: map[int][][]sample.Index{0: {make([]sample.Index, n)}}}
	}
	w.keepRequested(0, order(3))
	w.keepRequested(0, order(3))
	if got := orders.Taken(); got != order(3).bytes() {
		t.Errorf("one order takes %d bytes, and %d are counted", order(3).bytes(), got)
	}
	w.keepRequested(1, order(100))
	if b.Requested(1) == nil {
		t.Error("an order without room is not kept")
	}
	b.dropRequested(func(int) bool { return true })
	if got := orders.Taken(); got != 0 {
		t.Errorf("%d bytes are counted when all orders are dropped", got)
	}
}
