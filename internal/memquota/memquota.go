// Package memquota counts the memory that a server holds for its clients, so that the total stays within the server's
// limit.
//
// A server has one Account. Each use of memory has a Share of it: pushed orders, frames, answers. A Share has a limit
// of its own, and all Shares together stay within the Account. No other Share can use the bytes that are reserved for a Share.
// Take never waits. Wait waits until others have released memory, first come, first served. The package allocates no
// memory: the caller of Take says how much it needs, and gives the same amount back. All methods may be called
// concurrently. They call no function of their callers.
package memquota

import (
	"context"
	"slices"
	"sync"
)

// An Account is the memory that one server has for its clients.
type Account struct {
	mu     sync.Mutex // guards the fields that follow, and the fields of all shares
	limit  int64      // bytes that are not reserved for a share
	taken  int64      // bytes of limit in use
	queues []*Share   // shares on which a caller has waited
}

// New returns an account of the given bytes. Reserved bytes of its shares come in addition.
func New(bytes int64) *Account { return &Account{limit: max(bytes, 0)} }

// A Share is one use of an Account's memory.
type Share struct {
	account  *Account
	reserved int64 // bytes that no other share can take
	limit    int64 // maximum bytes
	taken    int64
	waiting  []*waiter // in order of arrival
}

// A waiter waits for n bytes; ready is closed when they are taken.
type waiter struct {
	n     int64
	ready chan struct{}
}

// Share adds a share of at most limit bytes. reserved of these bytes are only for it.
func (a *Account) Share(reserved, limit int64) *Share {
	return &Share{account: a, reserved: reserved, limit: max(reserved, limit)}
}

// Left returns the bytes that are neither reserved nor taken.
func (a *Account) Left() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(a.limit-a.taken, 0)
}

// Left returns the bytes that the share can take now.
func (s *Share) Left() int64 {
	s.account.mu.Lock()
	defer s.account.mu.Unlock()
	own := max(s.reserved-s.taken, 0)
	return max(min(s.limit-s.taken, own+max(s.account.limit-s.account.taken, 0)), 0)
}

// Limit returns the maximum bytes of the share.
func (s *Share) Limit() int64 {
	s.account.mu.Lock()
	defer s.account.mu.Unlock()
	return s.limit
}

// SetLimit changes the maximum of the share, and reserves as many bytes. Bytes taken before stay taken.
func (s *Share) SetLimit(bytes int64) {
	s.account.mu.Lock()
	defer s.account.mu.Unlock()
	s.account.taken -= s.beyond()
	s.reserved, s.limit = bytes, bytes
	s.account.taken += s.beyond()
	s.account.admit()
}

// Taken returns the bytes that the share has taken.
func (s *Share) Taken() int64 {
	s.account.mu.Lock()
	defer s.account.mu.Unlock()
	return s.taken
}

// Take takes n bytes, and reports whether there was room. It returns false while others wait for the share. A
// negative n gives bytes back.
func (s *Share) Take(n int64) bool {
	s.account.mu.Lock()
	defer s.account.mu.Unlock()
	if n > 0 && (len(s.waiting) > 0 || !s.fits(n)) {
		return false
	}
	s.add(n)
	return true
}

// Give gives back n bytes.
func (s *Share) Give(n int64) { s.Take(-n) }

// Wait waits for room and takes n bytes. An error is the context's.
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
	if at < 0 { // admit has given it the bytes meanwhile
		return nil
	}
	s.waiting = slices.Delete(s.waiting, at, at+1)
	s.account.admit() // waiters behind it may need less
	return ctx.Err()
}

// fits reports whether the share can take n more bytes. The account's mu is held here and in the methods below.
func (s *Share) fits(n int64) bool {
	if n > s.limit-s.taken {
		return false
	}
	more := max(s.taken+n-s.reserved, 0) - s.beyond()
	return more == 0 || more <= s.account.limit-s.account.taken
}

// beyond returns the taken bytes that are not reserved for the share.
func (s *Share) beyond() int64 { return max(s.taken-s.reserved, 0) }

func (s *Share) add(n int64) {
	s.account.taken -= s.beyond()
	s.taken += n
	s.account.taken += s.beyond()
	if n < 0 {
		s.account.admit()
	}
}

// admit gives memory to waiters.
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
