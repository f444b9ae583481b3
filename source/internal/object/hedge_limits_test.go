package object

import (
	"bytes"
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// slowFirst is a store whose second requests are quick, and whose others take a time once slow is set.
type slowFirst struct {
	*script
	slow bool
}

func newSlowFirst(size int, takes time.Duration) *slowFirst {
	s := &slowFirst{script: &script{data: content(size)}}
	s.do = func(_ int, r Request, a *Answer) error {
		if s.slow && !r.Apart {
			a.Body = &late{a.Body, takes, nil}
		}
		return nil
	}
	return s
}

// after reads so often that it is known how long a request takes, and makes the store slow.
func (s *slowFirst) after(t *testing.T, o Options, times int) *Reader {
	t.Helper()
	s.slow = false
	r := NewReader(hangs{s.script}, o)
	for range times {
		if _, err := r.Read(t.Context(), Object{"k", 100, nil}, make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
	s.slow = true
	return r
}

// Where more than one of twenty requests is slow, one of twenty is sent a second time, and not fewer.
func TestHedgesAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowFirst(100, 5*time.Second)
		r := s.after(t, Options{}, 10)
		for i := range 400 {
			s.slow = i%3 == 0
			if _, err := r.Read(t.Context(), Object{"k", 100, nil}, make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
			if c := r.Counts(); c.Hedges*20 > c.Requests {
				t.Fatalf("%d hedges of %d requests, want one of twenty at most", c.Hedges, c.Requests)
			}
		}
		if c := r.Counts(); c.Requests < 410 || c.Hedges < c.Requests/20-1 {
			t.Errorf("%d hedges of %d requests, want one of twenty", c.Hedges, c.Requests)
		}
	})
}

// A request of 8 MiB is not sent a second time, one of a byte less is, and none is by a reader without hedges.
func TestHedgesBySize(t *testing.T) {
	for name, c := range map[string]struct {
		o      Options
		size   int
		hedges int64
		took   time.Duration
	}{
		"a byte less than 8 MiB": {Options{}, 8<<20 - 1, 1, 200 * time.Millisecond},
		"8 MiB":                  {Options{}, 8 << 20, 0, 5 * time.Second},
		"small, without hedges":  {Options{NoHedge: true}, 100, 0, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSlowFirst(100, 5*time.Second)
				r := s.after(t, c.o, 40)
				s.data = content(c.size)
				start, got := time.Now(), make([]byte, c.size)
				_, err := r.Read(t.Context(), Object{"k", int64(c.size), nil}, got)
				if took := time.Since(start); err != nil || !bytes.Equal(got, s.data) || r.Counts().Hedges != c.hedges || took != c.took {
					t.Errorf("%v, %d hedges in %v; want %d in %v", err, r.Counts().Hedges, took, c.hedges, c.took)
				}
			})
		})
	}
}

// scribbler is a body that is cancelled and does not look at it: later it writes other bytes where it was to write, and fails.
type scribbler struct {
	io.ReadCloser
	ctx context.Context
}

func (s *scribbler) Read(p []byte) (int, error) {
	<-s.ctx.Done()
	time.Sleep(time.Second)
	for i := range p {
		p[i] = 0xEE
	}
	return 0, s.ctx.Err()
}

// scribbles has scribblers for first or second requests.
type scribbles struct {
	*slowFirst
	apart bool
}

func (s scribbles) Get(ctx context.Context, r Request) (*Answer, error) {
	a, err := s.script.Get(ctx, r)
	if err != nil || !s.slow {
		return a, err
	}
	if r.Apart == s.apart {
		a.Body = &scribbler{a.Body, ctx}
	} else if l, ok := a.Body.(*late); ok {
		l.ctx = ctx
	}
	return a, nil
}

// The request that loses writes nothing into memory that its reader has given back, and nothing over the bytes of the one that wins: neither the first one nor the second.
func TestLoserWritesNothing(t *testing.T) {
	for name, apart := range map[string]bool{"the first one loses": false, "the second one loses": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := scribbles{newSlowFirst(3000, time.Second), apart}
				r := NewReader(s, Options{})
				for range 40 {
					if _, err := r.Read(t.Context(), Object{"k", 3000, nil}, make([]byte, 3000)); err != nil {
						t.Fatal(err)
					}
				}
				s.slow = true
				got := make([]byte, 3000)
				if _, err := r.Read(t.Context(), Object{"k", 3000, nil}, got); err != nil || !bytes.Equal(got, s.data) {
					t.Errorf("%v, or other bytes", err)
				}
				if c := r.Counts(); c.Hedges != 1 {
					t.Errorf("%d hedges", c.Hedges)
				}
				copy(got, bytes.Repeat([]byte{0x11}, 3000)) // it is the reader's again
				time.Sleep(time.Minute)
				synctest.Wait()
				if !bytes.Equal(got, bytes.Repeat([]byte{0x11}, 3000)) {
					t.Error("the loser wrote into its reader's memory")
				}
			})
		})
	}
}
