package fetch

import (
	"sync"

	"lcache/internal/serve/staging"
)

// lateReads are the buffers of one request that a late read may still write to. Each has a channel that is closed when the read has ended.
type lateReads struct {
	mu   sync.Mutex // guards the fields that follow
	bufs []*byte
	done []<-chan struct{}
}

func (q *lateReads) add(buf []byte, done <-chan struct{}) {
	q.mu.Lock()
	q.bufs = append(q.bufs, &buf[0])
	q.done = append(q.done, done)
	q.mu.Unlock()
}

func (q *lateReads) has(buf []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, b := range q.bufs {
		if b == &buf[0] {
			return true
		}
	}
	return false
}

func (q *lateReads) any() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.bufs) > 0
}

// After calls run once late is closed. Close waits for it.
func (f *Fetcher) After(late <-chan struct{}, run func()) {
	f.late.Add(1)
	go func() {
		defer f.late.Done()
		<-late
		run()
	}()
}

// BeginReads makes Close wait for n more reads, which the caller has begun. Each ends with EndRead.
func (f *Fetcher) BeginReads(n int) { f.late.Add(n) }

// EndRead ends a read that BeginReads counted.
func (f *Fetcher) EndRead() { f.late.Done() }

// dropLater ends a reference to an extent once all late reads into it have ended.
func (f *Fetcher) dropLater(x *staging.Extent, q *lateReads) {
	f.late.Add(1)
	go func() {
		defer f.late.Done()
		for _, done := range q.done {
			<-done
		}
		f.o.Staging.Drop(x)
	}()
}
