package session

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"lcache/sample"
)

// TestBackToADroppedOrder: the schedule keeps the orders of some past epochs. A rank that goes back to an earlier
// epoch gets a newly drawn order, because the old one no longer exists.
func TestBackToADroppedOrder(t *testing.T) {
	b := newBed(t, shade, nil)
	b.Join(0, "run", true)
	const epochs = 24
	for epoch := range epochs {
		b.observes(epoch, 0, b.order(epoch, 0), func(i sample.Index) float32 { return float32(i) })
		b.o.Schedule.EpochOver(epoch)
	}
	if b.o.Schedule.IsKnown(1) {
		t.Fatal("the schedule has the order of epoch 1 still: nothing is tested")
	}
	for _, epoch := range []int{1, 2} {
		order := b.order(epoch, 0)
		slices.Sort(order)
		if order = slices.Compact(order); len(order) == 0 {
			t.Errorf("epoch %d is empty", epoch)
		}
	}
}

// TestBackWhileOthersTrain: a rank that goes back waits while another one trains a later epoch. The error says so.
func TestBackWhileOthersTrain(t *testing.T) {
	b := newBed(t, `{"method":"shade","cache":0,"lag":0,"world_size":2}`, nil)
	for epoch := range 3 {
		for rank := range 2 {
			b.Join(rank, "run", true)
			b.observes(epoch, rank, b.order(epoch, rank), func(i sample.Index) float32 { return float32(i) })
		}
	}
	for rank := range 2 {
		b.order(3, rank)
	}
	b.Join(0, "another run", true)
	b.Seen(1, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := b.Await(ctx, 0, 0); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the order of epoch 0 is drawn again after the last rank has left epoch 3") {
		t.Errorf("%v", err)
	}
}
