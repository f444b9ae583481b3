package object

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

const (
	budgetSlots = 60              // of one second each
	budgetLeast = 10              // retries per minute that are always allowed
	budgetShare = 10              // otherwise at most 1/budgetShare of the requests are retries
	budgetPause = 5 * time.Second // then one more is allowed, to see whether the store works again
)

// budget delays retries, so that many readers do not overload a store that is down. In a minute it allows a tenth as
// many retries as requests, and at least ten. Four kinds of retries are allowed in addition. They are counted, so all
// other retries wait for them:
//
//   - A request that succeeds allows two retries, now or a little later. So when the store works again, delayed
//     retries need not wait for the end of the minute, and a store that fails now and then gets as many retries as
//     it has failures.
//   - One retry every five seconds, to see whether the store works again.
//   - A last attempt of a reader that was delayed for most of its time, before it gives up.
//   - The continuation of an answer that broke off, at once.
type budget struct {
	mu       sync.Mutex // guards the fields that follow
	began    time.Time
	second   int // of the newest slot
	requests [budgetSlots]int
	retries  [budgetSlots]int
	last     time.Time // when a retry was last taken
	waiting  []chan struct{}
	spare    int // retries that successes since the last failure allow, not yet used
}

func newBudget() *budget { return &budget{began: time.Now()} }

// turn makes the slot of the current second the newest.
func (b *budget) turn() int {
	now := int(time.Since(b.began) / time.Second)
	for n := 0; b.second < now && n < budgetSlots; n++ {
		b.second++
		b.requests[b.second%budgetSlots], b.retries[b.second%budgetSlots] = 0, 0
	}
	b.second = now
	return now % budgetSlots
}

// request counts a request that is sent.
func (b *budget) request() {
	b.mu.Lock()
	b.requests[b.turn()]++
	b.mu.Unlock()
}

// succeeded releases two waiting retries.
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

// retry counts a retry that is sent beyond the budget.
func (b *budget) retry() {
	b.mu.Lock()
	b.retries[b.turn()]++
	b.mu.Unlock()
}

// take takes a retry if the budget of the minute has one.
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

// wait waits until a retry may be sent. If the remaining time ends first, none is sent. With hasLast,
// the reader gets its last attempt at a random moment in the second half of the time, so that readers do not all ask
// at once, and some ask late.
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

// leave is the result of a wait for a retry.
type leave int

const (
	none    leave = iota // the time or the context is over
	given                // within the budget
	lastTry              // beyond the budget
)

// forget ends a wait, and reports whether a success has released it.
func (b *budget) forget(w chan struct{}) (let bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.waiting, w)
	if i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
	return i < 0
}
