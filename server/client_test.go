package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"lcache/engine"
	"lcache/internal/serve/schedule"
	"lcache/internal/serve/status"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
)

const (
	testSamples = 120
	testBatch   = 8
)

func sampleBytes(i int) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "sample %03d;", i), i%7*40)
}

// testEngine is an engine over a cache of a small dataset; it is closed, and everything it started has ended, when the test is over.
func testEngine(t testing.TB, change func(*engine.Options)) *engine.Engine {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
	dir, root := t.TempDir(), testenv.SourceDir(t)
	for i := range testSamples {
		class := filepath.Join(root, fmt.Sprintf("class-%d", i/60))
		if err := os.MkdirAll(class, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(class, fmt.Sprintf("%03d.bin", i)), sampleBytes(i), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	direct := os.Getenv("LCACHE_DIRECT")
	o := engine.Options{Dirs: []string{filepath.Join(dir, "cache")}, IO: cache.IO{Engine: os.Getenv("LCACHE_IO"), Direct: direct}}
	ctx := context.Background()
	_, err := ingest.Run(ctx, ingest.Options{Source: root, Dirs: o.Dirs, IO: o.IO, Block: 128 << 10,
		Job: schedule.Job{Recipe: "torch.distributed_sampler", Seed: "7", Epochs: 3, BatchSize: testBatch, World: 2}})
	if err != nil {
		t.Fatalf("ingest: %v", err)
	}
	if change != nil {
		change(&o)
	}
	e, err := engine.Open(ctx, o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		if err := e.Close(ctx); err != nil {
			t.Errorf("close the engine: %v", err)
		}
	})
	return e
}

// start serves e; the server is shut down when the test is over.
func start(t testing.TB, e *engine.Engine, change func(*Server)) *Server {
	t.Helper()
	s, err := Listen(e, Options{Path: filepath.Join(t.TempDir(), "s.sock")})
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(s)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return s
}

// client speaks the protocol, and breaks it when a test wants that.
type client struct {
	t      testing.TB
	c      *net.UnixConn
	r      *bufio.Reader
	next   uint32
	info   status.Hello
	memory *os.File
}

func dial(t testing.TB, path string) *client {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(30 * time.Second)) // a hang becomes a failure
	t.Cleanup(func() { c.Close() })
	return &client{t: t, c: c.(*net.UnixConn), r: bufio.NewReader(c)}
}

