package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"lcache/internal/jsonbytes"
	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
)

// conn is one connection. Its reader reads frames, carries out the requests that have no answer, and queues the other requests. serve answers those.
type conn struct {
	s         *Server
	c         *net.UnixConn
	r         *bufio.Reader
	client    *deliver.Client
	owner     bool   // the client runs as the server's user, or as root
	server    string // name of this run of the server, from the answer to HELLO
	others    bool   // the client accepts substitutes; answers name them
	withParts bool   // the samples have parts, and the client accepts them with a batch
	queue     chan *request

	// The fields that follow belong to the answering goroutine.
	out  []byte     // the answer; its memory is reused
	mute bool       // a write has failed
	asks bool       // the client has requested a stop
	push halfPushed // the partly received order
	room int64      // bytes reserved for the answer

	mu      sync.Mutex          // guards the fields that follow
	open    map[uint32]*request // unanswered requests, by number
	bytes   int                 // in the bodies of open
	leases  map[uint64]uint32   // unreleased leases of this connection, each with its request
	answers map[uint32]uint64   // the inverse of leases, for CANCEL
	prune   int                 // number of leases above which answered looks for released ones
	bye     bool                // the client has sent BYE
	jobs    []named             // by the connection's number minus 1; only the answering goroutine appends
}

// halfPushed is a partly received order.
type halfPushed struct {
	job         int
	epoch, rank int
	order       schedule.Batches
	bytes       int64 // taken from the engine's account
}

type request struct {
	frame
	taken     int64              // bytes reserved for the frame
	cancelled bool               // by a CANCEL
	stop      context.CancelFunc // while it is being answered
	copied    bool               // for COPIED: the temporary lease had not ended before
}

func newConn(s *Server, c *net.UnixConn) *conn {
	return &conn{s: s, c: c, r: bufio.NewReaderSize(c, 16<<10), queue: make(chan *request, s.limits.waiting),
		open: map[uint32]*request{}, leases: map[uint64]uint32{}, answers: map[uint32]uint64{}}
}

// serve runs the connection from its first frame to its end. ctx cancels requests, and reading cancels the wait for memory for a frame.
func (c *conn) serve(ctx, reading context.Context) {
	defer c.c.Close()
	if err := c.welcome(); err != nil {
		if !gone(err) {
			c.s.opts.Logger.Warn("client refused", "err", err)
			c.send(appendFailure(nil, 0, failureOf(err)))
		}
		return
	}
	defer c.leave()
	ctx, cancelAll := context.WithCancel(ctx)
	defer cancelAll()
	var end error
	read := make(chan struct{})
	go func() {
		defer close(read)
		end = c.read(reading)
		if !c.s.isClosing() || !gone(end) && !errors.Is(end, context.Canceled) { // otherwise the reader waited for memory
			cancelAll() // the client reads no further answers
		}
		close(c.queue)
	}()
	for q := range c.queue {
		c.handle(ctx, q)
		c.leaveRoom()
	}
	c.dropPush()
	<-read
	switch {
	case c.s.isClosing():
		c.send(appendFailure(nil, 0, failureOf(deliver.ErrClosing)))
	case end != nil && !gone(end):
		c.s.opts.Logger.Warn("connection ended", "pid", c.client.Pid, "err", end)
		c.send(appendFailure(nil, 0, failureOf(end)))
	}
}

// gone reports whether the client or Shutdown closed a connection, which is not an error.
func gone(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) || errors.Is(err, net.ErrClosed)
}

// leave ends the connection's use of the session.
func (c *conn) leave() {
	c.mu.Lock()
	var leases []uint64
	if c.bye {
		for lease := range c.leases {
			leases = append(leases, lease)
		}
	}
	c.mu.Unlock()
	c.client.Release(leases...)
	c.client.Disconnected()
	c.leaveJobs()
}

