package object

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Options configure a Reader. Zero fields mean the defaults.
type Options struct {
	Median   int64         // median size of objects, for the first limit of requests; 0: unknown
	Patience time.Duration // a read without another byte for this long fails, however often it was retried; 0: 30 s
	Idle     time.Duration // a request without an answer or another byte for this long fails, and is repeated; 0: a third of Patience
	NoHedge  bool          // never send a second request for a slow one
}

// Counts has the counts of all requests so far. They never decrease.
type Counts struct {
	Requests, Retries, Hedges int64

	MostBytes int64 `json:"-"` // maximum in flight at one time
}

// A Reader reads objects of a store; see the package comment.
type Reader struct {
	store  Store
	o      Options
	gate   *gate
	budget *budget
	recent recent
	whole  atomic.Bool // the store does not support ranges
	known  atomic.Bool // the store has answered

	requests, retries, hedges atomic.Int64
}

// NewReader makes a Reader. Close closes the store.
func NewReader(s Store, o Options) *Reader {
	if o.Patience <= 0 {
		o.Patience = 30 * time.Second
	}
	if o.Idle <= 0 {
		o.Idle = o.Patience / 3
	}
	return &Reader{store: s, o: o, gate: newGate(startControl(o.Median)), budget: newBudget()}
}

// Expect sets the median size of the objects in bytes. It has no effect after the first answers.
func (r *Reader) Expect(median int64) { r.gate.expect(median) }

func (r *Reader) Close() error { return r.store.Close() }

// Counts returns the number of requests, and how many of them were retries and hedges.
func (r *Reader) Counts() Counts {
	return Counts{Requests: r.requests.Load(), Retries: r.retries.Load(), Hedges: r.hedges.Load(), MostBytes: r.gate.mostBytes()}
}

// An Object is one version of an object.
type Object struct {
	Key     string
	Size    int64
	Version *uint64 // as [Version]; nil: any version, but the same for all bytes
}

// Read fills dst, which has the object's size, and returns its version.
func (r *Reader) Read(ctx context.Context, o Object, dst []byte) (version uint64, err error) {
	if int64(len(dst)) != o.Size {
		return 0, &Error{Trouble: Final, Err: fmt.Errorf("room for %d bytes, the object has %d", len(dst), o.Size)}
	}
	return r.ReadAt(ctx, o, 0, dst)
}

// ReadAt fills dst with the bytes of an object from off on, and returns the object's version. Nothing writes to dst
// after it has returned. An error is an *[Error], or the context's.
func (r *Reader) ReadAt(ctx context.Context, o Object, off int64, dst []byte) (version uint64, err error) {
	if off < 0 || off+int64(len(dst)) > o.Size {
		return 0, &Error{Trouble: Final, Err: fmt.Errorf("bytes %d to %d of an object of %d", off, off+int64(len(dst)), o.Size)}
	}
	t := &target{Object: o, off: off, dst: dst, moved: time.Now()}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	for len(dst) > 0 && t.have < len(dst) {
		if r.whole.Load() && t.all() {
			t.have = 0 // the last answer was the whole object, or ended early
		}
		if err := r.next(ctx, t); err != nil {
			return 0, err
		}
	}
	return t.version, nil
}

// target is a read in progress.
type target struct {
	Object
	off     int64
	dst     []byte
	have    int       // bytes of dst that have arrived
	best    int       // maximum of have so far
	tag     string    // of the first answer
	version uint64    // of tag
	moved   time.Time // when a new byte last arrived
	tries   int       // attempts since moved
	asked   bool      // the last attempt beyond the budget was used since moved
}

// all reports whether the whole object is read.
func (t *target) all() bool { return t.off == 0 && int64(len(t.dst)) == t.Size }

// request returns the next range to read.
func (r *Reader) request(t *target) Request {
	q := Request{Key: t.Key, From: t.off + int64(t.have), Tag: t.tag}
	q.Len = min(rangeBytes, int64(len(t.dst)-t.have))
	if r.whole.Load() && t.all() {
		q.Len = int64(len(t.dst) - t.have)
	}
	q.Whole = q.From == 0 && q.Len == t.Size
	return q
}