// attach connects and sends HELLO.
func attach(t testing.TB, s *Server, token string, features ...string) *client {
	t.Helper()
	c := dial(t, s.Path())
	said, err := json.Marshal(hello{Protocol: protocolVersion, Client: "test", Token: token, Features: features})
	if err != nil {
		t.Fatal(err)
	}
	c.write(finish(append(begin(nil, typeHello, 1), said...), 0))
	b, oob := make([]byte, 64<<10), make([]byte, unix.CmsgSpace(4*4))
	n, oobn, _, _, err := c.c.ReadMsgUnix(b, oob)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(messages) != 1 {
		t.Fatalf("%d control messages with the answer to HELLO, want 1; %v", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		t.Fatalf("descriptors %v, %v", fds, err)
	}
	c.memory = os.NewFile(uintptr(fds[0]), "memory")
	t.Cleanup(func() { c.memory.Close() })
	f := read(t, b[:n])
	if f.kind != typeJSON || f.request != 1 {
		t.Fatalf("HELLO was answered with type %d request %d", f.kind, f.request)
	}
	if err := json.Unmarshal(f.body, &c.info); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *client) write(b []byte) {
	c.t.Helper()
	if _, err := c.c.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// send sends a request and returns its number.
func (c *client) send(kind uint8, body []byte) uint32 {
	c.t.Helper()
	c.next++
	c.write(finish(append(begin(nil, kind, c.next), body...), 0))
	return c.next
}

func (c *client) receive() frame {
	c.t.Helper()
	f, err := readFrame(c.r, maxFrame)
	if err != nil {
		c.t.Fatalf("read an answer: %v", err)
	}
	return f
}

// ask sends a request and returns its answer.
func (c *client) ask(kind uint8, body []byte) frame {
	c.t.Helper()
	n := c.send(kind, body)
	f := c.receive()
	if f.request != n {
		c.t.Fatalf("got an answer to request %d, asked %d", f.request, n)
	}
	return f
}

// fails takes the ERROR that comes next.
func (c *client) fails() failure {
	c.t.Helper()
	f := c.receive()
	var said failure
	if f.kind != typeError {
		c.t.Fatalf("got type %d, want an ERROR", f.kind)
	}
	if err := json.Unmarshal(f.body, &said); err != nil {
		c.t.Fatal(err)
	}
	return said
}

// end waits until the server has closed the connection.
func (c *client) end() {
	c.t.Helper()
	if b, err := io.ReadAll(c.r); len(b) > 0 || err != nil && !errors.Is(err, unix.ECONNRESET) {
		c.t.Fatalf("got %x, %v, want the end", b, err)
	}
}

// hangup waits until the server has closed the connection, without reading earlier answers.
func (c *client) hangup() {
	c.t.Helper()
	raw, err := c.c.SyscallConn()
	if err != nil {
		c.t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(p, 20_000)
		for err == unix.EINTR {
			n, err = unix.Poll(p, 20_000)
		}
		if n != 1 || p[0].Revents&unix.POLLHUP == 0 {
			c.t.Fatalf("the server has not closed the connection: %v, events %#x", err, p[0].Revents)
		}
	})
}

// held returns how many bytes this process holds, by the server's count. Earlier RELEASE and CANCEL were carried out by then.
func (c *client) held() int64 {
	c.t.Helper()
	// The status lists ranks, and so the process, after it has requested a rank's chunk.
	c.send(typeRelease, releaseBody(c.batch(c.ask(typeChunk, columnOf(0, 0, 0))).lease))
	var status status.Document
	if err := json.Unmarshal(c.ask(typeStatus, nil).body, &status); err != nil {
		c.t.Fatal(err)
	}
	held := int64(0)
	for _, r := range status.Jobs[0].Ranks {
		held = max(held, r.LeasedBytes)
	}
	return held
}

type batch struct {
	lease   uint64
	indices []uint32
	bytes   [][]byte
}

// batch decodes a BATCH and reads its samples from the shared memory.
func (c *client) batch(f frame) batch {
	c.t.Helper()
	if f.kind != typeBatch {
		c.t.Fatalf("got type %d: %s", f.kind, f.body)
	}
	n := binary.LittleEndian.Uint32(f.body[8:])
	if len(f.body) != batchHead+20*int(n) {
		c.t.Fatalf("a BATCH of %d samples has %d bytes", n, len(f.body))
	}
	return c.columns(binary.LittleEndian.Uint64(f.body), f.body[batchHead:], n)
}

// columns decodes what follows the head of a BATCH or LOAN.
func (c *client) columns(lease uint64, columns []byte, n uint32) batch {
	c.t.Helper()
	b := batch{lease: lease}
	r := body{b: columns}
	offsets, lengths := r.column(2*uint64(n)), r.column(uint64(n))
	b.indices = r.column(uint64(n))
	for i := range lengths {
		data := make([]byte, lengths[i])
		if _, err := c.memory.ReadAt(data, int64(offsets[2*i])|int64(offsets[2*i+1])<<32); err != nil {
			c.t.Fatal(err)
		}
		b.bytes = append(b.bytes, data)
	}
	for i, label := range r.column(uint64(n)) {
		if want := b.indices[i] / 60; label != want {
			c.t.Errorf("index %d: label %d, want %d", b.indices[i], label, want)
		}
	}
	return b
}

func (b batch) check(t testing.TB) {
	t.Helper()
	for i, index := range b.indices {
		if !bytes.Equal(b.bytes[i], sampleBytes(int(index))) {
			t.Errorf("index %d: %d bytes that are not the source's", index, len(b.bytes[i]))
		}
	}
}

func columnOf(v ...uint32) []byte { return appendColumn(nil, v) }

func getBody(indices ...uint32) []byte {
	return append(columnOf(nowhere, nowhere, nowhere, uint32(len(indices))), columnOf(indices...)...)
}

func releaseBody(lease uint64) []byte {
	return binary.LittleEndian.AppendUint64(columnOf(1), lease)
}

// works checks that a server works: a new client gets a right sample.
func works(t testing.TB, s *Server) {
	t.Helper()
	c := attach(t, s, "")
	c.batch(c.ask(typeGet, getBody(3))).check(t)
	c.send(typeBye, nil)
	c.end()
	c.c.Close()
	c.memory.Close()
}
