package object

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// script is a store with one object and scripted answers. Time in these tests is that of a synctest bubble, so no
// test really waits.
type script struct {
	data []byte
	do   func(n int, r Request, a *Answer) error // called for the n-th request, from 0; nil: the request is answered normally

	mu   sync.Mutex
	seen []Request
	when []time.Duration
	from time.Time
}

func (s *script) Get(ctx context.Context, r Request) (*Answer, error) {
	s.mu.Lock()
	n := len(s.seen)
	if n == 0 {
		s.from = time.Now()
	}
	s.seen, s.when = append(s.seen, r), append(s.when, time.Since(s.from))
	s.mu.Unlock()
	a := &Answer{From: r.From, Size: int64(len(s.data)), Tag: "one", Body: body(ctx, s.data[r.From:r.From+r.Len])}
	if s.do != nil {
		if err := s.do(n, r, a); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func (s *script) Stat(context.Context, string) (Info, error) {
	a, err := s.Get(context.Background(), Request{})
	if err != nil {
		return Info{}, err
	}
	return Info{Size: a.Size, Tag: a.Tag}, nil
}
func (s *script) Close() error { return nil }

func body(ctx context.Context, b []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(b)) }

// hung is a body that returns some bytes and then hangs until its context ends.
type hung struct {
	ctx  context.Context
	give []byte
}

func (h *hung) Read(p []byte) (int, error) {
	if len(h.give) > 0 {
		n := copy(p, h.give)
		h.give = h.give[n:]
		return n, nil
	}
	<-h.ctx.Done()
	return 0, h.ctx.Err()
}
func (h *hung) Close() error { return nil }

func content(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7 >> 3)
	}
	return b
}

func passing(text string) error { return &Error{Trouble: Transient, Err: errors.New(text)} }

// read reads the script's object in its listed version, in a bubble.
func (s *script) read(t *testing.T, o Options, check func(r *Reader, got []byte, err error)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := NewReader(s, o)
		v := Version("one")
		dst := bytes.Repeat([]byte{0xA5}, len(s.data)+2)
		_, err := r.Read(t.Context(), Object{"k", int64(len(s.data)), &v}, dst[1:1+len(s.data)])
		if dst[0] != 0xA5 || dst[len(dst)-1] != 0xA5 {
			t.Error("bytes outside of the room were written")
		}
		if err == nil && !bytes.Equal(dst[1:1+len(s.data)], s.data) {
			t.Error("other bytes than the store's")
		}
		check(r, dst[1:1+len(s.data)], err)
	})
}

func wantTrouble(t *testing.T, err error, want Trouble, text string) {
	t.Helper()
	var trouble *Error
	if !errors.As(err, &trouble) || trouble.Trouble != want || !strings.Contains(err.Error(), text) {
		t.Errorf("error is %v, want one of class %d with %q", err, want, text)
	}
}

func TestRangesAndTags(t *testing.T) {
	s := &script{data: content(20 << 20)}
	s.read(t, Options{}, func(r *Reader, _ []byte, err error) {
		want := []Request{{Key: "k", From: 0, Len: 8 << 20}, {Key: "k", From: 8 << 20, Len: 8 << 20, Tag: "one"}, {Key: "k", From: 16 << 20, Len: 4 << 20, Tag: "one"}}
		if err != nil || !slices.Equal(s.seen, want) {
			t.Errorf("%v: asked for %+v, want %+v", err, s.seen, want)
		}
	})
	small := &script{data: content(8 << 20)}
	small.read(t, Options{}, func(r *Reader, _ []byte, err error) {
		if err != nil || len(small.seen) != 1 || !small.seen[0].Whole {
			t.Errorf("%v: asked for %+v, want one request for the whole", err, small.seen)
		}
	})
}

// TestMoved: the caller of a read is notified of arriving bytes, piece by piece.
func TestMoved(t *testing.T) {
	told := 0
	ctx := WithMoved(t.Context(), func() { told++ })
	s := &script{data: content(9 << 20)}
	_, err := NewReader(s, Options{}).Read(ctx, Object{"k", 9 << 20, nil}, make([]byte, 9<<20))
	if err != nil || told < 9 {
		t.Errorf("%v; told %d times of 9 MiB", err, told)
	}
	if _, err = NewReader(s, Options{}).Read(t.Context(), Object{"k", 9 << 20, nil}, make([]byte, 9<<20)); err != nil {
		t.Error(err)
	}
}