// welcome checks the client's credentials, reads HELLO, and answers it with the description of the job and the shared memory.
func (c *conn) welcome() error {
	pid, owner, err := peer(c.c, c.s.opts.AllowGroup)
	if err != nil {
		return err
	}
	c.owner = owner
	c.c.SetReadDeadline(time.Now().Add(c.s.limits.hello))
	f, err := readFrame(c.r, maxHello+8)
	if err != nil {
		return late(err, "HELLO", c.s.limits.hello)
	}
	if f.job != 0 {
		return broken("frame flags %#x: HELLO belongs to no job", f.job)
	}
	if f.kind != typeHello {
		return broken("the first frame must be HELLO, it has type %d", f.kind)
	}
	var said hello
	if err := jsonbytes.Unmarshal(f.body, &said); err != nil {
		return broken("HELLO: %v", err)
	}
	if said.Protocol != protocolVersion {
		return broken("server speaks protocol %d, client %d: install the client that belongs to this server", protocolVersion, said.Protocol)
	}
	client, info, err := c.s.engine.Attach(pid, said.Token)
	if err != nil {
		return fmt.Errorf("attach process %d: %w", pid, err)
	}
	if c.s.opts.Stoppable {
		info.Features = append(slices.Clone(info.Features), "stop")
	}
	if owner && c.s.opts.Diagnose != nil {
		info.Features = append(slices.Clone(info.Features), "diagnose")
	}
	info.Embedded = c.s.opts.Embedded
	b, err := appendJSON(nil, typeJSON, f.request, info)
	if err == nil {
		err = c.sendMemory(b, c.s.engine.MemoryFile())
	}
	if err != nil {
		client.Disconnected()
		return fmt.Errorf("answer HELLO of process %d: %w", pid, err)
	}
	if slices.Contains(said.Features, "lend") {
		client.Copies()
	}
	if c.others = slices.Contains(said.Features, "requested"); c.others {
		client.TakesOthers()
	}
	c.withParts = info.Parts && slices.Contains(said.Features, "parts")
	c.client, c.server = client, info.Server
	c.s.attached()
	c.s.opts.Logger.Debug("client attached", "pid", pid, "client", said.Client, "resumed", said.Token == info.Token)
	return nil
}

// late replaces a passed deadline by the protocol's error, which names the frame, and an interrupted stream by io.EOF.
func late(err error, frame string, limit time.Duration) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return broken("%s was not complete within %v", frame, limit)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return io.EOF
	}
	return err
}

// read reads frames until the stream ends, a frame breaks the protocol, or BYE comes.
func (c *conn) read(ctx context.Context) error {
	for {
		c.c.SetReadDeadline(time.Time{})
		if _, err := c.r.Peek(1); err != nil {
			return err
		}
		if err := c.observeRead(); err != nil {
			return err
		}
		if c.r.Buffered() == 0 {
			continue
		}
		if err := c.readOne(ctx); err != nil {
			return err
		}
	}
}

// readOne reads one frame, and carries out or queues its request.
func (c *conn) readOne(ctx context.Context) error {
	until := time.Now().Add(c.s.limits.frame)
	c.c.SetReadDeadline(until)
	f, rest, err := readHead(c.r, maxFrame)
	if err != nil {
		return late(err, "a frame", c.s.limits.frame)
	}
	taken, err := c.receive(ctx, f.kind, rest, until)
	if err != nil {
		return err
	}
	queued := false
	defer func() {
		if !queued {
			c.s.received.Give(taken)
		}
	}()
	if f.body, err = readBody(c.r, rest); err != nil {
		return late(err, "a frame", c.s.limits.frame)
	}
	if err := c.resolve(&f); err != nil {
		return err
	}
	q := &request{frame: f, taken: taken}
	switch f.kind {
	case typeRelease:
		return c.release(f.body)
	case typeCancel:
		return c.cancel(f.body)
	case typeReport:
		return c.report(f.job, f.body)
	case typeObserve:
		return c.observe(f.job, f.body)
	case typeEpochEnd:
		return c.epochEnd(f.job, f.body)
	case typeBye:
		c.mu.Lock()
		c.bye = true
		c.mu.Unlock()
		return io.EOF
	case typeCopied:
		err = c.copied(q)
	default:
		err = c.enqueue(q)
	}
	queued = err == nil
	return err
}

