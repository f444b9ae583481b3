package session

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"lcache/internal/importance/score"
	"lcache/internal/importance/state"
	"lcache/internal/serve/deliver"
	"lcache/sample"
)

const shade = `{"method":"shade","cache":0,"lag":0}`

// TestEpochsAreDrawn: each rank's part of an order is published when all ranks have ended the epoch before. Samples
// of greater loss come more often.
func TestEpochsAreDrawn(t *testing.T) {
	b := newBed(t, `{"method":"shade","cache":0,"lag":0,"world_size":2}`, nil)
	for rank := range 2 {
		b.Join(rank, "run", true)
	}
	loss := func(i sample.Index) float32 { return float32(1 + i) }
	uses := map[sample.Index]int{}
	for epoch := range 6 {
		all := slices.Concat(b.order(epoch, 0), b.order(epoch, 1))
		if len(all) != samples {
			t.Fatalf("epoch %d has %d places", epoch, len(all))
		}
		for rank := range 2 {
			b.observes(epoch, rank, b.order(epoch, rank), loss)
		}
		if epoch > 0 {
			for _, i := range all {
				uses[i]++
			}
		}
	}
	low, high := 0, 0
	for i, n := range uses {
		if i < samples/2 {
			low += n
		} else {
			high += n
		}
	}
	if high <= low {
		t.Errorf("the half of the samples with greater losses is used %d times, the other one %d times", high, low)
	}
	b.order(6, 0)
	if s := b.Status(); s.Epoch != 6 || s.Observations != 6*samples || s.State != "active" || !b.Draws() {
		t.Errorf("%+v", s)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if want := []string{"0/0", "0/1", "1/0", "1/1", "2/0"}; !slices.Equal(b.published[:len(want)], want) {
		t.Errorf("published %v", b.published)
	}
}

// TestWaitForOtherRanks: a rank that has ended its epoch waits for the others. The error names the cause.
func TestWaitForOtherRanks(t *testing.T) {
	b := newBed(t, `{"method":"shade","cache":0,"lag":0,"world_size":2}`, nil)
	for rank := range 2 {
		b.Join(rank, "run", true)
		b.order(0, rank)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := b.Await(ctx, 0, 1); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "waiting for other ranks to end epoch 0") {
		t.Errorf("%v", err)
	}
	refused := new(deliver.ArgumentError)
	for _, rank := range []int{-1, 2} {
		if err := b.Await(t.Context(), rank, 0); !errors.As(err, &refused) {
			t.Errorf("rank %d of a world of 2: %v", rank, err)
		}
	}
	b.EndEpoch(1, score.Progress{Epoch: 0}, Unsent{})
	b.order(1, 0)
}

// TestStopWhileABoundaryIsMade: requests get the reason of the stop, even if the worker is busy then.
func TestStopWhileABoundaryIsMade(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan struct{})
	b := newBed(t, shade, nil)
	b.Join(0, "run", true)
	b.order(0, 0)
	b.mu.Lock()
	b.wake = func() {
		close(began)
		<-goOn
	}
	b.mu.Unlock()
	b.EndEpoch(0, score.Progress{Epoch: 0}, Unsent{})
	<-began
	why := errors.New("its name was taken over")
	stopped := make(chan bool)
	go func() { stopped <- b.Stop(why) }()
	eventually(t, "the session is about to end", b.IsStopped)
	if b.Stop(errOver) {
		t.Error("it is stopped twice")
	}
	close(goOn)
	if !<-stopped {
		t.Error("it was stopped before")
	}
	if err := b.View(func(*state.State) {}); err != why {
		t.Errorf("the state of a session that is over: %v", err)
	}
	if err := b.Await(t.Context(), 0, 1); err != why {
		t.Errorf("its order: %v", err)
	}
}