func TestShortBodiesGoOn(t *testing.T) {
	s := &script{data: content(100_000)}
	s.do = func(n int, r Request, a *Answer) error {
		if n < 3 {
			a.Body = body(t.Context(), s.data[r.From:r.From+int64(1000*(n+1))])
		}
		return nil
	}
	s.read(t, Options{}, func(r *Reader, _ []byte, err error) {
		var from []int64
		for _, q := range s.seen {
			from = append(from, q.From)
		}
		if err != nil || !slices.Equal(from, []int64{0, 1000, 3000, 6000}) || s.seen[1].Tag != "one" || s.seen[1].Whole {
			t.Errorf("%v: asked from %v (%+v), want the offsets that were reached, with the first answer's tag", err, from, s.seen)
		}
		if c := r.Counts(); c.Requests != 4 || c.Retries != 3 {
			t.Errorf("counts are %+v, want 4 requests, 3 of them retries", c)
		}
	})
}

func TestChanged(t *testing.T) {
	for name, change := range map[string]func(n int, r Request, a *Answer) error{
		"tag":                func(_ int, _ Request, a *Answer) error { a.Tag = "two"; return nil },
		"tag between ranges": func(n int, _ Request, a *Answer) error { a.Tag = []string{"one", "two"}[min(n, 1)]; return nil },
		"size":               func(_ int, _ Request, a *Answer) error { a.Size++; return nil },
		"longer than listed, and does not say so": func(_ int, r Request, a *Answer) error {
			a.Size, a.Body = -1, body(t.Context(), append(content(9 << 20)[r.From:r.From+r.Len:r.From+r.Len], 'x'))
			return nil
		},
		"size between ranges": func(n int, _ Request, a *Answer) error { a.Size += int64(n); return nil },
		"412":                 func(int, Request, *Answer) error { return &Error{Trouble: Changed, Err: errors.New("412")} },
	} {
		s := &script{data: content(9 << 20), do: change}
		s.read(t, Options{}, func(r *Reader, _ []byte, err error) {
			if wantTrouble(t, err, Changed, ""); len(s.seen) > 2 || r.Counts().Retries != 0 {
				t.Errorf("%s: asked %d times, want no retry", name, len(s.seen))
			}
		})
	}
	for _, final := range []Trouble{Final, Gone} {
		s := &script{data: content(10), do: func(int, Request, *Answer) error { return &Error{Trouble: final, Err: errors.New("no")} }}
		s.read(t, Options{}, func(r *Reader, _ []byte, err error) {
			if wantTrouble(t, err, final, "no"); len(s.seen) != 1 {
				t.Errorf("class %d: asked %d times, want once", final, len(s.seen))
			}
		})
	}
}

func TestOneVersionWithoutAListedOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{data: content(9 << 20)}
		s.do = func(n int, _ Request, a *Answer) error { a.Tag = fmt.Sprint(n); return nil }
		_, err := NewReader(s, Options{}).Read(t.Context(), Object{"k", 9 << 20, nil}, make([]byte, 9<<20))
		wantTrouble(t, err, Changed, "another version")
		s.do = nil
		v, err := NewReader(s, Options{}).Read(t.Context(), Object{"k", 9 << 20, nil}, make([]byte, 9<<20))
		if err != nil || v != Version("one") {
			t.Errorf("version %x, %v", v, err)
		}
	})
}

