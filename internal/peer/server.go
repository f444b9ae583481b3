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
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"
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
	idle   time.Duration
	stream func() int64 // bytes of samples that a new stream may hold until they are sent

	large     *semaphore.Weighted // bytes of samples that are larger than that, of all streams
	mostLarge int64               // of large
	largeSent atomic.Uint64       // bytes of such samples

	mu    sync.Mutex
	homes map[sample.Fingerprint]*served
}

// served is a dataset with its streams.
type served struct {
	Home
	ctx     context.Context // ends with Remove
	end     context.CancelCauseFunc
	streams sync.WaitGroup

	consumers consumers
}

// ServerOptions of a Server.
type ServerOptions struct {
	TLS    *tls.Config   // nil: no encryption, for the loopback interface
	Window int32         // bytes of requests that a stream may have in flight; 0: 64 KiB
	Idle   time.Duration // without a LIST, after which a stream is ended; 0: twice DefaultIdle
	Stuck  time.Duration // that a frame may take to be sent, before its connection is closed; 0: 10 s
	Stream func() int64  // returns the bytes of samples that a new stream may hold until they are sent; nil: 4 MiB. A larger sample may be held alone
	Large  int64         // bytes of samples larger than Stream that all streams together may hold; 0: 16 MiB. A larger sample is held while no stream holds another one of these

	Refused func(from net.Addr, err error) // called for a connection beyond the bound, or that is no TLS, or where one side does not accept the other's certificate; nil: nothing
}

// Bounds of connections and streams.
const (
	mostConnections = 256
	mostStreams     = 64                             // of one connection: two for each dataset
	mostWindow      = 256 << 10                      // bytes that the requests of a stream may have in flight, and half of those of a connection
	mostRequest     = headBytes + 12 + 4*MostIndices // bytes of a frame from a consumer: a LIST
)

// Serve starts a server on a listener, which it closes when Close is called.
func Serve(l net.Listener, o ServerOptions) *Server {
	s := &Server{homes: map[sample.Fingerprint]*served{}, conns: &connections{Listener: l, open: map[string]net.Conn{}, refused: o.Refused}, stuck: cmp.Or(o.Stuck, stuckTime), idle: cmp.Or(o.Idle, unusedTime), stream: o.Stream, mostLarge: cmp.Or(o.Large, 16<<20)}
	if s.stream == nil {
		s.stream = func() int64 { return 4 << 20 }
	}
	s.large = semaphore.NewWeighted(s.mostLarge)
	window := min(cmp.Or(o.Window, 64<<10), mostWindow)
	creds := insecure.NewCredentials()
	if o.TLS != nil {
		withTLS := newTLS(o.TLS)
		withTLS.refused = o.Refused
		creds = withTLS
	}
	s.grpc = grpc.NewServer(grpc.Creds(creds), grpc.ForceServerCodecV2(codec{}), experimental.BufferPool(buffers), grpc.WriteBufferSize(writeBuffer), grpc.ReadBufferSize(readBuffer(o.TLS)), grpc.MaxRecvMsgSize(mostRequest), grpc.MaxConcurrentStreams(mostStreams), grpc.WaitForHandlers(true),
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

// Add begins to answer for a dataset. It returns false if there is a Home of the dataset already.
func (s *Server) Add(f sample.Fingerprint, h Home) bool {
	of := &served{Home: h}
	of.ctx, of.end = context.WithCancelCause(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.homes[f] != nil {
		return false
	}
	s.homes[f] = of
	return true
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

// connections are a listener that knows its connections, so that one can be closed under a stream that takes nothing: gRPC has no deadline for that.
type connections struct {
	net.Listener
	refused func(from net.Addr, err error) // nil: nothing

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
		if c.refused != nil {
			c.refused(conn.RemoteAddr(), errFull)
		}
	}
}

// errFull is why Accept closes a connection.
var errFull = fmt.Errorf("%d connections are open, and a machine accepts no more", mostConnections)

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

// home returns the dataset that a stream is about. The caller calls streams.Done of it.
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
	defer context.AfterFunc(h.ctx, func() { cancel(context.Cause(h.ctx)) })()
	a := &answers{server: s, home: h, consumer: h.consumers.of(stream.Context()), samples: h.Samples(), stream: stream, cancel: cancel, open: map[uint32]context.CancelFunc{}, bound: s.stream()}
	a.held = semaphore.NewWeighted(a.bound)
	a.consumer.open.Add(1)
	defer a.consumer.open.Add(-1)
	a.asked.Store(time.Now().UnixNano())
	a.before, _ = h.Work()
	defer a.end()
	a.running.Go(func() { a.mark(ctx) })
	received := make(chan error, 1)
	go func() { received <- a.receive(ctx) }() // it ends with the stream, which ends with this function
	select {
	case err = <-received:
		if err != io.EOF {
			return refusal(err)
		}
		a.lists.Wait()
	case <-ctx.Done():
	}
	return refusal(context.Cause(ctx)) // nil: the consumer has ended the stream, and has all answers
}

// errUnused ends a stream on which nothing is asked. Consumers end theirs earlier.
var errUnused = status.Error(codes.DeadlineExceeded, "nothing was asked for too long")

// refusal is the status with which a stream ends.
func refusal(err error) error {
	if errors.Is(err, ErrFrame) {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return err
}

// manifest serves a stream Manifest: the consumer sends an offset, and gets the rest in pieces.
func (s *Server) manifest(_ any, stream grpc.ServerStream) error {
	h, err := s.home(stream.Context())
	if err != nil {
		return err
	}
	defer h.streams.Done()
	want := make(chan frame, 1)
	failed := make(chan error, 1)
	go func() { // it ends with the stream, which ends with this function
		var f frame
		if err := stream.RecvMsg(&f); err != nil {
			failed <- err
			return
		}
		want <- f
	}()
	var f frame
	select {
	case f = <-want:
	case err := <-failed:
		return err
	case <-h.ctx.Done():
		return context.Cause(h.ctx)
	case <-time.After(s.idle):
		return errUnused
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
	for h.ctx.Err() == nil && offset < uint64(len(all)) {
		piece := bytes.Clone(all[offset:min(offset+parcelBytes, uint64(len(all)))]) // gRPC may keep it longer than the home keeps the manifest
		stuck := time.AfterFunc(s.stuck, func() { s.conns.kill(stream.Context()) })
		err := stream.SendMsg(mem.BufferSlice{mem.SliceBuffer(encodePiece(offset, uint64(len(all)), len(piece))), mem.SliceBuffer(piece)})
		stuck.Stop()
		if err != nil {
			return err
		}
		offset += uint64(len(piece))
	}
	return context.Cause(h.ctx)
}

func readWant(f frame) (uint64, error) {
	r, _, err := open(f.BufferSlice, kindWant)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	return r.want()
}
