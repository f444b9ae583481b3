package peer

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"lcache/sample"
)

// ClientOptions of a Client.
type ClientOptions struct {
	TLS    *tls.Config   // nil: no encryption
	ID     string        // of this member, for the logs of others
	Late   time.Duration // of silence after which a peer is late; 0: DefaultLate
	Window int32         // bytes that a stream may have under way; 0: 4 MiB
}

// A Client asks the peers of one dataset. All methods may be called concurrently.
type Client struct {
	o       ClientOptions
	dataset sample.Fingerprint
	samples int
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup

	mu    sync.Mutex
	peers map[string]*link // by address; nil: closed
}

// NewClient returns a client. It connects to nobody before Fetch.
func NewClient(dataset sample.Fingerprint, samples int, o ClientOptions) *Client {
	o.Late, o.Window = cmp.Or(o.Late, DefaultLate), cmp.Or(o.Window, 4<<20)
	c := &Client{o: o, dataset: dataset, samples: samples, peers: map[string]*link{}}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// Close ends all requests and connections.
func (c *Client) Close() {
	c.mu.Lock()
	peers := c.peers
	c.peers = nil
	c.mu.Unlock()
	c.stop()
	for _, l := range peers {
		l.close()
	}
	c.running.Wait()
}

// start starts a goroutine of the client, unless the client is closed.
func (c *Client) start(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.peers == nil {
		return false
	}
	c.running.Go(f)
	return true
}

// Fetch asks a peer for samples, and returns when the peer has answered. Each piece goes to the sink. Samples of which no piece came are missing: the
// peer's time was over. After Fetch has returned, the sink is not called any longer. Fetch returns an error at the latest when the peer has sent nothing
// for Late, or when ctx ends. The peer learns the deadline of ctx.
func (c *Client) Fetch(ctx context.Context, address string, indices []sample.Index, to Sink) (missing int, err error) {
	if len(indices) == 0 || len(indices) > MostIndices {
		return len(indices), fmt.Errorf("a request of %d samples: 1 to %d are allowed", len(indices), MostIndices)
	}
	l, err := c.link(address)
	if err != nil {
		return len(indices), err
	}
	s, err := l.stream(c)
	if err != nil {
		return len(indices), err
	}
	r := &request{to: to, over: make(chan struct{}), next: make(map[sample.Index]uint32, len(indices))}
	for _, i := range indices {
		r.next[i] = 0
	}
	r.missing = len(r.next)
	select { // a stream has a limit of open LISTs
	case s.slots <- struct{}{}:
	case <-s.over:
		return r.missing, s.err()
	case <-ctx.Done():
		return r.missing, ctx.Err()
	}
	deadline := mostDeadline
	if at, ok := ctx.Deadline(); ok {
		deadline = min(max(time.Until(at), time.Millisecond), mostDeadline)
	}
	if err := s.begin(r, uint32(deadline.Milliseconds()), indices); err != nil {
		return r.missing, err
	}
	select {
	case <-r.over:
	case <-ctx.Done():
		s.forget(r)
		<-r.over
		if r.err == context.Canceled {
			return r.missing, ctx.Err()
		}
	}
	return r.missing, r.err
}

// link returns the connection to an address.
func (c *Client) link(address string) (*link, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.peers == nil {
		return nil, context.Canceled
	}
	if l := c.peers[address]; l != nil {
		return l, nil
	}
	creds := insecure.NewCredentials()
	if c.o.TLS != nil {
		creds = credentials.NewTLS(c.o.TLS)
	}
	l := &link{address: address}
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		return &watchedConn{conn, l}, nil
	}
	var err error
	l.conn, err = grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(creds), grpc.WithStaticStreamWindowSize(c.o.Window), grpc.WithStaticConnWindowSize(2*c.o.Window),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(MostFrame+headBytes)), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithNoProxy(), grpc.WithContextDialer(dial),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second}, MinConnectTimeout: time.Second}))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	c.peers[address] = l
	return l, nil
}

// watchedConn notes when bytes arrive, because a large frame on a slow link takes longer than a peer may be silent.
type watchedConn struct {
	net.Conn
	of *link
}

func (w *watchedConn) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if n > 0 {
		w.of.arrived.Store(time.Now().UnixNano())
	}
	return n, err
}

// Forget closes the connection to an address that is not a peer's any longer.
func (c *Client) Forget(address string) {
	c.mu.Lock()
	l := c.peers[address]
	delete(c.peers, address)
	c.mu.Unlock()
	if l != nil {
		l.close()
	}
}

// link is the connection to one peer.
type link struct {
	address string
	conn    *grpc.ClientConn
	arrived atomic.Int64 // when bytes arrived last, in ns since 1970

	mu      sync.Mutex
	current *stream   // nil: none is open
	retry   time.Time // not before this, after an error
	errors  int       // in a row
	last    error
}

