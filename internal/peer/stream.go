package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"lcache/sample"
)

// request is one LIST.
type request struct {
	to      Sink          // nil: Fetch has returned, and what still comes is dropped
	over    chan struct{} // closed when Fetch may return
	err     error         // before over is closed
	missing int           // samples of which nothing came, until over is closed
	left    int           // missing at the end; before over is closed

	next map[sample.Index]uint32 // by sample: where its next piece begins; complete: it needs none

	isEnding bool // Fetch may return when the sink is not used any more
}

// complete marks a sample that has come as absent or empty.
const complete = math.MaxUint32

// accept reports whether a piece belongs to the request and comes in order.
func (r *request) accept(e entry) bool {
	at, ok := r.next[e.index]
	if !ok || at == complete || e.offset != at || uint64(at)+uint64(e.length) >= complete {
		return false
	}
	if at == 0 {
		r.missing--
	}
	if r.next[e.index] = at + e.length; e.length == 0 {
		r.next[e.index] = complete
	}
	return true
}

// stream is one stream Fetch. Its requests share it. A goroutine reads it, another one writes it.
type stream struct {
	link   *link
	client *Client
	cancel context.CancelFunc
	late   time.Duration
	watch  *time.Timer   // runs while LISTs are open, and their frames are not being handled
	slots  chan struct{} // a token for each open LIST
	over   chan struct{} // closed when the stream has ended
	out    chan []byte   // frames to send: a LIST and a CANCEL for each slot have room

	mu      sync.Mutex
	open    map[uint32]*request // until DONE
	lastID  uint32
	brought uint64    // of the last MARK
	moved   time.Time // when the peer last made progress
	ended   error
	using   *request // whose sink is being called

	isStalled bool      // the last LIST ended before all its samples came
	idle      time.Time // when the last LIST ended
}

func (s *stream) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// begin enters a request, which has a slot, and sends its LIST.
func (s *stream) begin(r *request, deadlineMS uint32, indices []sample.Index) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return s.ended
	}
	s.lastID++
	l := list{id: s.lastID, deadlineMS: deadlineMS, indices: indices}
	if now := time.Now(); len(s.open) == 0 {
		s.watch.Reset(s.late)
		if !s.isStalled || now.Sub(s.idle) > s.late {
			s.moved = now
		}
	}
	select {
	case s.out <- l.encode():
		s.open[l.id] = r
		return nil
	default: // the peer ends LISTs and reads none
		<-s.slots
		return lateError("%s reads no requests", s.link.address)
	}
}

// forget lets a Fetch return. Its LIST stays open until the peer's DONE, which a CANCEL hastens.
func (s *stream) forget(r *request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, other := range s.open {
		if other == r && !r.isEnding {
			s.finish(r, context.Canceled)
			select {
			case s.out <- encodeCancel(id):
			default: // without it the peer's DONE comes at the LIST's deadline
			}
		}
	}
}

// finish lets the Fetch of a request return, once its sink is not used any more. s.mu is held.
func (s *stream) finish(r *request, err error) {
	select {
	case <-r.over:
		return
	default:
	}
	if r.isEnding {
		return
	}
	r.err, r.left = err, r.missing
	if s.using == r {
		r.isEnding = true
		return
	}
	r.to = nil
	close(r.over)
}

// done handles DONE. s.mu is held.
func (s *stream) done(id uint32) {
	r := s.open[id]
	if r == nil {
		return
	}
	delete(s.open, id)
	<-s.slots
	s.isStalled, s.idle = r.missing > 0, time.Now()
	if len(s.open) == 0 {
		s.watch.Stop()
	}
	s.finish(r, nil)
}

// silent ends a stream on which nothing came for too long, with its connection.
func (s *stream) silent() {
	quiet := time.Since(time.Unix(0, s.link.arrived.Load()))
	s.mu.Lock()
	isIdle := len(s.open) == 0
	if !isIdle && quiet < s.late { // a large frame is arriving
		s.watch.Reset(s.late - quiet)
		isIdle = true
	}
	s.mu.Unlock()
	if !isIdle {
		s.fail(lateError("%s was silent for %v", s.link.address, s.late)) // first, because the stream's error is not that of the connection
		s.link.hangUp()
	}
}

// fail ends the stream with all its requests.
func (s *stream) fail(err error) {
	s.link.lost(s, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return
	}
	s.ended = err
	s.watch.Stop()
	for id, r := range s.open {
		delete(s.open, id)
		s.finish(r, err)
	}
	close(s.over)
	s.cancel()
}

// endIfIdle ends the stream, except for its connection, and reports true, if no LIST is open.
func (s *stream) endIfIdle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil || len(s.open) > 0 {
		return false
	}
	s.ended = errIdle
	s.watch.Stop()
	close(s.over)
	return true
}

