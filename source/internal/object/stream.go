package object

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// ErrNoRanges means that a store does not support ranges: its objects can only be read from the beginning, as
// [Reader.Stream] does.
var ErrNoRanges = errors.New("the server gives no ranges, and only a part of the object is needed")

// mostRestarts is the maximum number of answers in a row without a new byte.
const mostRestarts = 10

// A Stream reads one version of an object from its first byte on, from a store without ranges. After a temporary
// error it requests the object again, and skips the bytes that it had. It occupies a place in the limit of requests
// only until an answer begins, because its reader may pause. Only one goroutine may use it.
type Stream struct {
	r      *Reader
	ctx    context.Context // of all its requests
	target target          // have and best count bytes of the object
	at     int64           // the next byte of the answer
	body   io.ReadCloser   // nil: the object must be requested
	watch  *watch          // of body
	end    func(error) error
	left   []byte // buffer for skipped bytes
	again  int    // answers since the last new byte
}

// Stream opens an object for reading from front to back. It sends no request. ctx ends its requests. The caller must
// close it.
func (r *Reader) Stream(ctx context.Context, o Object) *Stream {
	return &Stream{r: r, ctx: ctx, target: target{Object: o, dst: []byte{}, moved: time.Now()}}
}

// Close ends the request.
func (s *Stream) Close() error { return s.drop(nil) }

// Read returns the next bytes. At the end of the object it returns io.EOF. Other errors are an [*Error], or the
// context's.
func (s *Stream) Read(p []byte) (int, error) {
	t := &s.target
	for {
		if int64(t.have) == t.Size {
			return 0, io.EOF
		}
		if err := s.ctx.Err(); err != nil {
			return 0, err
		}
		n, err := s.some(p[:min(int64(len(p)), t.Size-int64(t.have))])
		if n > 0 {
			t.have += n
			t.best, t.moved, t.tries, t.asked, s.again = t.have, time.Now(), 0, false, 0
			return n, nil
		}
		if err == nil {
			continue
		}
		if err = s.drop(err); s.ctx.Err() != nil {
			return 0, s.ctx.Err()
		}
		trouble := new(Error)
		if !errors.As(err, &trouble) || trouble.Trouble != Transient && trouble.Trouble != Slow {
			return 0, err
		}
		if t.tries++; s.at > 0 {
			s.again++ // patience does not end while an answer brings any bytes
		}
		if s.at = 0; s.again > mostRestarts {
			return 0, &Error{Trouble: Final, Err: fmt.Errorf("%w (read %d times from the beginning, and never beyond byte %d)", trouble.Err, s.again, t.have)}
		}
		if err := s.r.pause(s.ctx, t, trouble); err != nil {
			return 0, err
		}
	}
}

// some reads the next bytes of an answer if they are new, and skips known ones.
func (s *Stream) some(p []byte) (int, error) {
	if s.body == nil {
		if err := s.ask(); err != nil {
			return 0, err
		}
	}
	skip := int64(s.target.have) - s.at
	if skip > 0 {
		if s.left == nil {
			s.left = make([]byte, 256<<10)
		}
		p = s.left[:min(skip, int64(len(s.left)))]
	}
	s.watch.moved()
	n, err := s.body.Read(p)
	s.watch.timer.Stop()
	s.at += int64(n)
	switch {
	case n > 0 && skip > 0:
		s.target.moved = time.Now() // it is slow, but there is progress
		return 0, nil
	case n > 0:
		return n, nil
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return 0, &Error{Trouble: Transient, Err: fmt.Errorf("the answer ended after %d of %d bytes", s.at, s.target.Size)}
	case err != nil:
		return 0, &Error{Trouble: Transient, Err: err}
	}
	return 0, nil
}

// ask requests the object from its beginning.
func (s *Stream) ask() error {
	r := s.r
	if err := r.gate.enter(s.ctx, 0); err != nil {
		return err
	}
	r.budget.request()
	r.requests.Add(1)
	w, end := r.watched(s.ctx)
	q := Request{Key: s.target.Key, Len: s.target.Size, Whole: true, Tag: s.target.tag}
	a, err := r.store.Get(w.ctx, q)
	if err == nil {
		if err = r.check(&s.target, q, a); err != nil {
			a.Body.Close()
		}
	}
	var trouble *Error
	if err != nil {
		err = end(err)
	}
	r.gate.leave(0, 0, errors.As(err, &trouble) && trouble.Trouble == Slow)
	if err != nil {
		return err
	}
	w.timer.Stop()
	r.budget.succeeded()
	s.body, s.at, s.watch, s.end = a.Body, 0, w, end
	s.target.tag, s.target.version = a.Tag, Version(a.Tag)
	return nil
}

// drop ends the request in flight. It returns the request's error.
func (s *Stream) drop(err error) error {
	if s.body == nil {
		return err
	}
	s.body.Close()
	s.body = nil
	return s.end(err)
}
