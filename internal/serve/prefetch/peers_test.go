package prefetch_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lcache/internal/serve/fetch"
	"lcache/internal/serve/staging"
	"lcache/sample"
)

// home is a peer that has all samples.
type home struct {
	content func(sample.Index) []byte
	sent    chan int // for each request: its samples, when all have been sent
}

func (h *home) Holder(_ sample.Index, n int) (string, bool) { return "home", n == 0 }

func (h *home) Wrong(string) {}

func (h *home) Fetch(_ context.Context, _ string, indices []sample.Index, to fetch.Sink) error {
	for _, i := range indices {
		b := h.content(i)
		a := fetch.Arrival{Index: i, Length: uint32(len(b)), Sum: sample.Sum(b)}
		if room := to.Room(a); room != nil {
			copy(room, b)
			to.Came(a)
		}
	}
	h.sent <- len(indices)
	return nil
}

// TestStreamIsNotHeldUp: while no sample that has come can be verified or stored, a peer still sends all others. They are delivered afterwards, and a
// request ends only when none of its samples is with a worker.
func TestStreamIsNotHeldUp(t *testing.T) {
	const n = 200
	h := &home{sent: make(chan int, n)}
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	order := shuffled(n, 20, 4)
	b := newReaderBed(t, n, 0, 8<<20, fetch.Options{Peers: h, OnRead: func(from sample.Origin, _ sample.Index, _ []byte) {
		if from == sample.FromPeer {
			<-hold
		}
	}}, map[int][][]sample.Index{0: order})
	h.content = b.Content
	b.r.Asked(b.rank(0).At(0, 0))
	end := time.After(20 * time.Second)
	for sent := 0; sent < n; {
		select {
		case k := <-h.sent:
			sent += k
		case <-end:
			t.Fatalf("%d of %d samples were sent while none could be stored", sent, n)
		}
	}
	release()
	for batch := range order {
		for k, from := range b.originsAt(b.rank(0).At(0, batch)) {
			if from != sample.FromPeer {
				t.Errorf("batch %d: sample %d came from %v", batch, order[batch][k], from)
			}
		}
	}
}

// silentHome is a home that sends nothing until it is released.
type silentHome struct {
	home
	asked    chan struct{} // has room for one
	released chan struct{}
}

func (h *silentHome) Fetch(context.Context, string, []sample.Index, fetch.Sink) error {
	h.asked <- struct{}{}
	<-h.released
	return nil
}

// TestRequestLooksAgain: a request waits for a sample that is read for another rank. If that rank needs it no longer, nothing publishes the sample, and the
// request looks again at once. Regression: it waited for a third of its time.
func TestRequestLooksAgain(t *testing.T) {
	h := &silentHome{asked: make(chan struct{}, 1), released: make(chan struct{})}
	b := newReaderBed(t, 8, 0, 8<<20, fetch.Options{Peers: h, SourceTimeout: time.Hour}, map[int][][]sample.Index{0: {{1, 2, 3}}})
	defer close(h.released)
	b.r.Asked(b.rank(0).At(0, 0))
	<-h.asked
	other := b.rank(1).At(0, 0)
	changed := b.Staging.Changed()
	if reading, _ := b.r.Look(other, 1); !reading {
		t.Fatal("the sample is not being read")
	}
	b.r.Delivered(b.rank(0).At(0, 0)) // it was read by index
	select {
	case <-changed:
	case <-time.After(5 * time.Second):
		t.Error("nothing wakes the request")
	}
	if reading, queued := b.r.Look(other, 1); reading || queued {
		t.Errorf("the sample counts as being read (%t) or queued (%t), and nothing publishes it", reading, queued)
	}
}

// TestPeerCountsByJob: samples of several jobs that come in one request count for their own jobs.
func TestPeerCountsByJob(t *testing.T) {
	const n = 200
	h := &home{sent: make(chan int, n)}
	order := shuffled(n, 20, 4)
	b := newReaderBed(t, n, 0, 8<<20, fetch.Options{Peers: h}, map[int][][]sample.Index{0: order[:3], 1: order[3:]})
	b.jobs = true
	h.content = b.Content
	b.r.Asked(b.rank(0).At(0, 0))
	b.r.Asked(b.rank(1).At(0, 0))
	for job, batches := range map[int]int{0: 3, 1: len(order) - 3} {
		want := 0
		for batch := range batches {
			want += len(b.originsAt(b.rank(job).At(0, batch)))
		}
		if got := b.counts[job][sample.FromPeer].Reads.Load(); got != int64(want) {
			t.Errorf("job %d: %d samples from peers are counted, and %d came", job, got, want)
		}
	}
}

