package count

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"sync"
	"time"

	"lcache/sample"
)

// A Digester hashes the orders of finished epochs in the background, one after the other. No request waits for it, because SHA-256 over millions of
// indices takes tenths of a second. The zero value is ready for use. Its methods may be called concurrently.
type Digester struct {
	mu    sync.Mutex // guards the fields that follow
	queue []func()
	idle  chan struct{} // closed when the queue is empty again; nil: nothing is queued
}

// mostDigests bounds the queue, because clients choose the epochs that they read. An epoch that finds the queue full gets no digest.
const mostDigests = 64

// Add queues work, unless the queue is full, and reports whether it did. start starts a goroutine that the caller joins.
func (d *Digester) Add(start func(func()), work func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.queue) >= mostDigests {
		return false
	}
	d.queue = append(d.queue, work)
	if d.idle == nil {
		d.idle = make(chan struct{})
		start(d.run)
	}
	return true
}

func (d *Digester) run() {
	for {
		d.mu.Lock()
		if len(d.queue) == 0 {
			close(d.idle)
			d.queue, d.idle = nil, nil
			d.mu.Unlock()
			return
		}
		work := d.queue[0]
		d.queue = d.queue[1:]
		d.mu.Unlock()
		work()
	}
}

// Wait returns when nothing is queued, or after a limit.
func (d *Digester) Wait(limit time.Duration) {
	d.mu.Lock()
	idle := d.idle
	d.mu.Unlock()
	if idle == nil {
		return
	}
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-idle:
	case <-late.C:
	}
}

// Batches are the batches that a rank received in an epoch.
type Batches struct {
	Received []uint64                               // bit i is set if batch i was delivered
	Look     func(batch int) ([]sample.Index, bool) // returns the indices of a batch; false: unknown
}

// Digest returns the SHA-256 of indices, rank by rank, as little-endian u32; nil if the order of a batch is unknown.
func Digest(ranks []Batches) *string {
	h := sha256.New()
	var buf []byte
	for _, r := range ranks {
		for b := range len(r.Received) * 64 {
			if r.Received[b/64]&(1<<(b%64)) == 0 {
				continue
			}
			indices, ok := r.Look(b)
			if !ok {
				return nil
			}
			buf = buf[:0]
			for _, index := range indices {
				buf = binary.LittleEndian.AppendUint32(buf, index)
			}
			h.Write(buf)
		}
	}
	s := hex.EncodeToString(h.Sum(nil))
	return &s
}