// TestNoRanges: if a store answers a range with the whole object, whole objects are requested from then on.
func TestNoRanges(t *testing.T) {
	s := &script{data: content(20 << 20)}
	cut := 0
	s.do = func(n int, r Request, a *Answer) error {
		all := s.data
		if a.From = 0; r.Whole && cut == 0 {
			cut, all = 1, all[:10<<20]
		}
		a.Body = body(t.Context(), all)
		return nil
	}
	s.read(t, Options{}, func(r *Reader, _ []byte, err error) {
		want := []bool{false, false, true, true} // the range at 0, the next one, and the whole object, which is cut once
		var got []bool
		for _, q := range s.seen {
			got = append(got, q.Whole)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%v: whole objects were asked for: %v, want %v", err, got, want)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		_, err := NewReader(s, Options{}).ReadAt(t.Context(), Object{"k", 20 << 20, nil}, 100, make([]byte, 10))
		wantTrouble(t, err, Final, "gives no ranges")
	})
}

func TestRetriesEndWithPatience(t *testing.T) {
	s := &script{data: content(10), do: func(int, Request, *Answer) error { return passing("out of order") }}
	s.read(t, Options{NoHedge: true}, func(r *Reader, _ []byte, err error) {
		wantTrouble(t, err, Final, "out of order (tried ")
		if last := s.when[len(s.when)-1]; last < 15*time.Second || last > 30*time.Second {
			t.Errorf("the last try was after %v, want one in the second half of 30 s", last)
		}
		if n := len(s.seen); n < 5 || n > 40 {
			t.Errorf("%d tries", n)
		}
	})
}

// TestAskedToWaitLong: if a store asks for a wait beyond a read's patience, it gets another request within the
// patience.
func TestAskedToWaitLong(t *testing.T) {
	for _, back := range []bool{true, false} {
		s := &script{data: content(10)}
		s.do = func(n int, _ Request, _ *Answer) error {
			if n > 0 && back {
				return nil
			}
			return &Error{Trouble: Slow, Err: errors.New("maintenance"), After: time.Minute}
		}
		s.read(t, Options{NoHedge: true}, func(_ *Reader, _ []byte, err error) {
			if n := len(s.when); back && err != nil || n < 2 || n > 10 || s.when[1] < 15*time.Second {
				t.Errorf("back: %t: %v; asked at %v, want a second time after 15 s, and seldom", back, err, s.when)
			}
			if !back {
				wantTrouble(t, err, Final, "maintenance (tried ")
			}
		})
	}
}

// TestOutageIsOver: after an outage in which all retries of the minute were spent, the end of the outage is noticed
// soon.
func TestOutageIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := &script{data: content(1000)}
		s.do = func(int, Request, *Answer) error {
			if time.Since(began) < 4*time.Second {
				return passing("connection refused")
			}
			return nil
		}
		r := NewReader(s, Options{})
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if _, err := r.Read(t.Context(), Object{"k", 1000, nil}, make([]byte, 1000)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(began); took > 16*time.Second {
			t.Errorf("the last read ended after %v, the outage after 4 s", took)
		}
	})
}

// TestOutageDelays: many readers use a store that is down for 20 s. There are few requests meanwhile, and no read
// fails.
func TestOutageDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		during := 0
		s := &script{data: content(1000)}
		var mu sync.Mutex
		s.do = func(int, Request, *Answer) error {
			if time.Since(began) < 20*time.Second {
				mu.Lock()
				during++
				mu.Unlock()
				return passing("connection refused")
			}
			return nil
		}
		r := NewReader(s, Options{})
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				if _, err := r.Read(t.Context(), Object{"k", 1000, nil}, make([]byte, 1000)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if during > 200*3 {
			t.Errorf("%d requests of 200 readers during the outage: a storm", during)
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("the last read ended after %v", took)
		}
	})
}

func TestIdleRequestsAreBrokenOff(t *testing.T) {
	s := &script{data: content(5000)}
	synctest.Test(t, func(t *testing.T) {
		s.do = func(n int, r Request, a *Answer) error {
			if n == 0 {
				a.Body = &hung{t.Context(), s.data[:1000]}
			}
			return nil
		}
		r := NewReader(hangs{s}, Options{NoHedge: true})
		got := make([]byte, 5000)
		_, err := r.Read(t.Context(), Object{"k", 5000, nil}, got)
		if err != nil || !bytes.Equal(got, s.data) || s.seen[1].From != 1000 || s.when[1] < 10*time.Second {
			t.Errorf("%v: second request %+v after %v, want one for the rest after 10 s", err, s.seen[1], s.when[1])
		}
	})
}

// hangs gives a hung or late body the context of its request.
type hangs struct{ *script }

func (h hangs) Get(ctx context.Context, r Request) (*Answer, error) {
	a, err := h.script.Get(ctx, r)
	if err == nil {
		switch b := a.Body.(type) {
		case *hung:
			b.ctx = ctx
		case *late:
			b.ctx = ctx
		}
	}
	return a, err
}

func TestCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{data: content(10), do: func(int, Request, *Answer) error { return passing("x") }}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := NewReader(s, Options{}).Read(ctx, Object{"k", 10, nil}, make([]byte, 10))
		if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, new(*Error)) {
			t.Errorf("error is %v, want the context's", err)
		}
	})
}