// slowHome is a home that has so much to do that a request takes much longer than a read of the source may be silent. Each sample takes a while.
type slowHome struct {
	home
	each   time.Duration
	most   int        // samples that it sends
	causes chan error // of requests that end before it has sent all samples
}

func (h *slowHome) Fetch(ctx context.Context, peer string, indices []sample.Index, to fetch.Sink) error {
	for _, i := range indices {
		var next <-chan time.Time
		if h.most > 0 {
			next = time.After(h.each)
		}
		select {
		case <-next:
		case <-ctx.Done():
			h.causes <- context.Cause(ctx)
			return ctx.Err()
		}
		h.most--
		if err := h.home.Fetch(ctx, peer, []sample.Index{i}, to); err != nil {
			return err
		}
	}
	return nil
}

// TestRequestEndsWithProgress: a request to a peer may take as long as it needs while the peer brings samples. If it brings none for as long as a read of
// the source may be silent, its other samples come from the source.
func TestRequestEndsWithProgress(t *testing.T) {
	const n, timeout = 24, 2 * time.Second
	for name, c := range map[string]struct{ most, fromPeer, causes int }{
		"it brings all, slowly": {n, n, 0},
		"it stops":              {4, 4, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &slowHome{home: home{sent: make(chan int, n)}, each: timeout / 16, most: c.most, causes: make(chan error, n)}
			order := shuffled(n, n, 4)
			b := newReaderBed(t, n, 0, 8<<20, fetch.Options{Peers: h, SourceTimeout: timeout}, map[int][][]sample.Index{0: order})
			h.content = b.Content
			came := 0
			for _, from := range b.originsAt(b.rank(0).At(0, 0)) {
				if from == sample.FromPeer {
					came++
				}
			}
			if came != c.fromPeer || len(h.causes) != c.causes {
				t.Errorf("%d of %d samples came from the peer, want %d; %d requests ended early, want %d", came, n, c.fromPeer, len(h.causes), c.causes)
			}
			for range len(h.causes) {
				if cause := <-h.causes; cause != context.DeadlineExceeded {
					t.Errorf("it ended because of %v", cause)
				}
			}
		})
	}
}

// busyHome is a home of which some samples are only sent when hold is closed. Another home sends the others at once.
type busyHome struct {
	home
	isBusy func(sample.Index) bool
	hold   chan struct{}
	looked atomic.Int64 // calls of Holder
}

func (h *busyHome) Holder(index sample.Index, n int) (string, bool) {
	h.looked.Add(1)
	if h.isBusy(index) {
		return "busy", n == 0
	}
	return "free", n == 0
}

func (h *busyHome) Fetch(ctx context.Context, peer string, indices []sample.Index, to fetch.Sink) error {
	if peer == "busy" {
		select {
		case <-h.hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return h.home.Fetch(ctx, peer, indices, to)
}

// TestWaitingRequestsAreNotForgotten: a chunk that a rank waits for has more samples with a busy peer than may be under way. Memory is then filled with
// later samples of another peer. When the busy peer has sent what was under way, it is asked for the rest, although a later request waits for memory.
func TestWaitingRequestsAreNotForgotten(t *testing.T) {
	const urgent, later, n = 1200, 400, 2400
	h := &busyHome{home: home{sent: make(chan int, n)}, isBusy: func(index sample.Index) bool { return index < urgent }, hold: make(chan struct{})}
	var all []sample.Index
	for i := range sample.Index(n) {
		all = append(all, i)
	}
	order := append([][]sample.Index{all[:urgent]}, slices.Collect(slices.Chunk(all[urgent:], later))...)
	b := newReaderBed(t, n, 0, 16<<20, fetch.Options{Peers: h}, map[int][][]sample.Index{0: order})
	h.content = b.Content
	b.r.Asked(b.rank(0).At(0, 0))
	b.waitFor("memory is full, and a later request waits for some", func() bool {
		return b.Staging.Free(staging.Miss) < 1<<20 && slices.ContainsFunc(all[urgent:], b.r.Taken)
	})
	was, same := int64(0), 0
	b.waitFor("the goroutine that begins requests rests", func() bool {
		looked := h.looked.Load()
		if same++; looked != was {
			was, same = looked, 0
		}
		return same > 20
	})
	close(h.hold)
	b.waitFor("the requested chunk is there", func() bool {
		return !slices.ContainsFunc(order[0], func(index sample.Index) bool { return !b.Staging.Present(index) })
	})
	for batch := range order {
		b.originsAt(b.rank(0).At(0, batch))
	}
}
