package source

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"lcache/sample"
	"lcache/source/internal/object"
)

// Retry configures how often and how fast reads are retried. Zero fields mean the defaults.
type Retry struct {
	Tries  int           // attempts for one read, including the first; 0: 8
	First  time.Duration // wait before the second attempt; it doubles each time, and half of it is random. 0: 50 ms
	Most   time.Duration // maximum of one wait; 0: 5 s
	Budget int           // retries of all reads together. Ten successful reads give one back. 0: 1000
	// Sleep waits for d or until ctx ends, and returns ctx's error. nil: by the clock.
	Sleep func(ctx context.Context, d time.Duration) error
}

// Retrying is a source that retries reads after temporary errors ([Transient]), with capped exponential back-off and
// jitter, within the deadline of the read's context. All reads share one budget of retries. So a source that is down
// gets fewer and fewer requests, and reads finally fail at once; its clients do not keep it down.
type Retrying struct {
	Source
	opts    Retry
	retries atomic.Int64

	mu     sync.Mutex // guards tenths
	tenths int        // retries left in the budget, in tenths
}

// NewRetrying returns s with retries. Close closes s.
func NewRetrying(s Source, o Retry) *Retrying {
	if o.Tries <= 0 {
		o.Tries = 8
	}
	if o.First <= 0 {
		o.First = 50 * time.Millisecond
	}
	if o.Most <= 0 {
		o.Most = 5 * time.Second
	}
	if o.Budget <= 0 {
		o.Budget = 1000
	}
	if o.Sleep == nil {
		o.Sleep = sleep
	}
	return &Retrying{Source: s, opts: o, tenths: 10 * o.Budget}
}

// EndsSilence returns that of the source.
func (r *Retrying) EndsSilence() bool { return EndsSilence(r.Source) }

// Retries returns the number of repeated attempts so far, including requests that the source itself repeated.
func (r *Retrying) Retries() int64 {
	n, _ := RequestsOf(r.Source)
	return r.retries.Load() + n.Retries
}

// Hedges returns the number of requests that the source sent twice because the first was slow.
func (r *Retrying) Hedges() int64 {
	n, _ := RequestsOf(r.Source)
	return n.Hedges
}

// Read reads as the source does. The error is that of the last attempt.
func (r *Retrying) Read(ctx context.Context, e sample.Entry, dst []byte) error {
	wait := r.opts.First
	for try := 1; ; try++ {
		err := r.Source.Read(ctx, e, dst)
		if err == nil {
			r.succeeded()
			return nil
		}
		if ctx.Err() != nil || !Transient(err) {
			return err
		}
		pause := wait/2 + rand.N(wait/2+1)
		if end, ok := ctx.Deadline(); ok && time.Until(end) < pause {
			return tried(err, try, "its deadline is near")
		}
		switch {
		case try == r.opts.Tries:
			return tried(err, try, "")
		case !r.take():
			return tried(err, try, "too many reads failed lately")
		case r.opts.Sleep(ctx, pause) != nil:
			return tried(err, try, "")
		}
		r.retries.Add(1)
		wait = min(2*wait, r.opts.Most)
	}
}

// tried adds the number of attempts to a sample's error.
func tried(err error, times int, why string) error {
	if why != "" {
		why = ": " + why
	}
	var named *SampleError
	if errors.As(err, &named) {
		return &SampleError{named.Name, named.Op, fmt.Errorf("%w (tried %d times%s)", named.Err, times, why)}
	}
	return fmt.Errorf("%w (tried %d times%s)", err, times, why)
}

func (r *Retrying) succeeded() {
	r.mu.Lock()
	r.tenths = min(r.tenths+1, 10*r.opts.Budget)
	r.mu.Unlock()
}

func (r *Retrying) take() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tenths < 10 {
		return false
	}
	r.tenths -= 10
	return true
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// transient are the errnos of devices and networks in trouble. The same read may succeed a little later.
var transient = []error{syscall.EIO, syscall.EAGAIN, syscall.ESTALE, syscall.ETIMEDOUT, syscall.EINTR, syscall.EREMOTEIO,
	syscall.ECONNRESET, syscall.ECONNREFUSED, syscall.ECONNABORTED, syscall.ENOTCONN, syscall.EPIPE, syscall.ENETDOWN,
	syscall.ENETUNREACH, syscall.ENETRESET, syscall.EHOSTDOWN, syscall.EHOSTUNREACH, syscall.ENFILE, syscall.EMFILE, syscall.ENOMEM}

// Transient reports whether the cause of an error may be temporary: a problem of the device or the network, not of
// the sample. A sample that has changed, is gone or must not be read stays so.
func Transient(err error) bool {
	if errors.Is(err, ErrChanged) || errors.Is(err, ErrGone) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	if errors.As(err, new(*object.Error)) {
		return false // package object has already retried, and one layer of retries is enough
	}
	for _, t := range transient {
		if errors.Is(err, t) {
			return true
		}
	}
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
