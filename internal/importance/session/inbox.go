package session

import (
	"slices"
	"sync"
	"time"

	"lcache/internal/importance/score"
	"lcache/internal/memquota"
)

// mostQueued bounds what waits for the worker, in bytes. The worker wakes for gatherBytes of it, or gatherTime after the first: to wake it for each observation takes longer than to note one.
const (
	mostQueued  = 32 << 20
	gatherBytes = 256 << 10
	noteBytes   = 256 // of an item without an observation
	gatherTime  = 20 * time.Millisecond
)

// queued is a work item: an observation, a restarted rank, or "embeddings replaced".
type queued struct {
	seen      *score.Observation // nil: none
	bytes     int64
	restarted uint16 // without seen and replaced: a rank whose training process is a new one
	replaced  bool   // embeddings have another length from now on
}

// inbox is the queue of the worker. No method waits.
type inbox struct {
	room *memquota.Share // of all jobs
	wake chan struct{}   // has a value when the worker has something to do

	mu        sync.Mutex // guards the fields that follow
	items     []queued
	last      []queued // items that came when there was no room, each once
	bytes     int64    // of items
	gathering bool     // the worker will be woken
	closed    bool
	dropped   int64  // observations that came too fast, here or in a client
	refused   Unsent // by clients
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

// observe queues an observation. Beyond a limit, the job's or that of all jobs, it is dropped. atOnce wakes the worker without delay.
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

// note queues an item without an observation. If there is no room, it is queued behind all observations, once.
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

// count adds the counters of unsent observations.
func (b *inbox) count(u Unsent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropped += u.Dropped
	b.refused.Shape += u.Shape
	b.refused.NotFinite += u.NotFinite
	b.refused.Dimension += u.Dimension
}

// counts returns the number of dropped observations, here or in clients, and the counters of refused ones.
func (b *inbox) counts() (dropped int64, refused Unsent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropped, b.refused
}

// take empties the inbox. The caller gives back the room of the items. last closes the inbox: nothing is queued afterwards.
func (b *inbox) take(last bool) []queued {
	b.mu.Lock()
	defer b.mu.Unlock()
	items := append(b.items, b.last...)
	b.items, b.last, b.bytes, b.gathering, b.closed = nil, nil, 0, false, last
	return items
}

// Unsent counts observations that a client did not send since its last report: Dropped and Shape count whole ones, NotFinite and Dimension count samples. Changed says that embeddings have another length from now on.
type Unsent struct {
	Dropped, Shape, NotFinite, Dimension int64
	Changed                              bool
}
