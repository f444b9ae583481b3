package object

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	budgetSlots = 60              // of a second each
	budgetLeast = 10              // retries a minute that are always allowed
	budgetShare = 10              // else one of so many requests
	budgetPause = 5 * time.Second // after which one more is allowed, which sees whether the store is back
)

// budget delays retries, so that those of many readers are no storm on a store that is down. Over a minute there are at most a tenth
// as many retries as requests, and at least ten. A request that succeeds lets two more go on, also such as come a little later: when the store is back, the delayed ones
// need not wait for the minute's end. It never refuses a retry.
type budget struct {
	mu       sync.Mutex // guards the fields that follow
	began    time.Time
	second   int // of slots' newest
	requests [budgetSlots]int
	retries  [budgetSlots]int
	last     time.Time // a retry was taken
	waiting  []chan struct{}
	spare    int // retries that successes let go on since the last failure, and that nobody has waited for yet
}

func newBudget() *budget { return &budget{began: time.Now()} }

// turn makes the slot of now the newest.
func (b *budget) turn() int {
	now := int(time.Since(b.began) / time.Second)
	for n := 0; b.second < now && n < budgetSlots; n++ {
		b.second++
		b.requests[b.second%budgetSlots], b.retries[b.second%budgetSlots] = 0, 0
	}
	b.second = now
	return now % budgetSlots
}

// request counts one that is sent.
func (b *budget) request() {
	b.mu.Lock()
	b.requests[b.turn()]++
	b.mu.Unlock()
}

// succeeded lets two that wait go on.
func (b *budget) succeeded() {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(2, len(b.waiting))
	for _, w := range b.waiting[:n] {
		close(w)
	}
	b.waiting = b.waiting[n:]
	b.spare = min(b.spare+2-n, budgetLeast)
}

// failed says that a request failed: what succeeded before says nothing more.
func (b *budget) failed() {
	b.mu.Lock()
	b.spare = 0
	b.mu.Unlock()
}

// take takes a retry if the minute has one.
func (b *budget) take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	slot := b.turn()
	requests, retries := 0, 0
	for i := range budgetSlots {
		requests += b.requests[i]
		retries += b.retries[i]
	}
	if retries >= max(budgetLeast, requests/budgetShare) && time.Since(b.last) < budgetPause {
		if b.spare == 0 {
			return false
		}
		b.spare--
	}
	b.last = time.Now()
	b.retries[slot]++
	return true
}

// wait waits until a retry may be sent: at the latest when between half and nine tenths of the time that is left has passed, so that every reader
// asks once more before it gives up, and not all at once. Its error is the context's.
func (b *budget) wait(ctx context.Context, left time.Duration) error {
	last := time.NewTimer(left/2 + rand.N(left*2/5+1))
	defer last.Stop()
	for !b.take() {
		w := make(chan struct{})
		b.mu.Lock()
		b.waiting = append(b.waiting, w)
		b.mu.Unlock()
		again := time.NewTimer(time.Second)
		var done, err = false, error(nil)
		select {
		case <-w:
			done = true
		case <-last.C:
			done = true
		case <-ctx.Done():
			done, err = true, ctx.Err()
		case <-again.C:
		}
		again.Stop()
		b.forget(w)
		if done {
			return err
		}
	}
	return ctx.Err()
}

func (b *budget) forget(w chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, other := range b.waiting {
		if other == w {
			b.waiting = append(b.waiting[:i], b.waiting[i+1:]...)
			return
		}
	}
}