// next reads one range, or the first part of it. It retries after temporary errors.
func (r *Reader) next(ctx context.Context, t *target) error {
	q := r.request(t)
	err := r.ask(ctx, t, q)
	moved := t.have > t.best
	if moved {
		t.best, t.moved, t.tries, t.asked = t.have, time.Now(), 0, false
	}
	if err == nil {
		r.budget.succeeded()
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	trouble := new(Error)
	if !errors.As(err, &trouble) || trouble.Trouble != Transient && trouble.Trouble != Slow {
		return err
	}
	if moved {
		r.budget.retry()
		r.retries.Add(1)
		return nil // there was progress: request the rest without a wait
	}
	t.tries++
	return r.pause(ctx, t, trouble)
}

// pause waits before a retry, with full jitter. An error means that there will be no retry.
func (r *Reader) pause(ctx context.Context, t *target, trouble *Error) error {
	const first, longest = 100 * time.Millisecond, 5 * time.Second
	patience := r.o.Patience
	if t.dst == nil && !r.known.Load() {
		patience /= 3 // the first request: its address may be wrong, and the user waits
	}
	left := patience - time.Since(t.moved)
	wait := rand.N(min(first<<min(t.tries-1, 10), longest))
	if left > 0 { // a store may ask for a longer wait than is left; it gets one more request, late in the remaining time
		wait = max(wait, min(trouble.After, left/2+rand.N(left*2/5+1)))
	}
	over := &Error{Trouble: Final, Err: fmt.Errorf("%w (tried %d times, no byte in %v)", trouble.Err, t.tries, patience)}
	if wait >= left {
		return over
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	switch let := r.budget.wait(ctx, left-wait, !t.asked); {
	case ctx.Err() != nil:
		return ctx.Err()
	case let == none:
		return over
	case let == lastTry:
		t.asked = true
	}
	r.retries.Add(1)
	return nil
}

// Stat requests the size and tag of an object.
func (r *Reader) Stat(ctx context.Context, key string) (info Info, err error) {
	err = r.Do(ctx, func(ctx context.Context) error {
		if info, err = r.store.Stat(ctx, key); err == nil {
			err = CheckTag(info.Tag)
		}
		return err
	})
	return info, err
}

// Do sends another kind of request, such as for a page of a listing, by the same rules. send must have no effect if
// it fails. Its context ends if no answer arrives for too long.
func (r *Reader) Do(ctx context.Context, send func(ctx context.Context) error) error {
	return r.send(ctx, func(w *watch) error { return send(w.ctx) })
}

func (r *Reader) send(ctx context.Context, send func(w *watch) error) error {
	t := &target{moved: time.Now()}
	for {
		if err := r.gate.enter(ctx, 0); err != nil {
			return err
		}
		r.budget.request()
		r.requests.Add(1)
		mine, end := r.watched(ctx)
		err := end(send(mine))
		trouble := new(Error)
		passes := errors.As(err, &trouble) && (trouble.Trouble == Transient || trouble.Trouble == Slow)
		r.gate.leave(0, 0, passes && trouble.Trouble == Slow)
		if err == nil {
			r.known.Store(true)
			r.budget.succeeded()
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !passes {
			return err
		}
		t.tries++
		if err := r.pause(ctx, t, trouble); err != nil {
			return err
		}
	}
}

// ReadAll reads a whole object of unknown size, of at most limit bytes, with one request at a time for the whole of
// it.
func (r *Reader) ReadAll(ctx context.Context, key string, limit int64) (data []byte, err error) {
	err = r.send(ctx, func(w *watch) error {
		data = data[:0]
		a, err := r.store.Get(w.ctx, Request{Key: key, Whole: true})
		if err != nil {
			return err
		}
		defer a.Body.Close()
		if a.Size > limit {
			return tooLong(limit)
		}
		for chunk := make([]byte, 1<<20); ; w.moved() {
			n, err := a.Body.Read(chunk)
			data = append(data, chunk[:n]...)
			switch {
			case int64(len(data)) > limit:
				return tooLong(limit)
			case err == io.EOF && (a.Size < 0 || int64(len(data)) == a.Size):
				return nil
			case err != nil:
				return &Error{Trouble: Transient, Err: fmt.Errorf("the answer ended after %d bytes", len(data))}
			}
		}
	})
	return data, err
}

func tooLong(limit int64) error {
	return &Error{Trouble: Final, Err: fmt.Errorf("it has more than %d bytes: split it", limit)}
}

type movedKey struct{}

// WithMoved returns a context whose reads call moved when bytes arrive. moved must not block.
func WithMoved(ctx context.Context, moved func()) context.Context {
	return context.WithValue(ctx, movedKey{}, moved)
}

// Moved reports that bytes arrived for a read with this context.
func Moved(ctx context.Context) {
	if moved, ok := ctx.Value(movedKey{}).(func()); ok {
		moved()
	}
}

// errIdle is the cause of a request's end if no answer arrived.
var errIdle = errors.New("no answer")

// watch ends a request that has no answer, or no further byte, for too long.
type watch struct {
	ctx   context.Context
	timer *time.Timer
	idle  time.Duration
}

func (w *watch) moved() { w.timer.Reset(w.idle) }

// watched returns a watch, and a function that ends it and returns the request's error.
func (r *Reader) watched(ctx context.Context) (*watch, func(error) error) {
	mine, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(r.o.Idle, func() { cancel(errIdle) })
	return &watch{mine, timer, r.o.Idle}, func(err error) error {
		timer.Stop()
		if err != nil && errors.Is(context.Cause(mine), errIdle) && ctx.Err() == nil {
			err = &Error{Trouble: Slow, Err: fmt.Errorf("no byte came for %v", r.o.Idle)}
		}
		cancel(nil)
		return err
	}
}

// get sends one request and fills dst with as much of its answer as arrives. Nothing writes to dst after it has
// returned.
func (r *Reader) get(ctx context.Context, t *target, q Request, dst []byte) (n int, tag string, err error) {
	r.budget.request()
	r.requests.Add(1)
	w, end := r.watched(ctx)
	defer func() { err = end(err) }()
	a, err := r.store.Get(w.ctx, q)
	if err != nil {
		return 0, "", err
	}
	defer a.Body.Close()
	if err := r.check(t, q, a); err != nil {
		return 0, "", err
	}
	for n < len(dst) {
		w.moved()
		m, err := a.Body.Read(dst[n:min(n+1<<20, len(dst))])
		if n += m; m > 0 {
			Moved(ctx)
		}
		if n < len(dst) && err != nil {
			if err == io.EOF {
				err = fmt.Errorf("the answer ended after %d of %d bytes", n, len(dst))
			}
			return n, a.Tag, &Error{Trouble: Transient, Err: err}
		}
	}
	if a.Size < 0 && q.From+q.Len == t.Size && goesOn(a.Body) {
		return 0, "", &Error{Trouble: Changed, Err: fmt.Errorf("it has more bytes than %d", t.Size)}
	}
	return n, a.Tag, nil
}

// goesOn reports whether a body has another byte.
func goesOn(body io.Reader) bool {
	n, _ := io.ReadFull(body, make([]byte, 1))
	return n > 0
}

// check compares an answer with its request.
func (r *Reader) check(t *target, q Request, a *Answer) error {
	if err := CheckTag(a.Tag); err != nil {
		return err
	}
	v := Version(a.Tag)
	switch {
	case a.Size >= 0 && a.Size != t.Size:
		return &Error{Trouble: Changed, Err: fmt.Errorf("it has %d bytes, had %d", a.Size, t.Size)}
	case t.Version != nil && v != *t.Version, q.Tag != "" && a.Tag != q.Tag:
		return &Error{Trouble: Changed, Err: errors.New("it has another version")}
	case a.From == q.From:
		return nil
	case a.From == 0 && t.all():
		// The store does not support ranges. The bytes that are there came from a whole answer that ended early, or from a
		// range that the store did return.
		r.whole.Store(true)
		return &Error{Trouble: Transient, Err: errors.New("the answer to a range is the whole object")}
	case a.From == 0:
		return &Error{Trouble: Final, Err: ErrNoRanges}
	}
	return &Error{Trouble: Transient, Err: fmt.Errorf("the answer begins at byte %d, not %d", a.From, q.From)}
}
