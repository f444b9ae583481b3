package peer

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"lcache/internal/testenv"
	"lcache/sample"
)

// A raw peer follows gRPC, and nothing else.

// rawServer serves a function as Fetch and as Manifest.
func rawServer(t *testing.T, serve func(grpc.ServerStream) error) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.ForceServerCodecV2(codec{}))
	handle := func(_ any, stream grpc.ServerStream) error { return serve(stream) }
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "lcache.Peer", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{
		{StreamName: "Fetch", Handler: handle, ServerStreams: true, ClientStreams: true}, {StreamName: "Manifest", Handler: handle, ServerStreams: true, ClientStreams: true}}}, nil)
	var served sync.WaitGroup
	served.Go(func() { s.Serve(l) })
	t.Cleanup(func() { s.Stop(); served.Wait() })
	return l.Addr().String()
}

// rawStream opens a stream Fetch.
func rawStream(t *testing.T, address string) grpc.ClientStream {
	t.Helper()
	return rawStreamOf(t, address, &fetchDesc, fetchMethod)
}

// rawStreamOf opens a stream of any method.
func rawStreamOf(t *testing.T, address string, desc *grpc.StreamDesc, method string) grpc.ClientStream {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx := metadata.AppendToOutgoingContext(t.Context(), metaProtocol, Protocol, metaPeer, "raw", metaDataset, "01020300000000000000000000000000")
	stream, err := conn.NewStream(ctx, desc, method)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// A consumer that takes nothing loses its connection, and the server keeps nothing for it, whatever it sends.
func TestConsumerThatReadsNothing(t *testing.T) {
	t.Parallel()
	for _, garbage := range []bool{false, true} {
		s := &shelf{n: 10_000, size: func(sample.Index) int { return 1 << 20 }}
		server, address := serve(t, s, ServerOptions{Window: 64 << 10, Stuck: time.Second})
		stream := rawStream(t, address)
		for id := range uint32(MostLists) {
			if err := stream.SendMsg(plain((&list{id + 1, 60_000, indices(0, 100)}).encode())); err != nil {
				t.Fatal(err)
			}
		}
		if garbage {
			stream.SendMsg(plain([]byte("garbage"))) // the stream may have ended
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			server.Remove(dataset) // it waits for the streams
		}()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatal("the stream did not end")
		}
		released(t, s)
		if n := s.asked.Load(); n > 3*MostLists {
			t.Errorf("%d samples of 1 MiB were brought for a consumer that takes nothing", n)
		}
	}
}

// Requests wait for a free place on their stream.
func TestMoreRequestsThanPlaces(t *testing.T) {
	t.Parallel()
	s := &shelf{n: 100, size: func(sample.Index) int { return 100 }}
	_, address := serve(t, s, ServerOptions{})
	c := client(t, s.n, ClientOptions{Late: time.Minute})
	var all sync.WaitGroup
	for range 3 * MostLists {
		all.Go(func() {
			for k := range testenv.Pick(100, 20) {
				if missing, err := c.Fetch(t.Context(), address, indices(k%100, 1), newHeap()); missing != 0 || err != nil {
					t.Errorf("%d missing, %v", missing, err)
					return
				}
			}
		})
	}
	all.Wait()
	// A cancelled request keeps its place only until the peer has handled its CANCEL.
	for range MostLists {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		c.Fetch(ctx, address, indices(0, 100), newHeap())
	}
	if missing, err := c.Fetch(t.Context(), address, indices(0, 10), newHeap()); missing != 0 || err != nil {
		t.Errorf("after requests that were given up: %d missing, %v", missing, err)
	}
}

// A hung peer is late also for requests whose own deadlines are shorter.
func TestLateBeyondDeadlines(t *testing.T) {
	t.Parallel()
	s := &shelf{n: 100, size: func(sample.Index) int { return 100 }, hang: make(chan struct{})}
	_, address := serve(t, s, ServerOptions{})
	silent := rawServer(t, func(stream grpc.ServerStream) error { <-stream.Context().Done(); return nil })
	for name, at := range map[string]string{"hung disk": address, "silent": silent} {
		c := client(t, s.n, ClientOptions{Late: time.Second})
		for end := time.Now().Add(time.Minute); ; {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			_, err := c.Fetch(ctx, at, indices(0, 10), newHeap())
			cancel()
			if errors.Is(err, ErrLate) {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s: after a minute the error is %v", name, err)
			}
		}
	}
	close(s.hang)
}

