package peer

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/metadata"

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

// NewClient returns a client. It connects when Fetch first needs a peer.
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

// CloseIdle closes the streams without an open request, so that the peers know that this machine needs nothing now. Fetch opens them again.
func (c *Client) CloseIdle() {
	c.mu.Lock()
	peers := slices.Collect(maps.Values(c.peers))
	c.mu.Unlock()
	for _, l := range peers {
		l.closeIdle()
	}
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

// Fetch asks a peer for samples, and returns when the peer has answered. Each piece goes to the sink. missing counts the samples
// without any piece: the peer reached the deadline first. After Fetch has returned, the sink is not called any longer. Fetch returns an error at the latest when the peer has sent nothing
// for Late, or when ctx ends. The peer learns the deadline of ctx.
func (c *Client) Fetch(ctx context.Context, address string, indices []sample.Index, to Sink) (missing int, err error) {
	if len(indices) == 0 || len(indices) > MostIndices {
		return len(indices), fmt.Errorf("a request of %d samples: 1 to %d are allowed", len(indices), MostIndices)
	}
	l, err := c.link(address)
	if err != nil {
		return len(indices), err
	}
	r := &request{to: to, over: make(chan struct{}), next: make(map[sample.Index]uint32, len(indices))}
	for _, i := range indices {
		r.next[i] = 0
	}
	r.missing = len(r.next)
	var s *stream
	for err = errIdle; err == errIdle; { // CloseIdle may close the stream before the request is open
		if s, err = l.stream(c); err == nil {
			err = s.enter(ctx, r, indices)
		}
	}
	if err != nil {
		return len(indices), err
	}
	select {
	case <-r.over:
	case <-ctx.Done():
		s.forget(r)
		<-r.over
		if r.err == context.Canceled {
			return r.left, ctx.Err()
		}
	}
	return r.left, r.err
}

// enter sends the LIST of a request, as soon as the stream has a slot for it.
func (s *stream) enter(ctx context.Context, r *request, indices []sample.Index) error {
	select { // a stream has a limit of open LISTs
	case s.slots <- struct{}{}:
	case <-s.over:
		return s.err()
	case <-ctx.Done():
		return ctx.Err()
	}
	deadline := mostDeadline
	if at, ok := ctx.Deadline(); ok {
		deadline = min(max(time.Until(at), time.Millisecond), mostDeadline)
	}
	return s.begin(r, uint32(deadline.Milliseconds()), indices)
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
		creds = newTLS(c.o.TLS)
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
	l.conn, err = grpc.NewClient("passthrough:///"+address, experimental.WithBufferPool(buffers), grpc.WithWriteBufferSize(writeBuffer), grpc.WithReadBufferSize(readBuffer(c.o.TLS)), grpc.WithTransportCredentials(creds), grpc.WithStaticStreamWindowSize(c.o.Window), grpc.WithStaticConnWindowSize(2*c.o.Window),
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

// errIdle is why CloseIdle ends a stream.
var errIdle = errors.New("the stream was idle")

// closeIdle closes the stream, if no LIST is open.
func (l *link) closeIdle() {
	l.mu.Lock()
	s := l.current
	if s == nil || !s.endIfIdle() {
		l.mu.Unlock()
		return
	}
	l.current = nil
	l.mu.Unlock()
	s.cancel()
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
