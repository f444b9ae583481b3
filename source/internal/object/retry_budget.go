package object

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

const (
	budgetSlots = 60              // of a second each
	budgetLeast = 10              // retries a minute that are always allowed
	budgetShare = 10              // else 1/budgetShare of the requests
	budgetPause = 5 * time.Second // after which one more is allowed, which sees whether the store is back
)

// budget delays retries, so that those of many readers are no storm on a store that is down. Over a minute there are at most a tenth
// as many retries as requests, and at least ten. Four kinds of retries go beyond that. They count, so that all others wait for them:
//
//   - A request that succeeds lets two go on, also such as come a little later: when the store is back, the delayed ones need not wait for the minute's end, and a
//     store that fails now and then is asked again as often as it fails.
//   - One every five seconds sees whether the store is back.
//   - A reader that was delayed for most of its time asks once more before it gives up.
//   - An answer that breaks off is continued at once where it ended.
type budget struct {
	mu       sync.Mutex // guards the fields that follow
	began    time.Time
	second   int // of slots' newest
	requests [budgetSlots]int
	retries  [budgetSlots]int
	last     time.Time // a retry was taken
	waiting  []chan struct{}
	spare    int // unused retries that successes since the last failure allow
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
	b.retries[b.turn()] += n
	b.waiting = b.waiting[n:]
	b.spare = min(b.spare+2-n, budgetLeast)
}

// retry counts one that is sent without the budget's leave.
func (b *budget) retry() {
	b.mu.Lock()
	b.retries[b.turn()]++
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

// wait waits until a retry may be sent, or until the time that is left has passed: then there is none. A reader that has its last try gets it at some moment of that
// time's second half, so that not all readers ask at once, and some ask late.
func (b *budget) wait(ctx context.Context, left time.Duration, hasLast bool) leave {
	end := left
	if hasLast {
		end = left/2 + rand.N(left/2+1)
	}
	last := time.NewTimer(end)
	defer last.Stop()
	for !b.take() {
		w := make(chan struct{})
		b.mu.Lock()
		b.waiting = append(b.waiting, w)
		b.mu.Unlock()
		again := time.NewTimer(time.Second)
		over := false
		select {
		case <-w:
		case <-last.C:
			over = true
		case <-ctx.Done():
		case <-again.C:
		}
		again.Stop()
		switch let := b.forget(w); {
		case let:
			return given
		case over && hasLast:
			b.retry()
			return lastTry
		case over || ctx.Err() != nil:
			return none
		}
	}
	return given
}

// leave is how a wait for a retry ended.
type leave int

const (
	none    leave = iota // the time, or the context, is over
	given                // by the budget
	lastTry              // beyond it
)

// forget ends a wait, and reports whether a success has let it go on.
func (b *budget) forget(w chan struct{}) (let bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.waiting, w)
	if i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
	return i < 0
}
