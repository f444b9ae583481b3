package peer

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"golang.org/x/sync/semaphore"

	"lcache/sample"
)

// A Server answers peers. All methods may be called concurrently.
type Server struct {
	grpc   *grpc.Server
	conns  *connections
	served sync.WaitGroup
	stuck  time.Duration
	stream int64         // bytes of samples that one stream may hold until they are sent
	bytes  atomic.Uint64 // sent, of samples

	mu    sync.Mutex
	homes map[sample.Fingerprint]*served
}

// served is a dataset with its streams.
type served struct {
	Home
	ctx     context.Context // ends with Remove
	end     context.CancelCauseFunc
	streams sync.WaitGroup
}

// ServerOptions of a Server.
type ServerOptions struct {
	TLS    *tls.Config   // nil: no encryption, for the loopback interface
	Window int32         // bytes that a stream may have in flight; 0: 4 MiB
	Stuck  time.Duration // that a frame may take to be sent, before its connection is closed; 0: 10 s
	Stream int64         // bytes of samples that a stream may hold until they are sent; 0: 4 MiB. A larger sample may be held alone
}

// Bounds of connections and streams.
const (
	mostConnections = 256
	mostStreams     = 64 // of one connection: two for each dataset
)

// Serve starts a server on a listener, which it closes when Close is called.
func Serve(l net.Listener, o ServerOptions) *Server {
	s := &Server{homes: map[sample.Fingerprint]*served{}, conns: &connections{Listener: l, open: map[string]net.Conn{}}, stuck: cmp.Or(o.Stuck, stuckTime), stream: cmp.Or(o.Stream, 4<<20)}
	window := cmp.Or(o.Window, 4<<20)
	creds := insecure.NewCredentials()
	if o.TLS != nil {
		creds = credentials.NewTLS(o.TLS)
	}
	s.grpc = grpc.NewServer(grpc.Creds(creds), grpc.ForceServerCodecV2(codec{}), grpc.MaxRecvMsgSize(MostFrame+headBytes), grpc.MaxConcurrentStreams(mostStreams), grpc.WaitForHandlers(true),
		grpc.StaticStreamWindowSize(window), grpc.StaticConnWindowSize(2*window), grpc.ConnectionTimeout(5*time.Second), grpc.MaxHeaderListSize(8<<10),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: 5 * time.Minute, Time: 30 * time.Second, Timeout: 10 * time.Second}))
	s.grpc.RegisterService(&grpc.ServiceDesc{ServiceName: "lcache.Peer", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{
		{StreamName: fetchDesc.StreamName, Handler: s.fetch, ServerStreams: true, ClientStreams: true},
		{StreamName: manifestDesc.StreamName, Handler: s.manifest, ServerStreams: true, ClientStreams: true},
	}}, nil)
	s.served.Go(func() { s.grpc.Serve(s.conns) }) // its error is that of Close
	return s
}

// Close ends all streams. When it returns, no Home is called any longer.
func (s *Server) Close() {
	s.grpc.Stop()
	s.served.Wait()
}

// Add begins to answer for a dataset.
func (s *Server) Add(f sample.Fingerprint, h Home) {
	of := &served{Home: h}
	of.ctx, of.end = context.WithCancelCause(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.homes[f] = of
}

// Remove ends the streams of a dataset. When it returns, its Home is not called any longer.
func (s *Server) Remove(f sample.Fingerprint) {
	s.mu.Lock()
	of := s.homes[f]
	delete(s.homes, f)
	s.mu.Unlock()
	if of != nil {
		of.end(status.Error(codes.NotFound, "the dataset is not served here any longer"))
		of.streams.Wait()
	}
}

// SentBytes returns the bytes of samples that were sent.
func (s *Server) SentBytes() uint64 { return s.bytes.Load() }

// connections are a listener that knows its connections, so that one can be closed under a stream that takes nothing: gRPC has no deadline for that.
type connections struct {
	net.Listener

	mu   sync.Mutex
	open map[string]net.Conn // by the other side's address
}

// Accept accepts a connection. If there are too many, it closes the new one.
func (c *connections) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		address := conn.RemoteAddr().String()
		c.mu.Lock()
		isFull := len(c.open) >= mostConnections
		if !isFull {
			c.open[address] = conn
		}
		c.mu.Unlock()
		if !isFull {
			return &connection{conn, c, address}, nil
		}
		conn.Close()
	}
}

