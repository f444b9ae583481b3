// Package memquota counts the memory that clients make one server keep, so that all of it together stays within the server's limit.
//
// A server has one Account. Each use of memory has a Share of it: pushed orders, frames, answers. A Share may take up to its own limit, and all of them
// together what the Account has; what is reserved for a Share counts for nobody else. Take never waits. Wait waits until others have given memory back,
// first come, first served. The package allocates nothing itself: who takes memory says how much it is, and gives the same back. All methods may be
// called concurrently; they call nobody back.
package memquota

import (
	"context"
	"slices"
	"sync"
)

// An Account is the memory of one server that is for its clients.
type Account struct {
	mu     sync.Mutex // guards the fields that follow, and those of the shares
	limit  int64      // bytes, in addition to what is reserved for shares
	taken  int64      // bytes of it
	queues []*Share   // the shares that somebody has waited for
}

// New makes an account of so many bytes, to which reserved bytes of its shares are added.
func New(bytes int64) *Account { return &Account{limit: max(bytes, 0)} }

// A Share is one use of an Account's memory.
type Share struct {
	account  *Account
	reserved int64 // bytes that no other share can take
	limit    int64 // bytes
	taken    int64
	waiting  []*waiter // in the order in which they came
}

// A waiter waits for n bytes; ready is closed when it has them.
type waiter struct {
	n     int64
	ready chan struct{}
}

// Share adds a share of at most limit bytes. reserved of them are its own.
func (a *Account) Share(reserved, limit int64) *Share {
	return &Share{account: a, reserved: reserved, limit: max(reserved, limit)}
}

// Left returns the bytes that are reserved for no share and that none has taken.
func (a *Account) Left() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(a.limit-a.taken, 0)
}

// Left returns the bytes that the share could take now.
func (s *Share) Left() int64 {
	s.account.mu.Lock()
	defer s.account.mu.Unlock()
	own := max(s.reserved-s.taken, 0)
	return max(min(s.limit-s.taken, own+max(s.account.limit-s.account.taken, 0)), 0)
}

// Limit returns the most bytes that the share may have.
func (s *Share) Limit() int64 {
	s.account.mu.Lock()
	defer s.account.mu.Unlock()
	return s.limit
}

// SetLimit changes the most bytes that the share may have, and reserves as many. What is taken already stays taken.
func (s *Share) SetLimit(bytes int64) {
	s.account.mu.Lock()
	defer s.account.mu.Unlock()
	s.account.taken -= s.beyond()
	s.reserved, s.limit = bytes, bytes
	s.account.taken += s.beyond()
	s.account.admit()
}

// Taken returns the bytes that the share has.
func (s *Share) Taken() int64 {
	s.account.mu.Lock()
	defer s.account.mu.Unlock()
	return s.taken
}

// Take takes n bytes, and reports whether there was room for them. It passes nobody who waits. A negative n gives back.
func (s *Share) Take(n int64) bool {
	s.account.mu.Lock()
	defer s.account.mu.Unlock()
	if n > 0 && (len(s.waiting) > 0 || !s.fits(n)) {
		return false
	}
	s.add(n)
	return true
}

// Give gives n bytes back.
func (s *Share) Give(n int64) { s.Take(-n) }

// Wait takes n bytes when there is room for them. Its error is that of ctx.
func (s *Share) Wait(ctx context.Context, n int64) error {
	s.account.mu.Lock()
	if len(s.waiting) == 0 && s.fits(n) {
		s.add(n)
		s.account.mu.Unlock()
		return nil
	}
	w := &waiter{n, make(chan struct{})}
	s.waiting = append(s.waiting, w)
	if !slices.Contains(s.account.queues, s) {
		s.account.queues = append(s.account.queues, s)
	}
	s.account.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	s.account.mu.Lock()
	defer s.account.mu.Unlock()
	at := slices.Index(s.waiting, w)
	if at < 0 { // it got them meanwhile
		return nil
	}
	s.waiting = slices.Delete(s.waiting, at, at+1)
	s.account.admit() // those behind it may want less
	return ctx.Err()
}

// fits reports whether the share may take n bytes more. The account's mu is held, as it is for the methods below.
func (s *Share) fits(n int64) bool {
	if n > s.limit-s.taken {
		return false
	}
	more := max(s.taken+n-s.reserved, 0) - s.beyond()
	return more == 0 || more <= s.account.limit-s.account.taken
}

// beyond returns the bytes that the share has in addition to what is reserved for it.
func (s *Share) beyond() int64 { return max(s.taken-s.reserved, 0) }

func (s *Share) add(n int64) {
	s.account.taken -= s.beyond()
	s.taken += n
	s.account.taken += s.beyond()
	if n < 0 {
		s.account.admit()
	}
}

// admit gives memory to those that wait for it.
func (a *Account) admit() {
	for _, s := range a.queues {
		for len(s.waiting) > 0 && s.fits(s.waiting[0].n) {
			w := s.waiting[0]
			s.waiting = slices.Delete(s.waiting, 0, 1)
			s.add(w.n)
			close(w.ready)
		}
	}
}
