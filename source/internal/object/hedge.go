package object

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	hedgeFactor = 3                      // a second request is sent after this many medians of recent requests
	hedgeLeast  = 200 * time.Millisecond // but not earlier than this
	hedgeShare  = 20                     // at most 1/hedgeShare of all requests are second ones
	recentMany  = 64
	recentLeast = 8 // a median needs this many requests
)

// recent has the durations of recent requests.
type recent struct {
	mu     sync.Mutex // guards the fields that follow
	took   [recentMany]time.Duration
	n      int
	median time.Duration
}

func (r *recent) add(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.took[r.n%recentMany] = d
	if r.n++; r.n%recentLeast == 0 {
		sorted := r.took
		list := sorted[:min(r.n, recentMany)]
		slices.Sort(list)
		r.median = list[len(list)/2]
	}
}

// patience returns the time after which a second request is sent; 0: never.
func (r *recent) patience() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n < recentLeast {
		return 0
	}
	return max(hedgeFactor*r.median, hedgeLeast)
}

// ask sends a request, and a second one if the first is slow. It advances t by the bytes that arrive.
func (r *Reader) ask(ctx context.Context, t *target, q Request) error {
	if err := r.gate.enter(ctx, q.Len); err != nil {
		return err
	}
	if t.tries == 0 && t.have == 0 {
		t.moved = time.Now() // a wait for other requests is not the store's silence
	}
	dst := t.dst[t.have : t.have+int(q.Len)]
	after := r.recent.patience()
	if r.o.NoHedge || q.Len >= rangeBytes {
		after = 0
	}
	mine, cancel := context.WithCancel(ctx)
	defer cancel()
	var second *hedge
	if after > 0 {
		second = r.hedge(ctx, t, q, after, cancel)
	}
	start := time.Now()
	n, tag, err := r.get(mine, t, q, dst)
	if took := time.Since(start); err == nil {
		r.recent.add(took)
	}
	var trouble *Error
	r.gate.leave(q.Len, int64(n), errors.As(err, &trouble) && trouble.Trouble == Slow)
	if second != nil && second.end(err == nil || mine.Err() == nil && trouble != nil && trouble.Trouble > Slow) {
		n, tag, err = copy(dst, second.buf), second.tag, nil
	}
	t.have += n
	if tag != "" || n > 0 {
		t.tag, t.version = tag, Version(tag)
	}
	return err
}

// hedge is a second request for the same bytes. It fills a separate buffer, because the reader may have given its
// memory back when the answer arrives.
type hedge struct {
	timer  *time.Timer
	cancel context.CancelFunc
	done   chan struct{} // closed when the fields that follow are set
	buf    []byte
	tag    string
	won    bool
}

// hedge sends the second request after a delay, if few are in flight. If its answer comes first, it calls won.
func (r *Reader) hedge(ctx context.Context, t *target, q Request, after time.Duration, won func()) *hedge {
	mine, cancel := context.WithCancel(ctx)
	h := &hedge{cancel: cancel, done: make(chan struct{})}
	q.OwnConnection = true
	h.timer = time.AfterFunc(after, func() {
		defer close(h.done)
		if (r.hedges.Load()+1)*hedgeShare > r.requests.Load() || !r.gate.try(q.Len) {
			return
		}
		r.hedges.Add(1)
		h.buf = make([]byte, q.Len)
		n, tag, err := r.get(mine, t, q, h.buf)
		r.gate.leave(q.Len, int64(n), false)
		if err == nil {
			h.tag, h.won = tag, true
			won()
		}
	})
	return h
}

// end ends the second request, immediately if the first answer is final. It reports whether the second answer should
// be used.
func (h *hedge) end(final bool) bool {
	defer h.cancel()
	if h.timer.Stop() {
		return false
	}
	if final {
		h.cancel()
	}
	<-h.done
	return h.won && !final
}
