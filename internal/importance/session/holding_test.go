package session

import (
	"errors"
	"strings"
	"testing"

	"lcache/internal/importance/state"
	"lcache/internal/memquota"
	"lcache/internal/serve/deliver"
)

// TestHolding: jobs take states, orders and samples from shares of one account. The error of a refused job names the
// needed --memory. A job that has ended gives everything back.
func TestHolding(t *testing.T) {
	const memory = 1 << 20
	account := memquota.New(memory)
	s := Shares{Account: account, States: account.Share(0, memory), Kept: account.Share(0, memory), MostOrders: 1000, Memory: memory}
	c := state.Config{BatchSize: 4, WorldSize: 1, Lag: "0", Cache: 1000}
	h, err := s.Hold(c, 1000)
	if err != nil {
		t.Fatal(err)
	}
	orders, bytes := ordersOf(c, 1000)
	if want := (64+8*orders)*1000 + orders*bytes; s.States.Taken() != want {
		t.Errorf("the state takes %d bytes, want %d", s.States.Taken(), want)
	}
	if got, want := h.Orders.Limit(), orders*bytes+1000; got != want {
		t.Errorf("the orders may take %d bytes, want %d", got, want)
	}
	if err := h.KeepCache(c); err != nil || !h.Keep(500) || s.Kept.Taken() != 1500 {
		t.Errorf("%d bytes are kept, want 1500: %v", s.Kept.Taken(), err)
	}
	left := s.Kept.Left()
	c.Cache = left + 7
	refused(t, h.KeepCache(c), "--memory 1048583 or more, or a smaller cache")
	_, err = s.Hold(c, 1<<30)
	refused(t, err, "importance: its state takes ")
	h.GiveBack()
	if s.States.Taken() != 0 || s.Kept.Taken() != 0 || account.Left() != memory {
		t.Errorf("%d bytes of states and %d of samples are not given back", s.States.Taken(), s.Kept.Taken())
	}
}

// TestOrdersTakeMemory: with an epoch that is drawn ahead, or served with substitutes, a job has more orders in
// memory.
func TestOrdersTakeMemory(t *testing.T) {
	n, bytes := ordersOf(state.Config{BatchSize: 4, WorldSize: 2, Lag: "0"}, 1000)
	for _, c := range []struct {
		lag, substitute string
		orders, times   int64
	}{{"0", "", n, 1}, {"1", "", n + 1, 1}, {"split", "", n + 1, 1}, {"0", "low", n, 2}} {
		if orders, got := ordersOf(state.Config{BatchSize: 4, WorldSize: 2, Lag: c.lag, Substitute: c.substitute}, 1000); orders != c.orders || got != c.times*bytes {
			t.Errorf("lag %s, substitutes %q: %d orders of %d bytes, want %d of %d", c.lag, c.substitute, orders, got, c.orders, c.times*bytes)
		}
	}
}

func refused(t *testing.T, err error, text string) {
	t.Helper()
	var argument *deliver.ArgumentError
	if !errors.As(err, &argument) || !strings.Contains(err.Error(), text) {
		t.Errorf("%v, want %q", err, text)
	}
}