// kill closes the connection of a stream.
func (c *connections) kill(ctx context.Context) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return
	}
	c.mu.Lock()
	conn := c.open[p.Addr.String()]
	c.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
}

// connection leaves its connections when it is closed.
type connection struct {
	net.Conn
	of      *connections
	address string
}

func (c *connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c.address)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// home returns the home that a stream is about.
// The caller calls streams.Done of it.
func (s *Server) home(ctx context.Context) (*served, error) {
	m, _ := metadata.FromIncomingContext(ctx)
	one := func(name string) string {
		if v := m.Get(name); len(v) == 1 {
			return v[0]
		}
		return ""
	}
	if p := one(metaProtocol); p != Protocol {
		return nil, status.Errorf(codes.FailedPrecondition, "version %q of the protocol between machines, and this server speaks %s: run one version of lcache on all machines", p, Protocol)
	}
	var f sample.Fingerprint
	if b, err := hex.DecodeString(one(metaDataset)); err != nil || len(b) != len(f) {
		return nil, status.Error(codes.InvalidArgument, "no fingerprint of a dataset")
	} else {
		copy(f[:], b)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.homes[f]; h != nil {
		h.streams.Add(1)
		return h, nil
	}
	return nil, status.Errorf(codes.NotFound, "dataset %s is not served here", f.Short())
}

// fetch serves a stream Fetch.
func (s *Server) fetch(_ any, stream grpc.ServerStream) error {
	h, err := s.home(stream.Context())
	if err != nil {
		return err
	}
	defer h.streams.Done()
	ctx, cancel := context.WithCancelCause(stream.Context())
	a := &answers{server: s, home: h, stream: stream, cancel: cancel, open: map[uint32]context.CancelFunc{}, held: semaphore.NewWeighted(s.stream)}
	var received chan error
	defer func() {
		cancel(nil)
		a.mu.Lock()
		a.isClosed = true
		a.mu.Unlock()
		// Sending and receiving end with the connection, if they don't by themselves.
		stuck := time.AfterFunc(s.stuck, func() { s.conns.kill(stream.Context()) })
		defer stuck.Stop()
		a.running.Wait()
	}()
	a.running.Go(func() { a.mark(ctx) })
	received = make(chan error, 1)
	go func() { received <- a.receive(ctx) }() // it ends with the stream, which ends with this function
	select {
	case err = <-received:
		if err == io.EOF {
			a.lists.Wait()
			return nil
		}
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-h.ctx.Done():
		err = context.Cause(h.ctx)
	}
	return refusal(err)
}

// refusal is the status with which a stream ends.
func refusal(err error) error {
	if errors.Is(err, ErrFrame) {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return err
}

// answers are the LISTs of one stream.
type answers struct {
	server *Server
	home   Home
	stream grpc.ServerStream
	cancel context.CancelCauseFunc
	held   *semaphore.Weighted // bytes of samples that are not sent yet

	running sync.WaitGroup
	lists   sync.WaitGroup
	brought atomic.Uint64 // bytes

	mu   sync.Mutex
	open map[uint32]context.CancelFunc // LISTs, by id

	isClosed bool // no LIST is begun any longer

	sending sync.Mutex // the stream
}

// receive reads LISTs and CANCELs until the consumer ends the stream.
func (a *answers) receive(ctx context.Context) error {
	for {
		var f frame
		if err := a.stream.RecvMsg(&f); err != nil {
			return err
		}
		err := a.take(ctx, f)
		f.Free()
		if err != nil {
			return err
		}
	}
}

// take handles a frame of the consumer.
func (a *answers) take(ctx context.Context, f frame) error {
	r, kind, err := open(f.BufferSlice, kindList, kindCancel)
	if err != nil {
		return err
	}
	defer r.Close()
	if kind == kindCancel {
		id, err := r.done()
		if err != nil {
			return err
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if cancel := a.open[id]; cancel != nil { // else it is answered
			cancel()
		}
		return nil
	}
	l, err := r.list(a.home.Samples())
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, min(time.Duration(l.deadlineMS)*time.Millisecond, mostDeadline))
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.isClosed {
		cancel()
		return context.Canceled
	}
	if a.open[l.id] != nil || len(a.open) >= MostLists {
		cancel()
		return fmt.Errorf("%w: LIST %d is open, or %d others are", ErrFrame, l.id, MostLists)
	}
	a.open[l.id] = cancel
	a.lists.Add(1)
	a.running.Go(func() {
		defer a.lists.Done()
		a.answer(ctx, limited, l)
	})
	return nil
}

// close ends a LIST: its id may be used again.
func (a *answers) close(id uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if cancel := a.open[id]; cancel != nil {
		cancel()
	}
	delete(a.open, id)
}

// isBusy reports whether a LIST is open.
func (a *answers) isBusy() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.open) > 0
}

