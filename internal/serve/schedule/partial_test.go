package schedule

import (
	"context"
	"slices"
	"testing"
	"time"

	"lcache/internal/memquota"
	"lcache/sample"
)

func noneSpare(int, int) bool { return false }

// TestPartialOrder: a partial order can be laid out, but not read. The order that completes it has the same key and does
// not change the version. Any other order has its own key.
func TestPartialOrder(t *testing.T) {
	s, err := New(Job{World: 2}, 10)
	if err != nil {
		t.Fatal(err)
	}
	ctx, none := context.Background(), sample.None
	part := map[int][][]sample.Index{0: {{1, none}, {3}}, 1: {{none, 5}, {none}}}
	for rank, batches := range part {
		if s.IsComplete(1, 0) {
			t.Error("it is complete before all ranks have partial orders")
		}
		if err := s.PushPartial(1, rank, batches, noneSpare); err != nil {
			t.Fatal(err)
		}
	}
	if !s.IsComplete(1, time.Hour) || s.IsKnown(1) || s.Samples(1) != 0 {
		t.Errorf("complete %v, known %v, %d samples", s.IsComplete(1, time.Hour), s.IsKnown(1), s.Samples(1))
	}
	if _, err := s.Chunks(ctx, 1, 0); err == nil {
		t.Error("a partial order can be read")
	}
	ahead, err := s.ToLayOut(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	push := func(rank int, batches [][]sample.Index) (changed bool) {
		t.Helper()
		if err := s.Claim(1, rank, 0, func(int) bool { return false }); err != nil {
			t.Fatal(err)
		}
		changed, _, err := s.Push(ctx, Pusher{Pid: 1}, 1, rank, Cut(batches), noneSpare)
		if err != nil {
			t.Fatal(err)
		}
		return changed
	}
	if push(0, [][]sample.Index{{1, 9}, {3}}) {
		t.Error("an order that completes the partial one changes the version")
	}
	half, err := s.ToLayOut(ctx, 1) // rank 1 is still open
	if err != nil || half.Key != ahead.Key || !slices.Equal(half.Open, ahead.Open) {
		t.Errorf("with one rank known: %+v, %v, want the key and the open places of %+v", half, err, ahead)
	}
	if push(1, [][]sample.Index{{2, 5}, {9}}) {
		t.Error("an order that completes the partial one changes the version")
	}
	whole, err := s.Order(ctx, 1)
	if err != nil || whole.Key != ahead.Key || !slices.Equal(whole.Open, ahead.Open) || !slices.Equal(whole.Global, []sample.Index{1, 9, 2, 5, 3, 9}) || !s.IsCurrent(1, ahead) {
		t.Errorf("the whole order is %+v, %v, current %v", whole, err, s.IsCurrent(1, ahead))
	}
	if o, epoch, err := s.Identify(ctx, 1, ahead.Key, 0); err != nil || o == nil || epoch != 1 {
		t.Errorf("a log that was laid out ahead is of %v, %d, %v", o, epoch, err)
	}
	if !push(1, [][]sample.Index{{2, 6}, {9}}) || s.IsCurrent(1, ahead) {
		t.Error("another order changes nothing")
	}
	if err := s.PushPartial(1, 0, part[0], noneSpare); err == nil {
		t.Error("a partial order was accepted for an epoch whose order is known")
	}
	if err := s.PushPartial(2, 0, [][]sample.Index{{10}}, noneSpare); err == nil {
		t.Error("a partial order with an index beyond the dataset was accepted")
	}
	s.Hold()
	if kept := s.kept; kept != 0 {
		t.Errorf("%d bytes are kept of orders that are forgotten", kept)
	}
}

// TestOtherOrderReplacesPartial: an order that does not complete the partial order replaces it.
func TestOtherOrderReplacesPartial(t *testing.T) {
	s, err := New(Job{}, 10)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PushPartial(0, 0, [][]sample.Index{{1, sample.None}}, noneSpare); err != nil {
		t.Fatal(err)
	}
	ahead, _ := s.ToLayOut(context.Background(), 0)
	if err := s.Claim(1, 0, 0, func(int) bool { return false }); err != nil {
		t.Fatal(err)
	}
	changed, _, err := s.Push(context.Background(), Pusher{Pid: 1}, 0, 0, Cut([][]sample.Index{{2, 3}}), noneSpare)
	if err != nil || !changed || s.IsCurrent(0, ahead) {
		t.Errorf("changed %v, current %v, %v", changed, s.IsCurrent(0, ahead), err)
	}
	if o, err := s.Order(context.Background(), 0); err != nil || o.Open != nil {
		t.Errorf("%+v, %v", o, err)
	}
}

// TestPartialOrderReplacesReadOrders: if orders leave no room, unneeded orders make room for a partial order, as for a
// pushed order.
func TestPartialOrderReplacesReadOrders(t *testing.T) {
	batches := [][]sample.Index{{1, 2}, {3}}
	s, err := New(Job{}, 10)
	if err != nil {
		t.Fatal(err)
	}
	room := 2*PushBytes(batches) + 64 // and a few places that are open
	s.CountIn(memquota.New(0).Share(room, room))
	if err := s.Claim(1, 0, 0, func(int) bool { return false }); err != nil {
		t.Fatal(err)
	}
	for epoch := range 2 {
		if _, _, err := s.Push(t.Context(), Pusher{Pid: 1}, epoch, 0, Cut(batches), noneSpare); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.PushPartial(2, 0, batches, noneSpare); err == nil {
		t.Error("a third order was accepted, with room for two")
	}
	if err := s.PushPartial(2, 0, batches, func(epoch, _ int) bool { return epoch < 1 }); err != nil {
		t.Error(err)
	}
	if s.IsKnown(0) || !s.IsKnown(1) {
		t.Errorf("epoch 0 is known: %v, epoch 1: %v", s.IsKnown(0), s.IsKnown(1))
	}
}
