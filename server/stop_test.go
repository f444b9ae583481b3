package server

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestStop: a client of the server's own user may stop a server that allows it. It gets its answer, and the channel closes; a second time does nothing.
func TestStop(t *testing.T) {
	s := start(t, testEngine(t, nil), func(s *Server) { s.opts.Stoppable = true })
	c := attach(t, s, "")
	if !slices.Contains(c.info.Features, "stop") {
		t.Errorf("features %v", c.info.Features)
	}
	select {
	case <-s.Asked():
		t.Fatal("the server was asked to stop before any request")
	default:
	}
	for range 2 {
		if f := c.ask(typeStop, []byte(c.info.Server)); f.kind != typeOK {
			t.Errorf("the answer has type %d: %s", f.kind, f.body)
		}
	}
	<-s.Asked() // the test's own limit is the deadline
}

// TestEmbedded: a client learns whether a training process started the server.
func TestEmbedded(t *testing.T) {
	for _, embedded := range []bool{false, true} {
		s := start(t, testEngine(t, nil), func(s *Server) { s.opts.Embedded = embedded })
		if got := attach(t, s, "").info.Embedded; got != embedded {
			t.Errorf("got %v, want %v", got, embedded)
		}
	}
}

// TestStopNamesTheServer: a STOP without the server's identity, or with an earlier run's identity, is refused with an error that says so. The connection continues.
func TestStopNamesTheServer(t *testing.T) {
	s := start(t, testEngine(t, nil), func(s *Server) { s.opts.Stoppable = true })
	c := attach(t, s, "")
	for body, want := range map[string]string{
		"":                  "STOP has no body",
		"0123456789abcdef":  "STOP names an earlier run",
		c.info.Server + " ": "STOP names an earlier run",
	} {
		f := c.ask(typeStop, []byte(body))
		if f.kind != typeError || !strings.Contains(string(f.body), `"argument"`) || !strings.Contains(string(f.body), want) {
			t.Errorf("STOP %q: the answer has type %d: %s", body, f.kind, f.body)
		}
	}
	select {
	case <-s.Asked():
		t.Error("the server was asked to stop by a refused request")
	default:
	}
	c.batch(c.ask(typeGet, getBody(1)))
}

// TestStopRefused: a server that is a part of another program does not offer STOP, and refuses it. The connection continues.
func TestStopRefused(t *testing.T) {
	s := start(t, testEngine(t, nil), nil)
	c := attach(t, s, "")
	if slices.Contains(c.info.Features, "stop") {
		t.Errorf("features %v", c.info.Features)
	}
	if f := c.ask(typeStop, []byte(c.info.Server)); f.kind != typeError || !strings.Contains(string(f.body), `"argument"`) || !strings.Contains(string(f.body), "end that program") {
		t.Errorf("the answer has type %d: %s", f.kind, f.body)
	}
	select {
	case <-s.Asked():
		t.Error("the server was asked to stop by a refused request")
	default:
	}
	c.batch(c.ask(typeGet, getBody(1)))

	s.opts.Stoppable = true
	group := newConn(s, nil) // of a member of the group that may connect
	if err := group.stop(nil); err == nil || !strings.Contains(err.Error(), "only the user") {
		t.Errorf("another user's STOP: got %v, want a refusal", err)
	}
}

// TestEnds: the server reports when it will end without clients, and that it will not end while a client is connected.
func TestEnds(t *testing.T) {
	told := make(chan time.Time, 8)
	s := start(t, testEngine(t, nil), func(s *Server) { s.opts.Idle, s.opts.Ends = time.Hour, func(at time.Time) { told <- at } })
	inAnHour := func(at time.Time) bool { left := time.Until(at); return left > 59*time.Minute && left <= time.Hour }
	if at := <-told; !inAnHour(at) {
		t.Errorf("before the first client it ends at %v", at)
	}
	first := attach(t, s, "")
	if at := <-told; !at.IsZero() {
		t.Errorf("with a client it ends at %v, want never", at)
	}
	second := attach(t, s, "")
	second.c.Close()
	first.c.Close()
	if at := <-told; !inAnHour(at) {
		t.Errorf("after the last client it ends at %v", at)
	}
	if len(told) > 0 {
		t.Errorf("the server also reported %v", <-told)
	}
}
