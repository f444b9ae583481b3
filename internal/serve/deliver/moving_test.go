package deliver_test

import (
	"context"
	"os"
	"testing"
	"time"

	"lcache/internal/serve/deliver"
	"lcache/internal/serve/staging"
	"lcache/sample"
)

// The window moves while a request reads absent samples by index. No slot is held meanwhile, and samples that are
// evicted meanwhile are read too.
func TestWindowMovesWhileReading(t *testing.T) {
	b := newBed(t, deliver.Options{})
	c := b.attach(os.Getpid())
	b.bring(4, 6)
	reads, goOn := make(chan struct{}), make(chan struct{})
	first := true
	b.Source.Before(func(context.Context, sample.Entry, []byte) error {
		if first {
			first = false
			close(reads)
			<-goOn
		}
		return nil
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.get(c, 4, 7, 6)
	}()
	<-reads
	if n := b.held(); n > 0 {
		t.Errorf("slots are held %d times by a request that waits for the source", n)
	}
	b.Staging.Reclaim(func(staging.Segment) bool { return true }, func(_ staging.Segment, f func(sample.Index)) {
		f(4)
		f(6)
	})
	close(goOn)
	<-done
	if n := len(b.Source.Reads()); n != 3 {
		t.Errorf("%d samples were read from the source, want 3: the missing ones and the ones that moved", n)
	}
	releaseAll(c)
	b.untilFree()
}

// A window that moves over the samples of a request without a position does not delay it: the request waits once for
// the samples that were being read.
func TestWaitsOnceForTheWindow(t *testing.T) {
	b := newBed(t, deliver.Options{Timeout: time.Hour})
	c := b.attach(os.Getpid())
	b.set(4, deliver.Loading)
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.get(c, 4, 6, 7)
	}()
	for b.looksAt(4) == 0 { // the stall's clock starts before the first look
		b.Staging.Notify()
	}
	b.set(6, deliver.Loading) // the next segment, and so on
	b.set(7, deliver.Loading)
	b.set(4, deliver.Gone)
	b.Staging.Notify()
	<-done
	releaseAll(c)
	b.untilFree()
}
