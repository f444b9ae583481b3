package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"lcache/sample"
)

// eventually waits until a condition is true.
func eventually(t *testing.T, what string, isSo func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !isSo(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after a minute: %s", what)
		}
	}
}

func (c *connections) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

// TestIdleConnections: a connection without requests is closed, one with a request is not, and the next request connects again.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	s := &shelf{n: 100, size: func(sample.Index) int { return 100 }}
	server, address := serve(t, s, ServerOptions{})
	idle := 50 * time.Millisecond
	c := client(t, s.n, ClientOptions{Idle: idle})
	for range 3 {
		if missing, err := c.Fetch(t.Context(), address, indices(0, 10), newHeap()); missing != 0 || err != nil {
			t.Fatal(missing, err)
		}
		eventually(t, "the connection is open", func() bool { return server.conns.count() == 0 })
	}
	hangs := &shelf{n: 100, size: s.size, hang: make(chan struct{})}
	server.Add(dataset, hangs)
	time.AfterFunc(5*idle, func() { close(hangs.hang) })
	if missing, err := c.Fetch(t.Context(), address, indices(0, 10), newHeap()); missing != 0 || err != nil {
		t.Errorf("a request that takes longer than an idle connection lives: %d missing, %v", missing, err)
	}
}

// TestStreamsWithoutRequests: a server ends streams on which nothing is asked, whatever their consumer does.
func TestStreamsWithoutRequests(t *testing.T) {
	t.Parallel()
	_, address := serve(t, &shelf{n: 1}, ServerOptions{Idle: 50 * time.Millisecond})
	fetch, manifest := rawStream(t, address), rawStreamOf(t, address, &manifestDesc, manifestMethod)
	for name, receive := range map[string]func(any) error{"Fetch": fetch.RecvMsg, "Manifest": manifest.RecvMsg} {
		if err := receive(new(frame)); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("%s ended with %v", name, err)
		}
	}
}

// TestServerBounds: frames beyond the bounds end their stream, and the next stream works.
func TestServerBounds(t *testing.T) {
	t.Parallel()
	s := &shelf{n: 100, size: func(sample.Index) int { return 100 }, hang: make(chan struct{})}
	defer close(s.hang)
	_, address := serve(t, s, ServerOptions{})
	lists := func(n int, of []sample.Index) (frames [][]byte) {
		for id := range n {
			frames = append(frames, (&list{uint32(id), 60_000, of}).encode())
		}
		return frames
	}
	cut := lists(1, indices(0, 10))[0]
	binary.LittleEndian.PutUint32(cut[24:], MostIndices) // it has fewer than it announces
	for name, c := range map[string]struct {
		frames [][]byte
		code   codes.Code
	}{
		"no samples":          {lists(1, nil), codes.InvalidArgument},
		"4,097 samples":       {lists(1, make([]sample.Index, MostIndices+1)), codes.ResourceExhausted},
		"fewer than it says":  {[][]byte{seal(cut)}, codes.InvalidArgument},
		"a sample beyond":     {lists(1, []sample.Index{100}), codes.InvalidArgument},
		"65 LISTs":            {lists(MostLists+1, indices(0, 1)), codes.InvalidArgument},
		"one id twice":        {append(lists(1, indices(0, 1)), lists(1, indices(0, 1))...), codes.InvalidArgument},
		"a frame of 3 MiB":    {[][]byte{make([]byte, 3<<20)}, codes.ResourceExhausted},
		"an empty frame":      {[][]byte{{}}, codes.InvalidArgument},
		"garbage":             {[][]byte{[]byte("garbage that is no frame of lcache at all")}, codes.InvalidArgument},
		"a server's frame":    {[][]byte{encodeDone(1)}, codes.InvalidArgument},
		"a frame with a flaw": {[][]byte{append(encodeCancel(1), 0)}, codes.InvalidArgument},
	} {
		stream := rawStream(t, address)
		for _, f := range c.frames {
			if err := stream.SendMsg(plain(f)); err != nil && !errors.Is(err, io.EOF) { // EOF: RecvMsg has the reason
				t.Fatal(err)
			}
		}
		if err := stream.RecvMsg(new(frame)); status.Code(err) != c.code {
			t.Errorf("%s: the stream ended with %v, want %v", name, err, c.code)
		}
	}
}

