package source_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"lcache/sample"
	"lcache/source"
	"lcache/source/sourcetest"
)

// faltering is a source whose reads fail as listed, one entry per read. After the list, they succeed.
type faltering struct {
	source.Source
	mu    sync.Mutex
	fails []error
	reads int
}

func (f *faltering) Read(ctx context.Context, e sample.Entry, dst []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	if len(f.fails) > 0 {
		err := f.fails[0]
		f.fails = f.fails[1:]
		if err != nil {
			return &source.SampleError{Name: e.Name, Op: "read", Err: err}
		}
	}
	return nil
}

func (f *faltering) String() string { return "faltering" }

// clock records the waits, and does not wait.
type clock struct{ waits []time.Duration }

func (c *clock) sleep(ctx context.Context, d time.Duration) error {
	c.waits = append(c.waits, d)
	return ctx.Err()
}

func repeat(err error, n int) (list []error) {
	for range n {
		list = append(list, err)
	}
	return list
}

func TestRetry(t *testing.T) {
	for _, c := range []struct {
		name    string
		fails   []error
		reads   int
		retries int64
		err     error
		say     string
	}{
		{"nothing", nil, 1, 0, nil, ""},
		{"once", []error{syscall.EIO}, 2, 1, nil, ""},
		{"each kind", []error{syscall.EAGAIN, syscall.ESTALE, syscall.ETIMEDOUT, syscall.EINTR, syscall.ECONNRESET}, 6, 5, nil, ""},
		{"a timeout of the network", []error{&net.DNSError{IsTimeout: true}}, 2, 1, nil, ""},
		{"for good", repeat(syscall.EIO, 100), 8, 7, syscall.EIO, "tried 8 times"},
		{"gone", repeat(source.ErrGone, 5), 1, 0, source.ErrGone, ""},
		{"changed", repeat(source.ErrChanged, 5), 1, 0, source.ErrChanged, ""},
		{"forbidden", repeat(fs.ErrPermission, 5), 1, 0, fs.ErrPermission, ""},
		{"then gone", []error{syscall.EIO, source.ErrGone}, 2, 1, source.ErrGone, ""},
		{"a changed sample behind an errno", repeat(fmt.Errorf("%w: %w", source.ErrChanged, syscall.EIO), 5), 1, 0, source.ErrChanged, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, tick := &faltering{fails: c.fails}, &clock{}
			r := source.NewRetrying(s, source.Retry{Sleep: tick.sleep})
			err := r.Read(t.Context(), sample.Entry{Name: "x"}, nil)
			if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
				t.Errorf("got %v, want %v", err, c.err)
			}
			if s.reads != c.reads || r.Retries() != c.retries || len(tick.waits) != int(c.retries) {
				t.Errorf("%d reads, %d retries, %d waits; want %d reads and %d retries", s.reads, r.Retries(), len(tick.waits), c.reads, c.retries)
			}
			var named *source.SampleError
			if err != nil && (!errors.As(err, &named) || named.Name != "x" || !strings.Contains(err.Error(), c.say)) {
				t.Errorf("error %v: want a SampleError that says %q", err, c.say)
			}
		})
	}
}

// TestRetryBacksOff: waits double up to the maximum, and clients do not retry in step.
func TestRetryBacksOff(t *testing.T) {
	s, tick := &faltering{fails: repeat(syscall.EIO, 100)}, &clock{}
	r := source.NewRetrying(s, source.Retry{Tries: 11, First: 100 * time.Millisecond, Most: 2 * time.Second, Sleep: tick.sleep})
	if err := r.Read(t.Context(), sample.Entry{}, nil); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	full := 100 * time.Millisecond
	distinct := map[time.Duration]bool{}
	for i, w := range tick.waits {
		if w < full/2 || w > full {
			t.Errorf("wait %d is %v, want between %v and %v", i, w, full/2, full)
		}
		distinct[w] = true
		full = min(2*full, 2*time.Second)
	}
	if len(tick.waits) != 10 || len(distinct) < 8 {
		t.Errorf("waits %v: want 10, drawn at random", tick.waits)
	}
}

// TestRetryBudget: all reads share the budget. When it is used up, a read fails at once, until reads have succeeded
// again.
func TestRetryBudget(t *testing.T) {
	s, tick := &faltering{fails: repeat(syscall.EIO, 5)}, &clock{}
	r := source.NewRetrying(s, source.Retry{Tries: 3, Budget: 3, Sleep: tick.sleep})
	read := func() error { return r.Read(t.Context(), sample.Entry{Name: "x"}, nil) }
	if err := read(); err == nil || s.reads != 3 {
		t.Fatalf("%d reads, %v", s.reads, err)
	}
	if err := read(); err == nil || s.reads != 5 || !strings.Contains(err.Error(), "too many reads") {
		t.Fatalf("%d reads, %v: want one more retry, then none", s.reads, err)
	}
	s.fails = []error{syscall.EIO}
	if err := read(); err == nil || s.reads != 6 {
		t.Fatalf("%d reads, %v: want no retry from an empty budget", s.reads, err)
	}
	for range 10 {
		if err := read(); err != nil {
			t.Fatal(err)
		}
	}
	s.fails = []error{syscall.EIO}
	if err := read(); err != nil {
		t.Errorf("ten reads have succeeded and none is tried again: %v", err)
	}
}

// TestRetryInsideTheDeadline: a read is not retried after the deadline of its context, and the end of the context
// ends the wait.
func TestRetryInsideTheDeadline(t *testing.T) {
	s := &faltering{fails: repeat(syscall.EIO, 100)}
	r := source.NewRetrying(s, source.Retry{First: time.Hour, Most: time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := r.Read(ctx, sample.Entry{Name: "x"}, nil); !errors.Is(err, syscall.EIO) || s.reads != 1 {
		t.Errorf("%d reads, %v: want the first error at once", s.reads, err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	r = source.NewRetrying(s, source.Retry{First: time.Hour, Most: time.Hour})
	go cancel()
	if err := r.Read(ctx, sample.Entry{Name: "x"}, nil); !errors.Is(err, syscall.EIO) {
		t.Errorf("%v: want the read's own error", err)
	}
}

// TestRetryingIsASource: a Retrying passes the tests of all sources.
func TestRetryingIsASource(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T, files map[string][]byte) (source.Source, sourcetest.Mutator) {
		tr := newTree(t, files)
		return source.NewRetrying(tr.open(t, source.Options{}), source.Retry{}), tr
	})
}