// TestNothingIsQueuedAfterTheEnd: reports to a session that has ended take no memory.
func TestNothingIsQueuedAfterTheEnd(t *testing.T) {
	b := newBed(t, shade, nil)
	b.Stop(errOver)
	b.Observe(score.Observation{Kind: score.Losses, Index: []sample.Index{1}, Loss: []float32{1}, Node: sample.None})
	b.EndEpoch(0, score.Progress{}, Unsent{Changed: true})
	b.Join(0, "another run", true)
	if n := b.o.Observations.Taken(); n != 0 {
		t.Errorf("%d bytes", n)
	}
}

// TestRestart: a restarted session draws the same order. Its file has the order before the epoch begins.
func TestRestart(t *testing.T) {
	b := newBed(t, shade, nil)
	b.Join(0, "run", true)
	b.observes(0, 0, b.order(0, 0), func(i sample.Index) float32 { return float32(i) })
	want := b.order(1, 0)
	eventually(t, "the boundary is saved", func() bool { return b.IsSaved(1) })
	b.close()
	b.mu.Lock()
	b.laidOut, b.changed = []int{0, 1, 7}, nil
	b.mu.Unlock()
	var err error
	if b.Session, err = New(t.Context(), b.o); err != nil {
		t.Fatal(err)
	}
	if got := b.order(1, 0); !slices.Equal(got, want) {
		t.Errorf("epoch 1 has the order %v, and had %v", got, want)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Contains(b.changed, 7) || slices.Contains(b.changed, 1) {
		t.Errorf("the layouts of epochs %v are useless, want epoch 7 among them, and not epoch 1", b.changed)
	}
}

// TestDroppedOrders: orders that the state draws again are retracted. After the state has forgotten everything, all
// orders are.
func TestDroppedOrders(t *testing.T) {
	o := &state.Order{}
	for _, c := range []struct {
		story       string
		orders      map[int]*state.Order
		now, before int
		back        int
		left        []int
	}{
		{"orders that are over stay given", map[int]*state.Order{4: o, 5: o}, 4, 4, -1, []int{2, 3, 4, 5}},
		{"a coming one is drawn again", map[int]*state.Order{4: o}, 4, 4, 5, []int{2, 3, 4}},
		{"all is forgotten", map[int]*state.Order{2: o}, 2, 4, 0, nil},
	} {
		a := announced{given: map[int]bool{2: true, 3: true, 4: true, 5: true}}
		back := a.dropped(c.orders, c.now, c.before)
		var left []int
		for epoch := range 10 {
			if a.given[epoch] {
				left = append(left, epoch)
			}
		}
		if back != c.back || !slices.Equal(left, c.left) {
			t.Errorf("%s: from %d on, want %d; given %v, want %v", c.story, back, c.back, left, c.left)
		}
	}
}

// TestFileProgress: the first request of a published order waits for the file, for a limited time. After the file was
// late once, later orders do not wait until it has caught up.
func TestFileProgress(t *testing.T) {
	now := time.Unix(1e9, 0)
	f := fileProgress{version: 1, pending: map[int]pendingOrder{}}
	f.published(now, 0)
	if left, late := f.left(now.Add(time.Second), 0, 3*time.Second); left != 2*time.Second || late {
		t.Errorf("%v left, late %v", left, late)
	}
	f.has(1)
	if left, late := f.left(now.Add(time.Second), 0, 3*time.Second); left != 0 || late {
		t.Errorf("%v left when the file has it, late %v", left, late)
	}
	f.published(now, 1) // of the same version
	if left, _ := f.left(now, 1, 3*time.Second); left != 0 {
		t.Errorf("%v left for an order that the file has", left)
	}
	f.version = 2
	f.published(now, 2)
	if left, late := f.left(now.Add(3*time.Second), 2, 3*time.Second); left != 0 || !late {
		t.Errorf("%v left when the time is over, late %v", left, late)
	}
	f.published(now, 3)
	if left, late := f.left(now, 3, 3*time.Second); left != 0 || late {
		t.Errorf("an order waits %v for a file that hangs, late %v", left, late)
	}
	f.has(2)
	f.version = 3
	f.published(now, 4)
	if left, _ := f.left(now, 4, 3*time.Second); left != 3*time.Second {
		t.Errorf("%v left when the file has come", left)
	}
}