// explain turns an error of gRPC into one of this package.
func (s *stream) explain(err error) error {
	switch st, _ := status.FromError(err); {
	case err == io.EOF:
		return lateError("%s ended the stream", s.link.address)
	case st.Code() == codes.FailedPrecondition, st.Code() == codes.NotFound, st.Code() == codes.InvalidArgument, st.Code() == codes.Unimplemented:
		return fmt.Errorf("%s: %w: %s", s.link.address, ErrRefused, st.Message())
	case errors.Is(err, ErrFrame):
		return fmt.Errorf("%s: %w", s.link.address, err)
	default:
		return lateError("%s: %s", s.link.address, st.Message())
	}
}

// run opens the stream and reads it to its end.
func (s *stream) run(ctx context.Context) {
	defer s.cancel()
	stream, err := s.link.conn.NewStream(ctx, &fetchDesc, fetchMethod)
	if err != nil {
		s.fail(s.explain(err))
		return
	}
	var writing sync.WaitGroup
	defer writing.Wait() // after cancel, which ends SendMsg
	defer s.cancel()
	writing.Go(func() {
		for {
			select {
			case b := <-s.out:
				if stream.SendMsg(plain(b)) != nil { // RecvMsg has the reason
					return
				}
			case <-s.over:
				return
			}
		}
	})
	for isFirst := true; ; isFirst = false {
		var f frame
		if err := stream.RecvMsg(&f); err != nil {
			s.fail(s.explain(err))
			return
		}
		err := s.take(f)
		f.Free()
		if err != nil {
			s.fail(s.explain(err))
			return
		}
		if isFirst {
			s.link.answered(s)
		}
	}
}

// take handles a frame. Meanwhile the peer is not watched: a sink that takes its time does not make it late.
func (s *stream) take(f frame) error {
	r, kind, err := open(f.BufferSlice, kindParcel, kindDone, kindMark)
	if err != nil {
		return err
	}
	defer r.Close()
	s.watch.Stop()
	defer s.watchAgain()
	switch kind {
	case kindMark:
		brought, err := r.mark()
		if err != nil {
			return err
		}
		return s.marked(brought)
	case kindDone:
		id, err := r.done()
		if err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.done(id)
		if still := time.Since(s.moved); s.isStalled && still > s.late {
			return lateError("%s has brought nothing for %v", s.link.address, still.Round(time.Millisecond))
		}
		return nil
	}
	id, entries, err := r.parcel(s.client.samples)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := s.deliver(r, id, e); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.moved = time.Now()
	s.mu.Unlock()
	return nil
}

func (s *stream) watchAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) > 0 && s.ended == nil {
		s.watch.Reset(s.late)
	}
}

// marked handles a MARK: the peer lives. If its bytes stand still for too long, its disks hang.
func (s *stream) marked(brought uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if brought != s.brought {
		s.brought, s.moved = brought, time.Now()
	}
	if still := time.Since(s.moved); len(s.open) > 0 && still > s.late {
		return lateError("%s has brought nothing for %v", s.link.address, still.Round(time.Millisecond))
	}
	return nil
}

// deliver hands a piece to its sink, without a lock. A Fetch that ends meanwhile returns when its sink is not used any more.
func (s *stream) deliver(r *reader, id uint32, e entry) error {
	s.mu.Lock()
	request := s.open[id]
	var to Sink
	isAccepted := request != nil && request.accept(e)
	if isAccepted && !request.isEnding {
		if to = request.to; to != nil {
			s.using = request
		}
	}
	s.mu.Unlock()
	switch {
	case !isAccepted:
		return fmt.Errorf("%w: sample %d at %d is not what LIST %d waits for", ErrFrame, e.index, e.offset, id)
	case to == nil:
		_, err := r.Discard(int(e.length))
		return err
	}
	err := fillRoom(r, to, Piece{Index: e.index, Why: e.why, Offset: e.offset, Length: e.length, Sum: e.sum})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.using = nil
	if request.isEnding {
		request.to = nil
		close(request.over)
	}
	return err
}

// fillRoom reads a piece into its room.
func fillRoom(r *reader, to Sink, p Piece) error {
	if p.Length == 0 {
		to.Came(p)
		return nil
	}
	room := to.Room(p)
	if room == nil {
		_, err := r.Discard(int(p.Length))
		return err
	}
	if len(room) != int(p.Length) {
		panic(fmt.Sprintf("room for %d bytes of %d", len(room), p.Length))
	}
	if err := r.fill(room); err != nil {
		return err
	}
	to.Came(p)
	return nil
}
