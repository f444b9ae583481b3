package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"sync"
	"time"

	"lcache/sample"
)

// digester hashes the orders of finished epochs in the background, one after the other. No request waits for it: SHA-256 over millions of indices takes
// tenths of a second.
type digester struct {
	mu    sync.Mutex // guards the fields that follow
	queue []func()
	idle  chan struct{} // closed when the queue has run; nil: nothing is queued
}

// mostDigests bounds the queue, because clients choose the epochs that they read. An epoch beyond it has no digest.
const mostDigests = 64

// add queues work. start begins a goroutine that its owner joins. It reports whether there was room.
func (d *digester) add(start func(func()), work func()) bool {
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

func (d *digester) run() {
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

// wait returns when nothing is queued, or after a limit.
func (d *digester) wait(limit time.Duration) {
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

// rankBatches are the batches that a rank received in an epoch.
type rankBatches struct {
	received []uint64                               // bit i: batch i was delivered
	look     func(batch int) ([]sample.Index, bool) // returns the indices of a batch
}

// digestOf returns the SHA-256 of indices, rank by rank, as little-endian u32; nil if the order of a batch is unknown.
func digestOf(ranks []rankBatches) *string {
	h := sha256.New()
	var buf []byte
	for _, r := range ranks {
		for b := range len(r.received) * 64 {
			if r.received[b/64]&(1<<(b%64)) == 0 {
				continue
			}
			indices, ok := r.look(b)
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
