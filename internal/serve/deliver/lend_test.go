package deliver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/internal/serve/deliver"
	"lcache/internal/serve/staging"
	"lcache/sample"
)

// copied requests temporary leases until it has all samples of a request, as a client does after a RoomError.
func (b *bed) copied(c *deliver.Client, indices ...sample.Index) error {
	var got []sample.Index
	for next := 0; next < len(indices); {
		l, err := c.Lend(context.Background(), indices, next, nil)
		if err != nil {
			return err
		}
		if l.Total != len(indices) || l.Next <= next || l.Next-next != len(l.Indices) {
			return fmt.Errorf("a part of %d samples from %d to %d of %d", len(l.Indices), next, l.Next, l.Total)
		}
		var copies [][]byte
		for k, i := range l.Indices {
			copies = append(copies, bytes.Clone(b.Staging.Slice(l.Offsets[k], int(sizes[i]))))
		}
		if !c.Copied(l.Lease) {
			continue // it took too long
		}
		for k, i := range l.Indices {
			if !bytes.Equal(copies[k], b.Content(i)) {
				return fmt.Errorf("sample %d: bytes that are not the source's", i)
			}
		}
		got, next = append(got, l.Indices...), l.Next
	}
	if !slices.Equal(got, indices) {
		return fmt.Errorf("got %v, want %v", got, indices)
	}
	return nil
}

// fill makes clients lease all side memory, in turn: 16 times two pages, each for a sample of 64 bytes.
func (b *bed) fill(clients ...*deliver.Client) {
	b.t.Helper()
	for n := 0; b.Staging.SideUsed() < b.Staging.SideBytes(); n++ {
		b.get(clients[n%len(clients)], 5)
	}
}

