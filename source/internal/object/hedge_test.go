package object

import (
	"bytes"
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

func TestHedge(t *testing.T) {
	for name, c := range map[string]struct {
		first  time.Duration // duration of the slow request
		second error         // of the hedge
		hedges int64
		took   time.Duration
	}{
		"the second one is first":  {5 * time.Second, nil, 1, 200 * time.Millisecond},
		"the first one is quick":   {100 * time.Millisecond, nil, 0, 100 * time.Millisecond},
		"the second one fails":     {5 * time.Second, passing("no"), 1, 5 * time.Second},
		"the first one comes late": {201 * time.Millisecond, nil, 1, 200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{data: content(3000)}
				slow := false
				s.do = func(_ int, r Request, a *Answer) error {
					switch {
					case r.OwnConnection:
						return c.second
					case slow:
						a.Body = &late{a.Body, c.first, nil}
					}
					return nil
				}
				r := NewReader(hangs{s}, Options{})
				for range 40 { // so that the usual duration is known
					if _, err := r.Read(t.Context(), Object{"k", 3000, nil}, make([]byte, 3000)); err != nil {
						t.Fatal(err)
					}
				}
				slow = true
				start, got := time.Now(), make([]byte, 3000)
				_, err := r.Read(t.Context(), Object{"k", 3000, nil}, got)
				if took := time.Since(start); err != nil || !bytes.Equal(got, s.data) || took != c.took || r.Counts().Hedges != c.hedges {
					t.Errorf("%v after %v, %d hedges; want %v and %d", err, took, r.Counts().Hedges, c.took, c.hedges)
				}
			})
		})
	}
}

// late is a body whose first byte is delayed, but not beyond the end of its request.
type late struct {
	io.ReadCloser
	wait time.Duration
	ctx  context.Context
}

func (l *late) Read(p []byte) (int, error) {
	select {
	case <-time.After(l.wait):
	case <-l.ctx.Done():
		return 0, l.ctx.Err()
	}
	l.wait = 0
	return l.ReadCloser.Read(p)
}
