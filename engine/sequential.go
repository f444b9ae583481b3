package engine

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"lcache/internal/plan"
	"lcache/internal/serve/prefetch"
	"lcache/internal/serve/staging"
	"lcache/logfile"
)

// Sequential reads are measured for measureFor. The first part does not count, because a volume with a limit of operations or bytes allows a burst.
const (
	measureFor   = 300 * time.Millisecond
	measureAfter = 120 * time.Millisecond
	measureLanes = 16
)

// measureSequential measures how fast the scan could read the current log, while the prefetcher reads, too.
func (e *Engine) measureSequential() {
	e.mu.Lock()
	l := e.cur
	e.mu.Unlock()
	e.prefetcher.SetDepth(prefetch.MostDuringScan / 2)
	rate := 0.0
	slot, ok := e.staging.Acquire(staging.Segment{Log: ^uint64(0)}) // no log has this ID: the slot can be reclaimed at once
	if ok {
		rate = e.readBlocks(l.Log, slot)
		e.staging.Ready(slot)
	}
	e.prefetcher.SetDepth(0)
	e.mu.Lock()
	e.beginning.sequentialRate = rate
	e.beginning.measuring, e.beginning.depth = false, 0
	switch {
	case !ok:
		e.beginning.lacksSlot = true
	case rate == 0: // the disk does not answer: try again later
		e.beginning.again = e.now().Add(plan.ReconsiderEvery)
	}
	e.mu.Unlock()
	e.nudge()
}

// freeSlot evicts the segments that no rank needs, if the rate of sequential reads could not be measured without a slot. The segments of an earlier
// owner stay in slots until others are loaded, and those loads wait for the measurement. Only the mover calls it, because only the mover reclaims slots.
func (e *Engine) freeSlot() {
	e.mu.Lock()
	lacks := e.beginning.lacksSlot
	e.beginning.lacksSlot = false
	if lacks { // still no free slot: try again later
		e.beginning.again = e.now().Add(plan.ReconsiderEvery / 50)
	}
	e.mu.Unlock()
	if lacks {
		e.staging.Reclaim(e.evictable, e.members)
	}
}

// readBlocks reads blocks of a log into a slot, many at once. It reads the blocks of a small log more than once. It returns bytes per second; 0: the log
// has no block, or the disk does not answer.
func (e *Engine) readBlocks(l *logfile.Logfile, slot int) float64 {
	mem, w := e.staging.Slot(slot), e.cache.Format.Block
	blocks := blocksOf(l)
	if len(blocks) == 0 {
		return 0
	}
	var next, bytes atomic.Int64
	begin := time.Now()
	var lanes sync.WaitGroup
	for lane := range min(measureLanes, len(mem)/w) {
		buf := mem[lane*w : (lane+1)*w]
		lanes.Go(func() {
			for e.ctx.Err() == nil && time.Since(begin) < measureFor {
				read, answers := e.readBlock(l, blocks[(next.Add(1)-1)%int64(len(blocks))], buf, slot)
				if !answers {
					return
				}
				if read && time.Since(begin) > measureAfter {
					bytes.Add(int64(w))
				}
			}
		})
	}
	lanes.Wait()
	counted := time.Since(begin) - measureAfter
	if counted < measureAfter/4 {
		return 0
	}
	return float64(bytes.Load()) / counted.Seconds()
}

type blockAt struct{ seg, seq int }

// blocksOf lists blocks of a Logfile in its order, except those already moved from the beginning of a segment. It lists enough for measureFor.
func blocksOf(l *logfile.Logfile) (blocks []blockAt) {
	for seg := range l.Header().Segments {
		for seq := l.Gone(int(seg)); seq < l.Blocks(int(seg)); seq++ {
			if blocks = append(blocks, blockAt{int(seg), seq}); len(blocks) == 1<<14 {
				return blocks
			}
		}
	}
	return blocks
}

// readBlock reads one block, unless it was freed. If the disk does not answer in time, the slot stays pinned until it does.
func (e *Engine) readBlock(l *logfile.Logfile, at blockAt, buf []byte, slot int) (read, answers bool) {
	done := make(chan error, 1)
	e.staging.Pin(slot)
	l.ReadBlock(at.seg, at.seq, buf, func(err error) {
		e.staging.Unpin(slot)
		done <- err
	})
	select {
	case err := <-done:
		return err == nil, err == nil || errors.Is(err, logfile.ErrHole) || errors.Is(err, logfile.ErrFreed)
	case <-time.After(e.fetcher.LogTimeout()):
		return false, false
	}
}
