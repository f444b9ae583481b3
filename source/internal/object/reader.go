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

// Options of a Reader. Zero fields mean the defaults.
type Options struct {
	Median   int64         // size of objects, for the first number of requests; 0: not known
	Patience time.Duration // a read without a further byte for this long has failed, however often it was tried; 0: 30 s
	Idle     time.Duration // a request without an answer, or without a further byte, for this long has failed, and is sent again; 0: a third of Patience
	NoHedge  bool          // never ask a second time for what takes long
}

// Counts are of all requests so far. They only grow.
type Counts struct {
	Requests, Retries, Hedges int64

	MostBytes int64 `json:"-"` // that were under way at one time
}

// A Reader reads objects of a store: see the package's comment.
type Reader struct {
	store  Store
	o      Options
	gate   *gate
	budget *budget
	recent recent
	whole  atomic.Bool // the store gives no ranges
	known  atomic.Bool // it has answered

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

// Counts returns how many requests there were, and how many of them were retries and hedges.
func (r *Reader) Counts() Counts {
	return Counts{Requests: r.requests.Load(), Retries: r.retries.Load(), Hedges: r.hedges.Load(), MostBytes: r.gate.mostBytes()}
}

// An Object is one version of an object.
type Object struct {
	Key     string
	Size    int64
	Version *uint64 // as [Version]; nil: any, but one and the same for all bytes
}

// Read fills dst, which has the object's size, and returns its version.
func (r *Reader) Read(ctx context.Context, o Object, dst []byte) (version uint64, err error) {
	if int64(len(dst)) != o.Size {
		return 0, &Error{Trouble: Final, Err: fmt.Errorf("room for %d bytes, the object has %d", len(dst), o.Size)}
	}
	return r.ReadAt(ctx, o, 0, dst)
}

// ReadAt fills dst with the bytes of an object from off on, and returns the object's version. It returns when dst is no longer written to. Errors are an *[Error],
// or the context's.
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
			t.have = 0 // the last answer was whole, or ended early
		}
		if err := r.next(ctx, t); err != nil {
			return 0, err
		}
	}
	return t.version, nil
}

// target is one read on its way.
type target struct {
	Object
	off     int64
	dst     []byte
	have    int       // bytes of dst that are there
	best    int       // the most that ever were
	tag     string    // of the first answer
	version uint64    // of tag
	moved   time.Time // when the last byte came that was not there before
	tries   int       // since then
	asked   bool      // for the last time that the budget does not give, since then
}

// all says whether the whole object is read.
func (t *target) all() bool { return t.off == 0 && int64(len(t.dst)) == t.Size }

// request is the next range to read.
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
	if !errors.As(err, &trouble) || trouble.Trouble != Passing && trouble.Trouble != Slow {
		return err
	}
	if moved {
		r.budget.retry()
		r.retries.Add(1)
		return nil // it went on: no wait, and the rest is asked for
	}
	t.tries++
	return r.pause(ctx, t, trouble)
}

// pause waits before a retry; full jitter. Its error says that there will be none.
func (r *Reader) pause(ctx context.Context, t *target, trouble *Error) error {
	const first, longest = 100 * time.Millisecond, 5 * time.Second
	patience := r.o.Patience
	if t.dst == nil && !r.known.Load() {
		patience /= 3 // the first question: its address may be wrong, and somebody waits
	}
	left := patience - time.Since(t.moved)
	wait := rand.N(min(first<<min(t.tries-1, 10), longest))
	if left > 0 { // a store that asks for a longer wait than is left is asked once more all the same, late in that time
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

// Stat asks what an object is.
func (r *Reader) Stat(ctx context.Context, key string) (info Info, err error) {
	err = r.Do(ctx, func(ctx context.Context) error {
		if info, err = r.store.Stat(ctx, key); err == nil {
			err = CheckTag(info.Tag)
		}
		return err
	})
	return info, err
}

// Do sends another kind of request by the rules for all of them: a listing's page. send has no effect if it fails. Its context ends when the
// request has no answer for too long.
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
		passes := errors.As(err, &trouble) && (trouble.Trouble == Passing || trouble.Trouble == Slow)
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

// ReadAll reads an object whose size need not be known, of at most limit bytes, by one request at a time for the whole of it.
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
				return &Error{Trouble: Passing, Err: fmt.Errorf("the answer ended after %d bytes", len(data))}
			}
		}
	})
	return data, err
}

func tooLong(limit int64) error {
	return &Error{Trouble: Final, Err: fmt.Errorf("it has more than %d bytes: split it", limit)}
}

type movedKey struct{}

// WithMoved returns a context whose reads call moved when bytes come. moved must not block.
func WithMoved(ctx context.Context, moved func()) context.Context {
	return context.WithValue(ctx, movedKey{}, moved)
}

// Moved says that bytes came to a read with this context.
func Moved(ctx context.Context) {
	if moved, ok := ctx.Value(movedKey{}).(func()); ok {
		moved()
	}
}

// errIdle is the cause that ends a request without an answer.
var errIdle = errors.New("no answer")

// watch ends a request that has no answer, or no further byte, for too long.
type watch struct {
	ctx   context.Context
	timer *time.Timer
	idle  time.Duration
}

func (w *watch) moved() { w.timer.Reset(w.idle) }

// watched returns a watch, and a function that ends it and makes the error of the request that it watched.
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

// get sends one request and fills dst with as much of its answer as arrives. It returns when dst is no longer written to.
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
			return n, a.Tag, &Error{Trouble: Passing, Err: err}
		}
	}
	if a.Size < 0 && q.From+q.Len == t.Size && goesOn(a.Body) {
		return 0, "", &Error{Trouble: Changed, Err: fmt.Errorf("it has more bytes than %d", t.Size)}
	}
	return n, a.Tag, nil
}

// goesOn reports whether a body has a further byte.
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
		return &Error{Trouble: Changed, Err: errors.New("it is another version")}
	case a.From == q.From:
		return nil
	case a.From == 0 && t.all():
		// The store gives no ranges. What is there came from a whole answer that ended early, or from a range that the store gave.
		r.whole.Store(true)
		return &Error{Trouble: Passing, Err: errors.New("the answer to a range is the whole object")}
	case a.From == 0:
		return &Error{Trouble: Final, Err: ErrNoRanges}
	}
	return &Error{Trouble: Passing, Err: fmt.Errorf("the answer begins at byte %d, not %d", a.From, q.From)}
}
