package server

import (
	"context"
	"encoding/binary"
	"runtime"
	"sync"
	"testing"
	"time"

	"lcache/engine"
	"lcache/internal/memquota"
)

const (
	attackers  = 40
	roomMemory = 100_000_000 // --memory of a server whose frames may take 64 MiB
)

func inLittleMemory(o *engine.Options) { o.Memory = roomMemory }

// halfFrame is the beginning of the longest frame there is: some megabytes of it.
func halfFrame() []byte {
	b := make([]byte, 3<<20)
	copy(b, begin(nil, typePush, 9))
	binary.LittleEndian.PutUint32(b, maxFrame)
	return b
}

// sendAll makes clients write data that the server may not read at once. The returned function ends them, and returns how many could write all of it.
func sendAll(t *testing.T, s *Server, n int, b []byte) (end func() (written int)) {
	t.Helper()
	var writers sync.WaitGroup
	var mu sync.Mutex
	all := 0
	var clients []*client
	for range n {
		c := attach(t, s, "")
		clients = append(clients, c)
		writers.Go(func() {
			if _, err := c.c.Write(b); err == nil {
				mu.Lock()
				defer mu.Unlock()
				all++
			}
		})
	}
	return func() int {
		for _, c := range clients {
			c.c.SetDeadline(time.Now())
		}
		writers.Wait()
		for _, c := range clients {
			c.c.Close()
		}
		return all
	}
}

// waitForRoom waits until a request waits for memory of a share: then the server has read, or answered, as much as it may at once.
func waitForRoom(t *testing.T, s *memquota.Share) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); s.Take(1); runtime.Gosched() { // it overtakes no waiting request
		if s.Give(1); time.Now().After(end) {
			t.Fatalf("%d of %d bytes are taken, and no request waits for more", s.Taken(), s.Limit())
		}
	}
}

// goesOn requests batches, names and the status, and releases batches, as a training does.
func goesOn(t *testing.T, c *client) {
	t.Helper()
	for i := range uint32(50) {
		f := c.ask(typeGet, getBody(i, i+1, i+2))
		b := c.batch(f)
		b.check(t)
		c.send(typeRelease, releaseBody(b.lease))
		if f := c.ask(typeNames, columnOf(2, i, i+1)); f.kind != typeNamesAre {
			t.Fatalf("names: %s", f.body)
		}
	}
	if f := c.ask(typeStatus, nil); f.kind != typeJSON {
		t.Fatalf("status: %s", f.body)
	}
}

// Frames that many clients begin and do not end take at most the limit for all of them, and do not block batches. Frames without room end with an error.
func TestHalfFramesHaveALimit(t *testing.T) {
	s := start(t, testEngine(t, inLittleMemory), nil)
	honest := attach(t, s, "")
	goesOn(t, honest)
	before := keptBytes()
	end := sendAll(t, s, attackers, halfFrame())
	goesOn(t, honest)
	waitForRoom(t, s.received)
	if kept := keptBytes() - before; kept > leastFrames+16<<20 {
		t.Errorf("%d half frames keep %d bytes, want at most %d", attackers, kept, leastFrames)
	}
	goesOn(t, honest)
	if n := end(); n > 4 {
		t.Errorf("%d of %d half frames were read: each may be of %d bytes", n, attackers, maxFrame)
	}
	large := make([]uint32, 200_000) // beyond what needs no room
	if f := honest.ask(typeNames, append(columnOf(uint32(len(large))), columnOf(large...)...)); f.kind != typeNamesAre {
		t.Errorf("a large request when they are gone: %s", f.body)
	}
}

// Answers that many clients do not read take at most the limit for all of them, and do not block batches.
func TestUnreadAnswersHaveALimit(t *testing.T) {
	s := start(t, testEngine(t, inLittleMemory), func(s *Server) { s.limits.write = 3 * time.Second })
	honest := attach(t, s, "")
	goesOn(t, honest)
	indices := make([]uint32, 500_000)
	ask := append(begin(nil, typeNames, 7), append(columnOf(uint32(len(indices))), columnOf(indices...)...)...)
	before := keptBytes()
	end := sendAll(t, s, attackers, finish(ask, 0))
	goesOn(t, honest)
	waitForRoom(t, s.answers)
	if kept := keptBytes() - before; kept > 2*leastFrames+16<<20 { // requests and answers, and as much on its way from one to the other
		t.Errorf("%d unread answers keep %d bytes", attackers, kept)
	}
	goesOn(t, honest)
	end()
	for until := time.Now().Add(30 * time.Second); ; { // answers to disconnected clients may still be in progress
		f := honest.ask(typeNames, append(columnOf(uint32(len(indices))), columnOf(indices...)...))
		if f.kind == typeNamesAre {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("the same request, read: %s", f.body)
		}
	}
}

// A server with clients that wait for room ends at once.
func TestShutdownWithFramesThatWait(t *testing.T) {
	s := start(t, testEngine(t, inLittleMemory), func(s *Server) { s.limits.frame = time.Hour })
	end := sendAll(t, s, 8, halfFrame())
	defer end()
	goesOn(t, attach(t, s, ""))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}