// A slow link is not a silent peer: bytes arrive, though no frame is complete.
func TestSlowLink(t *testing.T) {
	t.Parallel()
	s := &shelf{n: 10, size: func(sample.Index) int { return 1_900_000 }}
	_, address := serve(t, s, ServerOptions{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		a, err := l.Accept()
		if err != nil {
			return
		}
		b, err := net.Dial("tcp", address)
		if err != nil {
			return
		}
		// The wrappers hide ReadFrom, which would splice: Go keeps the pipes of that open for later, and they look leaked.
		go io.Copy(struct{ io.Writer }{b}, a)
		for { // 0.4 MB/s
			if _, err := io.CopyN(struct{ io.Writer }{a}, b, 8_000); err != nil {
				a.Close()
				b.Close()
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	h := newHeap()
	if missing, err := client(t, s.n, ClientOptions{Late: 3 * time.Second}).Fetch(t.Context(), l.Addr().String(), indices(0, 1), h); missing != 0 || err != nil {
		t.Errorf("%d missing, %v", missing, err)
	}
}

// A sink that takes its time does not make its peer late.
func TestSlowSink(t *testing.T) {
	t.Parallel()
	s := &shelf{n: 10, size: func(sample.Index) int { return 1000 }}
	_, address := serve(t, s, ServerOptions{})
	late := time.Second
	c := client(t, s.n, ClientOptions{Late: late})
	for end := time.Now().Add(time.Minute); fetch(c, t.Context(), address, indices(0, 1), newHeap()) != nil; { // on a busy machine it may take long to connect
		if time.Now().After(end) {
			t.Fatal("no connection in a minute")
		}
	}
	h := newHeap()
	h.block = make(chan struct{})
	time.AfterFunc(3*late, func() { close(h.block) })
	if missing, err := c.Fetch(t.Context(), address, indices(0, 10), h); missing != 0 || err != nil {
		t.Errorf("%d missing, %v", missing, err)
	}
}

// After Remove the home is not called any longer, and requests end.
func TestRemoveEndsStreams(t *testing.T) {
	t.Parallel()
	s := &shelf{n: 100, size: func(sample.Index) int { return 100 }, hang: make(chan struct{})}
	defer close(s.hang)
	server, address := serve(t, s, ServerOptions{})
	c := client(t, s.n, ClientOptions{Late: time.Minute})
	done := make(chan error, 1)
	go func() { done <- fetch(c, t.Context(), address, indices(0, 10), newHeap()) }()
	for s.asked.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	server.Remove(dataset)
	asked := s.asked.Load()
	if err := <-done; !errors.Is(err, ErrRefused) {
		t.Errorf("the open request: %v", err)
	}
	if err := fetch(c, t.Context(), address, indices(0, 10), newHeap()); err == nil || s.asked.Load() != asked {
		t.Errorf("a later request: %v, the home was asked %d times", err, s.asked.Load()-asked)
	}
}

// Remove does not wait for a consumer that opens a stream Manifest and sends nothing.
func TestRemoveDoesNotWaitForSilentConsumers(t *testing.T) {
	t.Parallel()
	s := &shelf{n: 1, content: make([]byte, 10)}
	server, address := serve(t, s, ServerOptions{})
	raw := rawStreamOf(t, address, &manifestDesc, manifestMethod)
	if err := client(t, 1, ClientOptions{}).Manifest(t.Context(), address, 0, 10, func(uint64, []byte) error { return nil }); err != nil { // both streams are there
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.Remove(dataset)
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("Remove waits")
	}
	var f frame
	if err := raw.RecvMsg(&f); err == nil {
		t.Error("the stream goes on")
	}
}

// What a peer sends without being asked never reaches the sink.
func TestUnrequestedPieces(t *testing.T) {
	t.Parallel()
	for name, entries := range map[string][]entry{
		"another sample":          {{index: 77, why: NotKept}},
		"absent twice":            {{index: 1, why: NotKept}, {index: 1, why: NotKept}},
		"empty twice":             {{index: 1}, {index: 1}},
		"an empty piece far away": {{index: 1, offset: 12345}},
		"a piece too early":       {{index: 1, offset: 5, length: 1}},
	} {
		address := rawServer(t, func(stream grpc.ServerStream) error {
			var f frame
			if err := stream.RecvMsg(&f); err != nil {
				return err
			}
			b := encodeParcel(1, entries)
			for _, e := range entries {
				b = append(b, make([]byte, e.length)...)
			}
			stream.SendMsg(plain(b))
			return stream.SendMsg(plain(encodeDone(1)))
		})
		h := newHeap()
		if _, err := client(t, 100, ClientOptions{}).Fetch(t.Context(), address, indices(0, 10), h); !errors.Is(err, ErrFrame) || h.parts > 1 {
			t.Errorf("%s: %d pieces came, %v", name, h.parts, err)
		}
	}
	nothing := rawServer(t, func(stream grpc.ServerStream) error {
		var f frame
		if err := stream.RecvMsg(&f); err != nil {
			return err
		}
		stream.SendMsg(plain(encodeDone(1)))
		<-stream.Context().Done()
		return nil
	})
	if missing, err := client(t, 100, ClientOptions{}).Fetch(t.Context(), nothing, indices(0, 10), newHeap()); missing != 10 || err != nil {
		t.Errorf("a peer that ends at once: %d missing, %v", missing, err)
	}
}

func TestCutManifests(t *testing.T) {
	t.Parallel()
	piece := func(offset, total uint64, n int) []byte {
		return append(encodePiece(offset, total, n), make([]byte, n)...)
	}
	for name, pieces := range map[string][][]byte{
		"it ends early":      {piece(0, 1000, 100)},
		"its length changes": {piece(0, 1000, 100), piece(100, 200, 100)},
		"it has a gap":       {piece(0, 1000, 100), piece(200, 1000, 800)},
	} {
		address := rawServer(t, func(stream grpc.ServerStream) error {
			for _, p := range pieces {
				if err := stream.SendMsg(plain(p)); err != nil {
					return err
				}
			}
			return nil
		})
		if err := client(t, 1, ClientOptions{}).Manifest(t.Context(), address, 0, 1<<20, func(uint64, []byte) error { return nil }); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A client may be closed at any moment.
func TestCloseAtAnyMoment(t *testing.T) {
	t.Parallel()
	s := &shelf{n: 1000, size: func(sample.Index) int { return 2000 }}
	_, address := serve(t, s, ServerOptions{})
	for round := range testenv.Pick(100, 20) {
		c := NewClient(dataset, s.n, ClientOptions{})
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for fetch(c, context.Background(), address, indices(0, 500), newHeap()) == nil {
				}
			})
		}
		all.Go(func() { c.Forget(address) })
		time.Sleep(time.Duration(round) * 100 * time.Microsecond) // another moment each time
		c.Close()
		all.Wait()
	}
	released(t, s)
}
