package schedule

import (
	"runtime"
	"testing"

	"lcache/sample"
)

// TestPushedWhileItIsMade: an order that is pushed while the epoch's order is being made counts, for waiting and for
// later callers.
func TestPushedWhileItIsMade(t *testing.T) {
	const n = 1 << 17
	s, err := New(Job{}, n)
	if err != nil {
		t.Fatal(err)
	}
	orders := [2][][]sample.Index{}
	for i := range sample.Index(n) {
		orders[0] = append(orders[0], []sample.Index{i})
		orders[1] = append(orders[1], []sample.Index{n - 1 - i})
	}
	keep := func(int, int) bool { return false }
	if err := s.Claim(1, 0, 0, func(int) bool { return false }); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Push(t.Context(), Pusher{Pid: 1}, 0, 0, Cut(orders[0]), keep); err != nil {
		t.Fatal(err)
	}
	asked := make(chan sample.Index)
	go func() {
		o, err := s.Order(t.Context(), 0)
		if err != nil {
			t.Error(err)
			close(asked)
			return
		}
		asked <- o.Global[0]
	}()
	for making := false; !making; runtime.Gosched() {
		s.mu.Lock()
		making = s.making[0] != nil || s.orders[0] != nil
		s.mu.Unlock()
	}
	if _, _, err := s.Push(t.Context(), Pusher{Pid: 1}, 0, 0, Cut(orders[1]), keep); err != nil {
		t.Fatal(err)
	}
	o, err := s.Order(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if first := <-asked; o.Global[0] != n-1 {
		t.Errorf("the order begins with %d, want %d as it was pushed last; the caller that had asked before got one that begins with %d", o.Global[0], n-1, first)
	}
}
