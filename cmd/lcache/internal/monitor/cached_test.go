package monitor

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"lcache/internal/serve/status"
)

// TestOneQuestion: however many requests there are, a server is asked once at a time, and not again at once.
func TestOneQuestion(t *testing.T) {
	var asked, inFlight atomic.Int64
	enter, leave := make(chan struct{}, 1), make(chan struct{})
	c := &cached{ask: func() (status.Document, error) {
		if inFlight.Add(1) > 1 {
			t.Error("two questions at once")
		}
		defer inFlight.Add(-1)
		enter <- struct{}{}
		<-leave
		return status.Document{Pid: int(asked.Add(1))}, nil
	}}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if s, err := c.status(); err != nil || s.Pid != 1 {
				t.Errorf("%d, %v", s.Pid, err)
			}
		})
	}
	<-enter
	close(leave)
	all.Wait()
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times for 50 requests", n)
	}
}

// TestCloseWaits: close returns when the question in flight is answered, and nobody asks after it.
func TestCloseWaits(t *testing.T) {
	enter, leave := make(chan struct{}), make(chan struct{})
	c := &cached{ask: func() (status.Document, error) {
		close(enter)
		<-leave
		return status.Document{}, nil
	}}
	go c.status()
	<-enter
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.close(ctx); err == nil {
		t.Error("close returned before the answer")
	}
	close(leave)
	if err := c.close(t.Context()); err != nil {
		t.Error(err)
	}
	c.at = c.at.Add(-freshTime)
	if _, err := c.status(); err != errClosed {
		t.Errorf("after close: %v", err)
	}
}

func TestTokenDoesNotPrintItself(t *testing.T) {
	o := Options{Token: "0123456789abcdef"}
	for _, text := range []string{fmt.Sprint(o.Token), fmt.Sprintf("%v %+v %#v %s %q", o, o, o.Token, o.Token, o.Token)} {
		if containsToken(text) {
			t.Errorf("it prints itself: %s", text)
		}
	}
}

func containsToken(text string) bool {
	for i := range text {
		if len(text)-i >= 10 && text[i:i+10] == "0123456789" {
			return true
		}
	}
	return false
}