// enqueue queues a request to be answered.
func (c *conn) enqueue(q *request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[q.request] != nil {
		return broken("request %d was sent again before its answer", q.request)
	}
	if len(c.open) >= c.s.limits.waiting || c.bytes+len(q.body) > c.s.limits.bytes {
		return broken("too many unanswered requests: %d of %d bytes, and another one of %d bytes", len(c.open), c.bytes, len(q.body))
	}
	c.open[q.request] = q
	c.bytes += len(q.body)
	c.queue <- q // never blocks: it has room for limits.waiting requests
	return nil
}

// copied ends a temporary lease at once, because the request in flight may wait for its memory. The answer to COPIED is queued.
func (c *conn) copied(q *request) error {
	loan, err := decodeCopied(q.body)
	if err != nil {
		return err
	}
	q.copied = c.client.Copied(loan)
	return c.enqueue(q)
}

// release carries out RELEASE.
func (c *conn) release(body []byte) error {
	leases, err := decodeRelease(body)
	if err != nil {
		return err
	}
	c.mu.Lock()
	for _, lease := range leases {
		c.forget(lease)
	}
	c.mu.Unlock()
	c.client.Release(leases...)
	return nil
}

// forget removes a lease from the notes. The caller holds c.mu.
func (c *conn) forget(lease uint64) {
	if q, ok := c.leases[lease]; ok {
		delete(c.leases, lease)
		if c.answers[q] == lease {
			delete(c.answers, q)
		}
	}
}

// cancel carries out CANCEL. It cancels the named requests that are open, and releases the leases of the answered ones.
func (c *conn) cancel(body []byte) error {
	requests, err := decodeList(body, "CANCEL")
	if err != nil {
		return err
	}
	var leases []uint64
	c.mu.Lock()
	for _, n := range requests {
		if q := c.open[n]; q != nil {
			q.cancelled = true
			if q.stop != nil {
				q.stop()
			}
		} else if lease, ok := c.answers[n]; ok {
			c.forget(lease)
			leases = append(leases, lease)
		}
	}
	c.mu.Unlock()
	c.client.Release(leases...)
	return nil
}

// report passes the client's report of its times to the engine. A report for a rank that another server serves does not end the connection.
func (c *conn) report(job int, body []byte) error {
	r, err := decodeReport(body)
	if err != nil {
		return err
	}
	r.Pid, r.Job = c.client.Pid, job
	if err := c.s.engine.Report(r); err != nil {
		c.s.opts.Logger.Debug("report ignored", "pid", c.client.Pid, "err", err)
	}
	return nil
}

// send writes one or more frames. After a failed write it writes nothing more. The reader continues to read frames that have arrived, because they may
// release leases.
func (c *conn) send(b []byte) error {
	if c.mute {
		return net.ErrClosed
	}
	c.c.SetWriteDeadline(time.Now().Add(c.s.limits.write))
	_, err := c.c.Write(b)
	if err != nil {
		c.mute = true
		c.c.CloseRead()
	}
	return err
}

// sendMemory writes a frame, and sends a file descriptor with its first byte.
func (c *conn) sendMemory(b []byte, memory *os.File) error {
	raw, err := memory.SyscallConn() // Fd() would make the file blocking
	if err != nil {
		return err
	}
	c.c.SetWriteDeadline(time.Now().Add(c.s.limits.write))
	n := 0
	controlErr := raw.Control(func(fd uintptr) {
		n, _, err = c.c.WriteMsgUnix(b, unix.UnixRights(int(fd)), nil)
	})
	if err := firstOf(controlErr, err); err != nil || n == len(b) {
		return err // an empty write would fail if the client has closed since
	}
	_, err = c.c.Write(b[n:])
	return err
}
