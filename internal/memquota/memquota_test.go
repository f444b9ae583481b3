package memquota

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
)

// take fails the test unless Take of n bytes returns want.
func take(t *testing.T, s *Share, n int64, want bool) {
	t.Helper()
	if got := s.Take(n); got != want {
		t.Errorf("take %d of %d, %d are taken: got %v, want %v", n, s.Limit(), s.Taken(), got, want)
	}
}

func TestSharesHaveLimits(t *testing.T) {
	a := New(100)
	orders, frames := a.Share(10, 60), a.Share(20, 120)
	take(t, orders, 61, false)
	take(t, orders, 60, true) // 50 from the 100
	take(t, orders, 1, false)
	take(t, frames, 71, false) // 20 are reserved for it, and 50 are left
	take(t, frames, 70, true)
	if left := a.Left(); left != 0 {
		t.Errorf("%d bytes are left, want 0", left)
	}
	orders.Give(55)
	take(t, frames, 51, false)
	take(t, frames, 50, true)
	take(t, orders, 5, true) // its reserve is there whatever others take
	take(t, orders, 1, false)
	frames.Give(120)
	orders.Give(10)
	if left := a.Left(); left != 100 || orders.Taken() != 0 || frames.Taken() != 0 {
		t.Errorf("%d bytes are left at the end, %d and %d are taken", left, orders.Taken(), frames.Taken())
	}
}

// Waiting requests get memory in order of arrival, and none is overtaken.
func TestWaitInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(0).Share(10, 10)
		take(t, s, 8, true)
		large, small := make(chan error, 1), make(chan error, 1)
		go func() { large <- s.Wait(t.Context(), 9) }()
		synctest.Wait() // until it waits
		go func() { small <- s.Wait(t.Context(), 1) }()
		synctest.Wait()
		take(t, s, 1, false)
		s.Give(1)
		synctest.Wait()
		if len(small) > 0 {
			t.Error("a request passed one that had come before it")
		}
		s.Give(7)
		if err := errors.Join(<-large, <-small); err != nil {
			t.Fatal(err)
		}
		take(t, s, 1, false)
	})
}

// If a waiting request gives up, the requests behind it continue.
func TestGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(0).Share(10, 10)
		take(t, s, 8, true)
		ctx, giveUp := context.WithCancel(t.Context())
		large, small := make(chan error, 1), make(chan error, 1)
		go func() { large <- s.Wait(ctx, 9) }()
		synctest.Wait()
		go func() { small <- s.Wait(t.Context(), 2) }()
		synctest.Wait()
		if len(small) > 0 {
			t.Error("a request passed one that had come before it")
		}
		giveUp()
		if err := <-large; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want the error of the context", err)
		}
		if err := <-small; err != nil {
			t.Error(err)
		}
	})
}

// A change of one share's limit affects the others.
func TestSetLimit(t *testing.T) {
	a := New(10)
	one, two := a.Share(0, 10), a.Share(0, 10)
	take(t, one, 10, true)
	take(t, two, 1, false)
	one.SetLimit(10) // now reserved
	take(t, two, 10, true)
	take(t, one, 1, false)
}

// With many concurrent users, limits hold, and at the end all memory is back.
func TestAtOnce(t *testing.T) {
	a := New(1000)
	shares := []*Share{a.Share(100, 600), a.Share(0, 900), a.Share(200, 200)}
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			s := shares[i%len(shares)]
			for range 300 {
				n := 1 + r.Int64N(200)
				if r.IntN(2) == 0 {
					if !s.Take(n) {
						continue
					}
				} else if err := s.Wait(t.Context(), n); err != nil {
					t.Error(err)
					return
				}
				if s.Taken() > s.Limit() {
					t.Errorf("%d bytes are taken of %d", s.Taken(), s.Limit())
				}
				s.Give(n)
			}
		})
	}
	all.Wait()
	if a.Left() != 1000 {
		t.Errorf("%d bytes are left, want 1000", a.Left())
	}
}