func (l *link) close() {
	l.mu.Lock()
	s := l.current
	l.mu.Unlock()
	if s != nil {
		s.fail(context.Canceled)
	}
	l.conn.Close()
}

// Times between attempts to open a stream again.
const (
	retryFirst = 100 * time.Millisecond
	retryMost  = 5 * time.Second
)

// stream returns the open stream, or opens one. After an error it opens none for a while, and returns that error at once.
func (l *link) stream(c *Client) (*stream, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != nil {
		return l.current, nil
	}
	if time.Now().Before(l.retry) {
		return nil, l.last
	}
	ctx, cancel := context.WithCancel(c.ctx)
	ctx = metadata.AppendToOutgoingContext(ctx, metaProtocol, Protocol, metaPeer, c.o.ID, metaDataset, hex.EncodeToString(c.dataset[:]))
	s := &stream{link: l, client: c, cancel: cancel, late: c.o.Late, open: map[uint32]*request{}, slots: make(chan struct{}, MostLists), over: make(chan struct{}), out: make(chan []byte, 2*MostLists)}
	s.watch = time.AfterFunc(s.late, s.silent)
	s.watch.Stop()
	if !c.start(func() { s.run(ctx) }) {
		cancel()
		return nil, context.Canceled
	}
	l.current = s
	return s, nil
}

// lost notes that a stream ended.
func (l *link) lost(s *stream, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != s {
		return
	}
	l.current, l.last = nil, err
	wait := min(retryFirst<<min(l.errors, 6), retryMost)
	l.errors++
	l.retry = time.Now().Add(wait/2 + rand.N(wait))
}

// answered notes that a stream works.
func (l *link) answered() {
	l.mu.Lock()
	l.errors = 0
	l.mu.Unlock()
}

// request is one LIST.
type request struct {
	to      Sink          // nil: Fetch has returned, and what still comes is dropped
	over    chan struct{} // closed when Fetch may return
	err     error         // before over is closed
	missing int           // samples of which nothing came; before over is closed

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
	r.err = err
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

// silent ends a stream on which nothing came for too long.
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
		s.fail(lateError("%s was silent for %v", s.link.address, s.late))
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
			s.link.answered()
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

// Manifest reads a peer's manifest of a dataset from an offset on. to gets its bytes in order; an error of to ends Manifest. most bounds the whole.
func (c *Client) Manifest(ctx context.Context, address string, offset, most uint64, to func(total uint64, b []byte) error) error {
	l, err := c.link(address)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &stream{link: l, client: c}
	meta := metadata.AppendToOutgoingContext(ctx, metaProtocol, Protocol, metaPeer, c.o.ID, metaDataset, hex.EncodeToString(c.dataset[:]))
	stream, err := l.conn.NewStream(meta, &manifestDesc, manifestMethod)
	if err == nil {
		err = stream.SendMsg(plain(encodeWant(offset)))
	}
	if err == nil {
		err = stream.CloseSend()
	}
	if err != nil {
		return s.explain(err)
	}
	silence := time.AfterFunc(10*c.o.Late, cancel)
	defer silence.Stop()
	whole := uint64(0)
	for isFirst := true; ; isFirst = false {
		var f frame
		err := stream.RecvMsg(&f)
		if err == io.EOF && (isFirst || offset == whole) { // the first: nothing is behind the offset
			return nil
		}
		if err == io.EOF {
			return fmt.Errorf("%s: %w: the manifest ends at %d of %d bytes", address, ErrFrame, offset, whole)
		}
		if err != nil {
			return s.explain(err)
		}
		silence.Reset(10 * c.o.Late)
		total, b, err := readPiece(f, offset)
		f.Free()
		switch {
		case err != nil:
			return s.explain(err)
		case !isFirst && total != whole:
			return fmt.Errorf("%s: %w: a manifest of %d bytes is one of %d now", address, ErrFrame, whole, total)
		case total > most:
			return fmt.Errorf("%s: %w: a manifest of %d bytes, and at most %d are allowed", address, ErrFrame, total, most)
		}
		whole = total
		if err := to(total, b); err != nil {
			return err
		}
		if offset += uint64(len(b)); offset == total {
			return nil
		}
	}
}

// readPiece reads a PIECE that must begin at an offset.
func readPiece(f frame, offset uint64) (total uint64, b []byte, err error) {
	r, _, err := open(f.BufferSlice, kindPiece)
	if err != nil {
		return 0, nil, err
	}
	defer r.Close()
	at, total, n, err := r.piece()
	if err != nil {
		return 0, nil, err
	}
	if at != offset {
		return 0, nil, fmt.Errorf("%w: a piece at %d instead of %d", ErrFrame, at, offset)
	}
	b = make([]byte, n)
	return total, b, r.fill(b)
}
