package object

import (
	"bytes"
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// slowFirst is a store with fast second requests. The others are slow once slow is set.
type slowFirst struct {
	*script
	slow bool
}

func newSlowFirst(size int, takes time.Duration) *slowFirst {
	s := &slowFirst{script: &script{data: content(size)}}
	s.do = func(_ int, r Request, a *Answer) error {
		if s.slow && !r.OwnConnection {
			a.Body = &late{a.Body, takes, nil}
		}
		return nil
	}
	return s
}

// after reads until the usual duration of a request is known, and then makes the store slow.
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

// TestHedgesAreFew: if more than one of twenty requests is slow, exactly one of twenty is sent a second time.
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

// TestHedgesBySize: a request of 8 MiB is not sent a second time, one of a byte less is. A reader without hedges
// sends none.
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

// scribbler is a body that ignores its cancellation: later it writes other bytes to its buffer, and fails.
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

// scribbles returns a store with scribblers for the first or second requests.
type scribbles struct {
	*slowFirst
	apart bool
}

func (s scribbles) Get(ctx context.Context, r Request) (*Answer, error) {
	a, err := s.script.Get(ctx, r)
	if err != nil || !s.slow {
		return a, err
	}
	if r.OwnConnection == s.apart {
		a.Body = &scribbler{a.Body, ctx}
	} else if l, ok := a.Body.(*late); ok {
		l.ctx = ctx
	}
	return a, nil
}

// TestLoserWritesNothing: the losing request, first or second, writes neither to memory that its reader has given
// back nor over the bytes of the winning one.
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
				copy(got, bytes.Repeat([]byte{0x11}, 3000)) // the memory belongs to the reader again
				time.Sleep(time.Minute)
				synctest.Wait()
				if !bytes.Equal(got, bytes.Repeat([]byte{0x11}, 3000)) {
					t.Error("the loser wrote into its reader's memory")
				}
			})
		})
	}
}