// TestEveryoneIsAnswered: clients together hold all memory, and each requests one more batch. Every request is
// answered, although no client releases anything.
func TestEveryoneIsAnswered(t *testing.T) {
	b := newBed(t, deliver.Options{Patience: time.Millisecond})
	var clients []*deliver.Client
	for range 16 {
		c := b.attach(os.Getpid())
		c.Copies()
		clients = append(clients, c)
	}
	b.fill(clients...)
	b.bring(0, 4)
	held := b.d.Held()[os.Getpid()]
	var wg sync.WaitGroup
	for _, c := range clients {
		wg.Go(func() {
			batch := []sample.Index{7, 0, 3, 7, 1, 4, 6, 7}
			var full *deliver.RoomError
			if _, err := c.Get(t.Context(), batch, nil); !errors.As(err, &full) {
				t.Errorf("got %v, want no room", err)
				return
			}
			if want := fmt.Sprintf("process %d holds", os.Getpid()); !strings.Contains(full.Error(), want) {
				t.Errorf("%q does not say %q", full, want)
			}
			if err := b.copied(c, batch...); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if now := b.d.Held()[os.Getpid()]; now != held || b.Staging.SideUsed() != b.Staging.SideBytes() {
		t.Errorf("%d bytes are leased, %d of side memory are used; want %d and all, as before", now, b.Staging.SideUsed(), held)
	}
	for _, c := range clients {
		releaseAll(c)
	}
	b.get(clients[0], 7, 7)
	releaseAll(clients[0])
	b.untilFree()
}

// Regression: requests that had some of their samples in side memory waited for the rest, each for memory that the
// others held.
func TestNothingIsHeldWhileWaiting(t *testing.T) {
	b := newBed(t, deliver.Options{Timeout: 5 * time.Second})
	b.set(4, deliver.Loading)
	var wg sync.WaitGroup
	for _, first := range []sample.Index{0, 8, 9, 10} { // two of these fill side memory
		c := b.attach(os.Getpid())
		wg.Go(func() {
			batch, err := c.Get(t.Context(), []sample.Index{first, 7, 7, 7, 4}, nil)
			if err != nil {
				t.Error(err)
				return
			}
			b.is(batch, first, 7, 7, 7, 4)
			c.Release(batch.Lease)
		})
	}
	for {
		b.mu.Lock()
		waiting := b.looks[0] > 1 && b.looks[8] > 1 && b.looks[9] > 1 && b.looks[10] > 1
		b.mu.Unlock()
		if waiting {
			break
		}
		b.Staging.Notify()
	}
	if n := b.Staging.SideUsed(); n > 0 {
		t.Errorf("%d bytes of side memory are used by requests that wait for the pass", n)
	}
	b.set(4, deliver.Gone)
	b.Staging.Notify()
	wg.Wait()
	b.untilFree()
}

// Samples that come or go while a request waits for room change the size that it needs. It never takes a second
// piece.
func TestWindowChangesWhileWaitingForRoom(t *testing.T) {
	for _, goes := range []bool{false, true} {
		b := newBed(t, deliver.Options{})
		holder, c := b.attach(os.Getpid()), b.attach(os.Getpid())
		b.fill(holder)
		if goes {
			b.bring(4, 6)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.get(c, 7, 4, 6)
		}()
		for b.d.Stats.Stall.Total() == 0 {
			b.Staging.Notify()
		}
		if goes {
			b.Staging.Reclaim(func(staging.Segment) bool { return true }, func(_ staging.Segment, f func(sample.Index)) {
				for _, i := range []sample.Index{4, 6} {
					f(i)
				}
			})
		} else {
			b.bring(7, 4, 6)
		}
		releaseAll(holder)
		<-done
		if n, want := len(b.Source.Reads()), map[bool]int{false: 1, true: 4}[goes]; n != want { // the holder's, and the absent samples
			t.Errorf("goes %v: %d samples were read from the source, want %d", goes, n, want)
		}
		releaseAll(c)
		b.untilFree()
	}
}

// A client that stops during a copy does not keep the spare part from other clients, and its copy does not count.
func TestTemporaryLeaseEnds(t *testing.T) {
	b := newBed(t, deliver.Options{LeaseTime: time.Millisecond})
	stopped, c := b.attach(os.Getpid()), b.attach(os.Getpid())
	b.bring(0)
	l, err := stopped.Lend(t.Context(), []sample.Index{0, 7}, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	for b.held() > 0 {
		<-b.Staging.Changed()
	}
	if err := b.copied(c, 7); err != nil {
		t.Error(err)
	}
	if stopped.Copied(l.Lease) || stopped.Copied(4711) {
		t.Error("a loan that had ended was confirmed")
	}
	if n := b.d.Stats.Samples.Load(); n != 1 {
		t.Errorf("%d samples count as delivered, want the one that was copied in time", n)
	}
}

// A temporary lease ends with its session, with its process and with the server.
func TestTemporaryLeasesEndWithTheirOwners(t *testing.T) {
	b := newBed(t, deliver.Options{LeaseTime: time.Hour})
	b.bring(0)
	p := newChild(t)
	for i, end := range []func(c *deliver.Client){func(*deliver.Client) { p.kill() }, func(c *deliver.Client) { c.Disconnected() }, func(*deliver.Client) { b.d.Close() }} {
		c := b.attach([]int{p.pid(), os.Getpid(), os.Getpid()}[i])
		l, err := c.Lend(t.Context(), []sample.Index{0, 7}, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		if b.held() == 0 {
			t.Error("the leased memory is not held")
		}
		end(c)
		b.untilFree()
		if c.Copied(l.Lease) {
			t.Error("a loan that had ended was confirmed")
		}
	}
}

// Parts of a chunk count as one chunk, and are reported to the window as parts.
func TestTemporaryLeasesOfAChunk(t *testing.T) {
	b := newBed(t, deliver.Options{LeaseTime: time.Hour})
	at := deliver.Position{Epoch: 1, Rank: 0, Batch: 2}
	b.chunks[at] = []sample.Index{7, 3, 5, 7, 3}
	c := b.attach(os.Getpid())
	first, err := c.LendChunk(t.Context(), 1, 0, 2, 0)
	if err != nil || first.Next != 2 || first.Total != 5 || !slices.Equal(first.Indices, []sample.Index{7, 3}) || !c.Copied(first.Lease) {
		t.Fatalf("got %+v, %v", first, err)
	}
	second, err := c.LendChunk(t.Context(), 1, 0, 2, 2)
	if err != nil || second.Next != 3 || !slices.Equal(second.Indices, []sample.Index{5}) || !c.Copied(second.Lease) {
		t.Fatalf("got %+v, %v", second, err)
	}
	last, err := c.LendChunk(t.Context(), 1, 0, 2, 3)
	if err != nil || last.Next != 5 || !c.Copied(last.Lease) || c.Copied(last.Lease) {
		t.Fatalf("got %+v, %v", last, err)
	}
	want := []deliver.Delivery{{Samples: 2, Ahead: 1, From: origins(1, 1), Part: true}, {Samples: 1, From: origins(0, 1), Part: true}, {Samples: 2, Ahead: 1, From: origins(1, 1)}}
	if !reflect.DeepEqual(b.delivered, want) || b.d.Stats.Chunks.Load() != 1 || b.d.Stats.Samples.Load() != 5 {
		t.Errorf("told %+v, %d chunks of %d samples", b.delivered, b.d.Stats.Chunks.Load(), b.d.Stats.Samples.Load())
	}
	if _, err := c.LendChunk(t.Context(), 1, 0, 3, 0); !errors.Is(err, io.EOF) {
		t.Errorf("past the end: %v", err)
	}
	for _, bad := range []func() error{
		func() error { _, err := c.LendChunk(t.Context(), 1, 0, 2, 6); return err },
		func() error { _, err := c.Lend(t.Context(), []sample.Index{sample.None}, 0, nil); return err },
	} {
		var wrong *deliver.ArgumentError
		if err := bad(); !errors.As(err, &wrong) {
			t.Errorf("got %v, want an argument error", err)
		}
	}
}

// The error of a request that found no room in time names the process that holds it, or says that none does.
func TestRoomErrorNamesTheHolder(t *testing.T) {
	b := newBed(t, deliver.Options{Timeout: 5 * soon})
	c := b.attach(os.Getpid())
	b.bring(0)
	b.get(c, 0) // in the window: it takes no side memory
	x, ok := b.Staging.Alloc(staging.Side, 0, 1<<17)
	if !ok {
		t.Fatal("no room to begin with")
	}
	_, err := c.Get(t.Context(), []sample.Index{7}, nil)
	if err == nil || !strings.Contains(err.Error(), "no client holds leases of it") {
		t.Errorf("got %v", err)
	}
	b.Staging.Drop(x)
	b.fill(c)
	_, err = c.Get(t.Context(), []sample.Index{7}, nil)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d holds %d bytes of it", os.Getpid(), b.Staging.SideUsed())) {
		t.Errorf("got %v", err)
	}
	releaseAll(c)
}

// Regression: when the log hung, a request needed the same room again, and waited for it while it held the first.
func TestLogHangsWithLittleMemory(t *testing.T) {
	b := newBed(t, deliver.Options{Timeout: 10 * time.Second})
	b.Fetcher.SetLogTimeout(soon)
	l := b.Begin(0, []uint64{0, uint64(len(sizes)) + 1}, 8)
	b.Fill(l, 0, 7)
	if err := l.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	hang := make(chan struct{})
	blockio.Inject(b.io, func(_ int64, op *blockio.Op) blockio.Fault {
		if op.Buf != nil && !op.Write {
			return blockio.Fault{Hold: hang}
		}
		return blockio.Fault{}
	})
	t.Cleanup(func() { blockio.Inject(b.io, nil) })
	c := b.attach(os.Getpid())
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.get(c, 7, 7, 7, 7, 7, 7, 7)
	}()
	for end := time.Now().Add(20 * time.Second); b.Fetcher.Stats.Timeouts.Load() < 7; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%d reads of the log are late, want 7", b.Fetcher.Stats.Timeouts.Load())
		}
	}
	close(hang)
	<-done
	releaseAll(c)
	b.untilFree()
}

// Other requests release their room soon: a client that copies waits for them longer than for leases, and gets a
// lease.
func TestWaitsLongerForRequestsThanLeases(t *testing.T) {
	b := newBed(t, deliver.Options{Patience: time.Millisecond})
	c, holder := b.attach(os.Getpid()), b.attach(os.Getpid())
	c.Copies()
	lease := b.get(holder, 5) // leaves room for the request below, once the other one is gone
	x, ok := b.Staging.Alloc(staging.Side, 0, 1<<17-8192)
	if !ok {
		t.Fatal("no room to begin with")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.get(c, 7, 7)
	}()
	time.Sleep(soon) // many times the deadline for leases: its end is not an event that the test could wait for
	select {
	case <-done:
		t.Error("the request was answered before there was room")
	default:
	}
	b.Staging.Drop(x)
	<-done
	holder.Release(lease.Lease)
	releaseAll(c)
	b.untilFree()
}

// Leases may leave enough room, but in several pieces. A request does not wait for that.
func TestFragmentedRoomIsNotAwaited(t *testing.T) {
	b := newBed(t, deliver.Options{Patience: time.Millisecond})
	c, holder := b.attach(os.Getpid()), b.attach(os.Getpid())
	c.Copies()
	b.fill(holder)
	for n := uint64(1); n <= 16; n += 2 {
		holder.Release(n)
	}
	var full *deliver.RoomError
	if _, err := c.Get(t.Context(), []sample.Index{7}, nil); !errors.As(err, &full) {
		t.Errorf("half of the room is free, in pieces that are too small: %v", err)
	}
	if err := b.copied(c, 7); err != nil {
		t.Error(err)
	}
	b.get(c, 5)
	releaseAll(holder)
	releaseAll(c)
	b.untilFree()
}
