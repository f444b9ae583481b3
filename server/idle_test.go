package server

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestIdle(t *testing.T) {
	e := testEngine(t, nil)
	s, err := Listen(e, Options{Path: t.TempDir() + "/s.sock", Idle: time.Millisecond, First: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	c := attach(t, s, "")
	s.left() // a timer that fired just before the client came
	select {
	case <-s.Idle():
		t.Fatal("the server counts as idle while a client is connected")
	default:
	}
	c.c.Close()
	<-s.Idle() // the test's own limit is the deadline
	if err := s.Shutdown(context.Background()); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	if err := <-served; err != nil {
		t.Errorf("serve: %v", err)
	}
}

func TestIdleWithoutAnyClient(t *testing.T) {
	s, err := Listen(testEngine(t, nil), Options{Path: t.TempDir() + "/s.sock", Idle: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	<-s.Idle()
	if err := s.Shutdown(context.Background()); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	if err := <-served; err != nil {
		t.Errorf("serve: %v", err)
	}
}

// A server that ends with its last client does not end before the first one. Connections that do not attach do not count as clients.
func TestIdleWaitsForTheFirstClient(t *testing.T) {
	ends := make(chan time.Time, 10)
	s, err := Listen(testEngine(t, nil), Options{Path: t.TempDir() + "/s.sock", Idle: 1, First: time.Hour, Ends: func(at time.Time) { ends <- at }})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	if at := <-ends; time.Until(at) < 50*time.Minute { // the test's own limit is the deadline
		t.Errorf("without a client so far it ends in %v", time.Until(at))
	}
	stranger, err := net.Dial("unix", s.Path())
	if err != nil {
		t.Fatal(err)
	}
	if at := <-ends; !at.IsZero() {
		t.Errorf("it ends in %v while somebody is connected", time.Until(at))
	}
	stranger.Close()
	if at := <-ends; time.Until(at) < 50*time.Minute {
		t.Errorf("after a connection that did not attach it ends in %v", time.Until(at))
	}
	c := attach(t, s, "")
	select {
	case <-s.Idle():
		t.Error("it ended before its first client")
	default:
	}
	c.c.Close()
	<-s.Idle() // the test's own limit is the deadline
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// A client that closes as soon as it has the answer to HELLO has attached. A failure to send the answer is not an error, so that the server notes its first
// client.
func TestClientClosesOnTheAnswerToHello(t *testing.T) {
	memory, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	for try := range 500 {
		ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		server, client := connOf(t, ends[0]), connOf(t, ends[1])
		closed := make(chan error, 1)
		go func() {
			_, err := client.Read(make([]byte, 64))
			closed <- errors.Join(err, client.Close())
		}()
		sent := newConn(&Server{limits: defaultLimits}, server).sendMemory([]byte("an answer"), memory)
		if err := <-closed; err != nil {
			t.Fatal(err)
		}
		server.Close()
		if sent != nil {
			t.Fatalf("try %d: the client has the whole answer, and sending it was an error: %v", try, sent)
		}
	}
}

// connOf makes a connection of one end of a socket pair.
func connOf(t *testing.T, fd int) *net.UnixConn {
	t.Helper()
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	return c.(*net.UnixConn)
}