// TestLargeFramesFromPeers: a consumer takes no frame beyond the bound.
func TestLargeFramesFromPeers(t *testing.T) {
	t.Parallel()
	address := rawServer(t, func(stream grpc.ServerStream) error {
		stream.SendMsg(plain(append(encodeParcel(1, []entry{{index: 1, length: MostFrame}}), make([]byte, MostFrame)...)))
		<-stream.Context().Done()
		return nil
	})
	h := newHeap()
	if _, err := client(t, 100, ClientOptions{Late: 10 * time.Second}).Fetch(t.Context(), address, indices(0, 10), h); err == nil || h.parts > 0 {
		t.Errorf("%d pieces came, %v", h.parts, err)
	}
}

// strangers are what connects and is not lcache. Each writes something and returns; its connection stays open for a while.
var strangers = map[string]func(net.Conn){
	"silent":          func(net.Conn) {},
	"garbage":         func(c net.Conn) { c.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")) },
	"half a greeting": func(c net.Conn) { c.Write([]byte("PRI * HTTP/2.0\r\n")) },
	"a huge frame": func(c net.Conn) {
		c.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\x00\x00\x00\x00\x00\x01"))
	},
	"half a frame": func(c net.Conn) {
		c.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x40\x00\x01\x04\x00\x00\x00\x01headers that never end"))
	},
	"one byte at a time": func(c net.Conn) {
		go func() {
			for _, b := range []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") {
				if _, err := c.Write([]byte{b}); err != nil {
					return
				}
				time.Sleep(time.Second) // slower than the server waits
			}
		}()
	},
}

// TestStrangers: whatever connects, a peer is served, and afterwards the server's memory is what it was.
func TestStrangers(t *testing.T) {
	connects := 150
	if n, err := strconv.Atoi(os.Getenv("LCACHE_CONNECTS")); err == nil {
		connects = n
	}
	s := &shelf{n: 100, size: func(sample.Index) int { return 100_000 }}
	server, address := serve(t, s, ServerOptions{})
	c := client(t, s.n, ClientOptions{Late: 20 * time.Second})
	works := func() bool {
		missing, err := c.Fetch(context.Background(), address, indices(0, 100), newHeap())
		return missing == 0 && err == nil
	}
	eventually(t, "no answer at first", works)
	before := heapBytes()
	var open []net.Conn
	for n := 0; n < connects; {
		for _, write := range strangers {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			write(conn)
			open = append(open, conn)
			n++
		}
		if len(open) > 3*mostConnections { // the server has closed all but its bound
			open[0].Close()
			open = open[1:]
		}
		if n := server.conns.count(); n > mostConnections {
			t.Fatalf("%d connections are open", n)
		}
	}
	during := heapBytes()
	c.Forget(address) // connect again, among the strangers
	eventually(t, "no answer among strangers", works)
	for _, conn := range open {
		conn.Close()
	}
	eventually(t, "strangers are still connected", func() bool { return server.conns.count() <= 1 })
	eventually(t, "no answer afterwards", works)
	after := heapBytes()
	t.Logf("%d connects: heap %.1f MB before, %.1f MB at the height, %.1f MB afterwards", connects, float64(before)/1e6, float64(during)/1e6, float64(after)/1e6)
	if after > before+8<<20 || during > before+64<<20 {
		t.Errorf("heap of %d bytes before, %d at the height, %d afterwards", before, during, after)
	}
}

// TestTooManyConnections: connections beyond the bound are closed and reported.
func TestTooManyConnections(t *testing.T) {
	t.Parallel()
	const more = 5
	var refused atomic.Int64
	_, address := serve(t, &shelf{n: 1}, ServerOptions{Refused: func(from net.Addr, err error) {
		if from == nil || !strings.Contains(err.Error(), strconv.Itoa(mostConnections)) {
			t.Errorf("refused from %v: %v", from, err)
		}
		refused.Add(1)
	}})
	for range mostConnections + more {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	eventually(t, "not all connections beyond the bound are reported", func() bool { return refused.Load() == more })
}

// heapBytes returns what is in use after a collection. Pools give up what they have by the second one.
func heapBytes() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
