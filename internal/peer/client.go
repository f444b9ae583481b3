package peer

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
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
	Window func() int32  // returns the bytes that a stream of a new connection may have under way; nil: 4 MiB
	Idle   time.Duration // after which a connection without a request is closed; 0: DefaultIdle
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
	o.Late, o.Idle = cmp.Or(o.Late, DefaultLate), cmp.Or(o.Idle, DefaultIdle)
	if o.Window == nil {
		o.Window = func() int32 { return 4 << 20 }
	}
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
		l.unused.Stop()
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
	l, err := c.use(address)
	if err != nil {
		return len(indices), err
	}
	defer c.unuse(l)
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

// use returns the connection to an address for a request, which calls unuse at its end.
func (c *Client) use(address string) (*link, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.peers == nil {
		return nil, context.Canceled
	}
	l := c.peers[address]
	if l == nil {
		var err error
		if l, err = c.connect(address); err != nil {
			return nil, err
		}
		l.unused = time.AfterFunc(c.o.Idle, func() { c.closeUnused(l) })
		c.peers[address] = l
	}
	l.unused.Stop()
	l.uses++
	return l, nil
}

// unuse ends a request.
func (c *Client) unuse(l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.uses--; l.uses == 0 && c.peers[l.address] == l {
		l.unused.Reset(c.o.Idle)
	}
}

// closeUnused closes a connection on which there has been no request for a while. The next request connects again.
func (c *Client) closeUnused(l *link) {
	c.mu.Lock()
	isUnused := l.uses == 0 && c.peers[l.address] == l
	if isUnused {
		delete(c.peers, l.address)
	}
	c.mu.Unlock()
	if isUnused {
		l.close()
	}
}

// connect returns a connection to an address. gRPC dials later.
func (c *Client) connect(address string) (*link, error) {
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
		w := &watchedConn{conn, l, time.Now()}
		l.newest.Store(w)
		return w, nil
	}
	window := c.o.Window()
	var err error
	l.conn, err = grpc.NewClient("passthrough:///"+address, experimental.WithBufferPool(buffers), grpc.WithWriteBufferSize(writeBuffer), grpc.WithReadBufferSize(readBuffer(c.o.TLS)), grpc.WithTransportCredentials(creds), grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(2*window),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(MostFrame+headBytes)), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithNoProxy(), grpc.WithContextDialer(dial),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second}, MinConnectTimeout: time.Second}))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	return l, nil
}

// watchedConn notes when bytes arrive, because a large frame on a slow link takes longer than a peer may be silent.
type watchedConn struct {
	net.Conn
	of     *link
	dialed time.Time
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
	c.mu.Unlock()
	if l != nil {
		c.forget(l)
	}
}

// forget closes a connection. The next request to its address connects again.
func (c *Client) forget(l *link) {
	c.mu.Lock()
	isKnown := c.peers[l.address] == l
	if isKnown {
		delete(c.peers, l.address)
	}
	c.mu.Unlock()
	if isKnown {
		l.close()
	}
}

// Retry lets the next request to an address connect at once, because its machine has come back. After errors a request may wait for seconds. Requests on
// a connection of the time before fail. A connection on which the peer has answered since the last error is kept.
func (c *Client) Retry(address string) {
	c.mu.Lock()
	l := c.peers[address]
	c.mu.Unlock()
	if l == nil {
		return
	}
	l.mu.Lock()
	var isOld bool
	if newest := l.newest.Load(); l.current == nil {
		isOld = l.last != nil
	} else {
		isOld = !l.lostAt.IsZero() && (newest == nil || newest.dialed.Before(l.lostAt))
	}
	l.errors = 0
	l.mu.Unlock()
	if isOld { // gRPC has a pause of its own, and a dial to a machine that was switched off hangs
		c.forget(l)
	}
}

// link is the connection to one peer.
type link struct {
	address string
	conn    *grpc.ClientConn
	arrived atomic.Int64                // when bytes arrived last, in ns since 1970
	newest  atomic.Pointer[watchedConn] // nil: none was dialed

	uses   int         // requests; guarded by the client's mu, as unused
	unused *time.Timer // runs while there is none

	mu       sync.Mutex
	isClosed bool      // a request that got the link before opens no stream
	current  *stream   // nil: none is open
	retry    time.Time // not before this, after an error
	errors   int       // in a row
	last     error
	lostAt   time.Time // when a stream last failed, except by a refusal; zero: never, or the peer has answered since
}

func (l *link) close() {
	l.mu.Lock()
	s := l.current
	l.isClosed = true
	l.mu.Unlock()
	if s != nil {
		s.fail(context.Canceled)
	}
	l.conn.Close()
}

// hangUp closes the connection, so that gRPC dials again for the next stream. One that was cut by the network may look open for minutes.
func (l *link) hangUp() {
	if c := l.newest.Load(); c != nil {
		_ = c.Close()
	}
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
	if l.isClosed {
		return nil, context.Canceled
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
	if !errors.Is(err, ErrRefused) {
		l.lostAt = time.Now()
	}
	wait := min(retryFirst<<min(l.errors, 6), retryMost)
	l.errors++
	l.retry = time.Now().Add(wait/2 + rand.N(wait))
}

// answered notes that a stream works, and its connection with it.
func (l *link) answered(s *stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == s {
		l.errors, l.lostAt = 0, time.Time{}
	}
}