// mostDeadline bounds the deadline of a LIST.
const mostDeadline = time.Minute

// send sends a message, which it frees. A consumer that takes nothing for stuckTime loses the stream: nobody waits for it longer.
func (a *answers) send(b mem.BufferSlice) error {
	a.sending.Lock()
	defer a.sending.Unlock()
	stuck := time.AfterFunc(a.server.stuck, func() {
		a.cancel(status.Error(codes.DeadlineExceeded, "the consumer takes nothing"))
		a.server.conns.kill(a.stream.Context())
	})
	defer stuck.Stop()
	return a.stream.SendMsg(b)
}

// mark sends MARKs while LISTs are open.
func (a *answers) mark(ctx context.Context) {
	t := time.NewTicker(markEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if a.isBusy() && a.send(plain(encodeMark(a.brought.Load()))) != nil {
			return
		}
	}
}

// answer answers a LIST. ctx is the stream's, limited that of the LIST.
func (a *answers) answer(ctx, limited context.Context, l list) {
	brought := make(chan Brought)
	var bringing sync.WaitGroup
	bringing.Go(func() {
		defer close(brought)
		a.home.Bring(limited, l.indices, func(b Brought) { a.hold(ctx, b, brought) })
	})
	p := parcel{answers: a, id: l.id}
	flush := time.NewTimer(parcelWait)
	defer flush.Stop()
	err := error(nil)
	for isOpen := true; isOpen; {
		var b Brought
		select {
		case b, isOpen = <-brought:
		case <-flush.C:
			if err == nil {
				err = p.flush()
			}
			continue
		}
		switch {
		case !isOpen:
		case err != nil:
			a.held.Release(a.weight(b))
		default:
			if p.isEmpty() {
				flush.Reset(parcelWait)
			}
			err = p.add(b)
		}
	}
	bringing.Wait()
	if err == nil {
		err = p.flush()
	}
	a.close(l.id)                       // before DONE, because the consumer may use its place at once
	if err == nil && ctx.Err() == nil { // else the stream ends, with its reason
		err = a.send(plain(encodeDone(l.id)))
	}
	p.drop()
	if err != nil {
		a.cancel(err)
	}
}

// weight is a sample's part of the bytes that a stream may hold. A sample that is larger takes all of it.
func (a *answers) weight(b Brought) int64 { return min(int64(len(b.Bytes)), a.server.stream) }

// hold copies a sample, so that the home's memory is free again at once, and passes it on. It waits while the stream holds too much. gRPC could send
// the home's own bytes, but it does not free what is queued when a connection breaks.
func (a *answers) hold(ctx context.Context, b Brought, to chan<- Brought) {
	if a.held.Acquire(ctx, a.weight(b)) != nil {
		b.release()
		return
	}
	copied := b
	copied.Bytes, copied.Release = bytes.Clone(b.Bytes), nil
	b.release()
	select {
	case to <- copied:
	case <-ctx.Done():
		a.held.Release(a.weight(copied))
	}
}

