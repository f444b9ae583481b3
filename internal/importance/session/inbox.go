package session

import (
	"slices"
	"sync"
	"time"

	"lcache/internal/importance/score"
	"lcache/internal/memquota"
)

// mostQueued bounds the bytes queued for the worker. The worker wakes after gatherBytes, or gatherTime after the
// first item, because waking it for each observation takes longer than noting one.
const (
	mostQueued  = 32 << 20
	gatherBytes = 256 << 10
	noteBytes   = 256 // for an item without an observation
	gatherTime  = 20 * time.Millisecond
)

// queued is a work item: an observation, a restarted rank, or "embeddings replaced".
type queued struct {
	seen      *score.Observation // nil: none
	bytes     int64
	restarted uint16 // if seen is nil and replaced is false: the rank has a new training process
	replaced  bool   // from now on embeddings have another length
}

// inbox is the worker's queue. No method waits.
type inbox struct {
	room *memquota.Share // for the inboxes of all jobs
	wake chan struct{}   // has a value if the worker has work

	mu        sync.Mutex // guards the fields that follow
	items     []queued
	last      []queued // items that found no room; each is listed once
	bytes     int64    // of items
	gathering bool     // a timer will wake the worker
	closed    bool
	dropped   int64  // observations dropped because they came too fast: here or in a client
	refused   Unsent // by clients, before sending
}

func newInbox(room *memquota.Share) *inbox {
	return &inbox{room: room, wake: make(chan struct{}, 1)}
}

// nudge wakes the worker.
func (b *inbox) nudge() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// observe queues an observation. Beyond the limit of the job, or of all jobs, it drops the observation. atOnce wakes
// the worker without delay.
func (b *inbox) observe(o score.Observation, atOnce bool) {
	bytes := int64(4*(len(o.Index)+len(o.Loss)+len(o.Neighbours)) + 2*(len(o.Same)+len(o.Other)) + 256)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return
	case b.bytes+bytes > mostQueued || !b.room.Take(bytes):
		b.dropped++
		return
	}
	b.items = append(b.items, queued{seen: &o, bytes: bytes})
	b.bytes += bytes
	switch {
	case atOnce || b.bytes >= gatherBytes:
		b.nudge()
	case !b.gathering:
		b.gathering = true
		time.AfterFunc(gatherTime, b.nudge)
	}
}

// note queues an item without an observation. If the queue is full, the item waits behind all observations, and only
// once.
func (b *inbox) note(q queued) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	if q.bytes = noteBytes; b.bytes+noteBytes <= mostQueued && b.room.Take(noteBytes) {
		b.items, b.bytes = append(b.items, q), b.bytes+noteBytes
	} else if q.bytes = 0; !slices.Contains(b.last, q) {
		b.last = append(b.last, q)
	}
}

// count adds a client's counters of unsent observations.
func (b *inbox) count(u Unsent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropped += u.Dropped
	b.refused.Shape += u.Shape
	b.refused.NotFinite += u.NotFinite
	b.refused.Dimension += u.Dimension
}

// counts returns the number of observations dropped here or in clients, and the counters of refused ones.
func (b *inbox) counts() (dropped int64, refused Unsent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropped, b.refused
}

// take empties the inbox. The caller releases the memory of the items. last closes the inbox, so that later items are
// dropped.
func (b *inbox) take(last bool) []queued {
	b.mu.Lock()
	defer b.mu.Unlock()
	items := append(b.items, b.last...)
	b.items, b.last, b.bytes, b.gathering, b.closed = nil, nil, 0, false, last
	return items
}

// Unsent counts observations that a client did not send since its last report. Dropped and Shape count whole
// observations, NotFinite and Dimension count samples. Changed says that from now on embeddings have another length.
type Unsent struct {
	Dropped, Shape, NotFinite, Dimension int64
	Changed                              bool
}
