package server

import (
	"context"
	"testing"
	"time"
)

func TestIdle(t *testing.T) {
	e := testEngine(t, nil)
	s, err := Listen(e, Options{Path: t.TempDir() + "/s.sock", Idle: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	c := attach(t, s, "")
	s.left() // a timer that fired just before the client came
	select {
	case <-s.Idle():
		t.Fatal("idle beside a client")
	default:
	}
	s.mu.Lock()
	s.opts.Idle = time.Millisecond // what the timer is set to when the client goes
	s.mu.Unlock()
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

// A server that ends with its last client does not end before the first one: connections that do not attach are no clients.
func TestIdleWaitsForTheFirstClient(t *testing.T) {
	s, err := Listen(testEngine(t, nil), Options{Path: t.TempDir() + "/s.sock", Idle: 1, First: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	wait := func() time.Duration {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.idleAfter()
	}
	for started := false; !started; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		started = s.alone != nil
		s.mu.Unlock()
	}
	if got := wait(); got < 50*time.Minute { // also what the timer is set to when a connection goes that did not attach
		t.Errorf("without a client so far it ends in %v", got)
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