// release tells the home that the bytes are not read any more.
func (b *Brought) release() {
	if b.Release != nil {
		b.Release()
	}
}

// parcel collects samples for one message.
type parcel struct {
	*answers
	id      uint32
	entries []entry
	bytes   int
	weight  int64 // held for samples that are complete in this message
	parts   mem.BufferSlice
}

func (p *parcel) isEmpty() bool { return len(p.entries) == 0 }

// mostPart is the largest part of a sample in one PARCEL: a larger sample is cut.
const mostPart = MostFrame - 64<<10

// add adds a sample, and sends what is full.
func (p *parcel) add(b Brought) error {
	if b.Why.IsAbsent() || len(b.Bytes) == 0 {
		p.entries = append(p.entries, entry{index: b.Index, why: b.Why, sum: b.Sum})
		return p.flushIfFull()
	}
	for offset := 0; offset < len(b.Bytes); {
		n := min(len(b.Bytes)-offset, mostPart)
		if n > mostPart-p.bytes {
			if err := p.flush(); err != nil {
				p.held.Release(p.answers.weight(b))
				return err
			}
		}
		p.entries = append(p.entries, entry{index: b.Index, length: uint32(n), offset: uint32(offset), why: b.Why, sum: b.Sum})
		p.parts = append(p.parts, mem.SliceBuffer(b.Bytes[offset:offset+n]))
		p.bytes += n
		if offset += n; offset == len(b.Bytes) {
			p.weight += p.answers.weight(b)
		}
		if err := p.flushIfFull(); err != nil {
			if offset < len(b.Bytes) {
				p.held.Release(p.answers.weight(b))
			}
			return err
		}
	}
	return nil
}

func (p *parcel) flushIfFull() error {
	if p.bytes >= parcelBytes || len(p.entries) == MostIndices/4 {
		return p.flush()
	}
	return nil
}

// flush sends the collected samples. gRPC keeps at most one message of a stream besides the one that it is sending.
func (p *parcel) flush() error {
	if p.isEmpty() {
		return nil
	}
	message := append(mem.BufferSlice{mem.SliceBuffer(encodeParcel(p.id, p.entries))}, p.parts...)
	n := uint64(p.bytes)
	p.brought.Add(n)
	p.server.bytes.Add(n)
	err := p.send(message)
	p.drop()
	return err
}

// drop forgets the collected samples.
func (p *parcel) drop() {
	p.held.Release(p.weight)
	p.entries, p.parts, p.bytes, p.weight = p.entries[:0], nil, 0, 0
}

// manifest serves a stream Manifest: the consumer says from where, and gets the rest in pieces.
func (s *Server) manifest(_ any, stream grpc.ServerStream) error {
	h, err := s.home(stream.Context())
	if err != nil {
		return err
	}
	defer h.streams.Done()
	var f frame
	if err := stream.RecvMsg(&f); err != nil {
		return err
	}
	offset, err := readWant(f)
	f.Free()
	all := h.Manifest()
	if err == nil && offset > uint64(len(all)) {
		err = fmt.Errorf("%w: offset %d of %d", ErrFrame, offset, len(all))
	}
	if err != nil {
		return refusal(err)
	}
	for rest := all[offset:]; len(rest) > 0; {
		n := min(len(rest), parcelBytes)
		b := mem.BufferSlice{mem.SliceBuffer(encodePiece(uint64(len(all)-len(rest)), uint64(len(all)), n)), mem.SliceBuffer(rest[:n])}
		stuck := time.AfterFunc(s.stuck, func() { s.conns.kill(stream.Context()) })
		err := stream.SendMsg(b)
		stuck.Stop()
		if err != nil {
			return err
		}
		if h.ctx.Err() != nil {
			return context.Cause(h.ctx)
		}
		rest = rest[n:]
	}
	return nil
}

func readWant(f frame) (uint64, error) {
	r, _, err := open(f.BufferSlice, kindWant)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	return r.want()
}
