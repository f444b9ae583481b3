package object

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// stream reads the script's object as a stream, in a bubble.
func (s *script) stream(t *testing.T, o Options, check func(r *Reader, got []byte, err error)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := NewReader(s, o)
		v := Version("one")
		b := r.Stream(t.Context(), Object{"k", int64(len(s.data)), &v})
		got, err := io.ReadAll(b)
		if !bytes.Equal(got, s.data[:len(got)]) {
			t.Error("other bytes than the store's")
		}
		check(r, got, err)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// cutAt makes answers end early, at the positions that at returns, like a broken connection.
func cutAt(data []byte, at func(n int) int) func(n int, q Request, a *Answer) error {
	return func(n int, q Request, a *Answer) error {
		if end := at(n); end >= 0 {
			a.Body = io.NopCloser(io.MultiReader(bytes.NewReader(data[:end]), broken{}))
		}
		return nil
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

func TestStream(t *testing.T) {
	whole := content(3 << 20)
	for name, c := range map[string]struct {
		do       func(n int, q Request, a *Answer) error
		requests int
	}{
		"at once":      {nil, 1},
		"broken off":   {cutAt(whole, func(n int) int { return []int{1000, 500, 2 << 20, -1}[n] }), 4},
		"down":         {func(n int, _ Request, _ *Answer) error { return []error{passing("down"), passing("down"), nil}[n] }, 3},
		"ends early":   {func(n int, _ Request, a *Answer) error { return short(n, a, whole) }, 2},
		"silent":       {func(n int, _ Request, a *Answer) error { return nil }, 1},
		"no size told": {func(n int, _ Request, a *Answer) error { a.Size = -1; return nil }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{data: whole, do: c.do}
			s.stream(t, Options{}, func(r *Reader, got []byte, err error) {
				if err != nil || len(got) != len(whole) || len(s.seen) != c.requests {
					t.Errorf("%d of %d bytes by %d requests, %v; want %d requests", len(got), len(whole), len(s.seen), err, c.requests)
				}
				for i, q := range s.seen {
					if !q.Whole || q.From != 0 {
						t.Errorf("request %d is %+v, want the whole", i, q)
					}
				}
				if n := r.Counts(); n.Requests != int64(c.requests) || n.Retries != int64(c.requests-1) {
					t.Errorf("counted %+v", n)
				}
			})
		})
	}
}

func short(n int, a *Answer, whole []byte) error {
	if n == 0 {
		a.Body = io.NopCloser(bytes.NewReader(whole[:100]))
	}
	return nil
}

// TestStreamEnds: a stream ends with an error if it never advances, or if no byte arrives within its patience. It
// ends at once if the object has changed or is gone.
func TestStreamEnds(t *testing.T) {
	whole := content(1 << 20)
	for name, c := range map[string]struct {
		do      func(n int, q Request, a *Answer) error
		trouble Trouble
		text    string
		within  time.Duration
	}{
		"always at one place": {cutAt(whole, func(int) int { return 600_000 }), Final, "", 2 * time.Minute},
		"changed before":      {func(_ int, _ Request, a *Answer) error { a.Tag = "two"; return nil }, Changed, "another version", 0},
		"changed between": {func(n int, q Request, a *Answer) error {
			if n > 0 {
				a.Tag = "two"
			}
			return cutAt(whole, func(int) int { return 1000 })(n, q, a)
		}, Changed, "another version", 5 * time.Second},
		"another size": {func(_ int, _ Request, a *Answer) error { a.Size++; return nil }, Changed, "bytes, had", 0},
		"gone":         {func(int, Request, *Answer) error { return &Error{Trouble: Gone, Err: errors.New("404")} }, Gone, "404", 0},
		"down":         {func(int, Request, *Answer) error { return passing("down") }, Final, "no byte in 30s", 31 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{data: whole, do: c.do}
			s.stream(t, Options{}, func(_ *Reader, _ []byte, err error) {
				wantTrouble(t, err, c.trouble, c.text)
				if took := time.Since(s.from); took > c.within {
					t.Errorf("it took %v, want at most %v", took, c.within)
				}
			})
		})
	}
}

// TestStreamSilent: an answer that stops is requested again. A reader that pauses is not mistaken for one.
func TestStreamSilent(t *testing.T) {
	s := &script{data: content(2 << 20)}
	synctest.Test(t, func(t *testing.T) {
		r := NewReader(silentOnce{s}, Options{})
		v := Version("one")
		b := r.Stream(t.Context(), Object{"k", int64(len(s.data)), &v})
		defer b.Close()
		first := make([]byte, 1000)
		if _, err := io.ReadFull(b, first); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		rest, err := io.ReadAll(b)
		if err != nil || !bytes.Equal(append(first, rest...), s.data) {
			t.Errorf("%d bytes behind the pause, %v", len(rest), err)
		}
		if len(s.seen) != 2 {
			t.Errorf("%d requests, want 2", len(s.seen))
		}
	})
}

// silentOnce is a store whose first answer stops after 5000 bytes.
type silentOnce struct{ *script }

func (s silentOnce) Get(ctx context.Context, q Request) (*Answer, error) {
	a, err := s.script.Get(ctx, q)
	if err == nil && len(s.seen) == 1 {
		a.Body = &hung{ctx, s.data[:5000]}
	}
	return a, err
}

// TestStreamCancelled: a stream whose context ends returns at once.
func TestStreamCancelled(t *testing.T) {
	s := &script{data: content(1 << 20)}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		b := NewReader(silentOnce{s}, Options{}).Stream(ctx, Object{Key: "k", Size: int64(len(s.data))})
		defer b.Close()
		start := time.Now()
		if _, err := io.ReadAll(b); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 3*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}
