package fetch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// leastDiskRate is the rate of the slowest disk that is not taken for one that hangs, in bytes a second. It excuses reads of many bytes: at this rate, what
// small reads have under way takes less time than a peer may be silent.
const leastDiskRate = 16 << 20

// peerReads are the reads for other machines. They show a machine that is busy, which brings nothing for a while, apart from one whose disk hangs.
type peerReads struct {
	source atomic.Int64 // under way

	mu    sync.Mutex // guards the fields that follow
	bytes int        // that reads of the log under way have asked for
	since time.Time  // when the last of them ended, or the first began; used only while bytes > 0
	done  uint64     // reads of the log that brought their bytes
}

// beginLog begins a read of the log.
func (p *peerReads) beginLog(bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bytes == 0 {
		p.since = time.Now()
	}
	p.bytes += bytes
}

// endLog ends beginLog.
func (p *peerReads) endLog(bytes int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes -= bytes
	if err == nil {
		p.since = time.Now()
		p.done++
	}
}

// readLog is a method of a Logfile that reads, and counts it if it is for other machines.
func (f *Fetcher) readLog(ctx context.Context, read func(context.Context, int, uint64, int, []byte) ([]byte, error), seg int, off uint64, n int, buf []byte) ([]byte, error) {
	if !isForPeers(ctx) {
		return read(ctx, seg, off, n, buf)
	}
	f.peerReads.beginLog(n)
	data, err := read(ctx, seg, off, n, buf)
	f.peerReads.endLog(n, err)
	return data, err
}

// WorkForPeers returns what is done with a context of ForPeers. done grows with each read of the log. waits reports whether a read is under way that may take
// long: of the source, or of so many bytes of the log that even a disk that works needs the time since the last read.
func (f *Fetcher) WorkForPeers() (done uint64, waits bool) {
	p := &f.peerReads
	p.mu.Lock()
	defer p.mu.Unlock()
	limit := min(time.Duration(float64(p.bytes)/leastDiskRate*float64(time.Second)), f.o.LogTimeout)
	return p.done, p.source.Load() > 0 || p.bytes > 0 && time.Since(p.since) < limit
}
