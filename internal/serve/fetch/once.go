package fetch

import (
	"context"
	"sync"

	"lcache/logfile"
	"lcache/sample"
)

// underWay are the samples that are being read from the source. With peers, this machine reads a sample for all of them, so several may want it at the
// same time.
type underWay struct {
	mu    sync.Mutex // guards the field that follows
	reads map[sample.Index]chan struct{}
}

// enter begins the read of a sample, and returns the function that ends it. If the sample is being read already, end is nil, and under is closed at
// the end of that read.
func (u *underWay) enter(index sample.Index) (end func(), under <-chan struct{}) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if c := u.reads[index]; c != nil {
		return nil, c
	}
	if u.reads == nil {
		u.reads = map[sample.Index]chan struct{}{}
	}
	c := make(chan struct{})
	u.reads[index] = c
	return func() {
		u.mu.Lock()
		delete(u.reads, index)
		u.mu.Unlock()
		close(c)
	}, nil
}

// Source reads a sample from the source into dst, which has its size, and verifies or records its checksum. After a timeout, late is closed when the
// read has stopped writing to dst. With peers, a sample that is being read already is then taken from the log, if the log has got it: from is FromLog.
func (f *Fetcher) Source(ctx context.Context, index sample.Index, dst []byte) (from sample.Origin, late <-chan struct{}, err error) {
	if f.o.Peers == nil {
		late, err = f.source(ctx, index, dst)
		return sample.FromSource, late, err
	}
	for {
		end, under := f.underWay.enter(index)
		if end != nil {
			defer end()
			if f.copyFromLog(ctx, index, dst) { // it came since the caller looked there
				return sample.FromLog, nil, nil
			}
			late, err = f.source(ctx, index, dst)
			return sample.FromSource, late, err
		}
		select {
		case <-under:
		case <-ctx.Done():
			return sample.FromSource, nil, f.waited(index, "another read of "+f.o.Source.String(), ctx.Err())
		}
		if f.copyFromLog(ctx, index, dst) {
			return sample.FromLog, nil, nil
		}
	}
}

// smallCopy bounds the samples that copyFromLog reads at any time, in bytes. Larger ones take turns, because the memory is counted nowhere.
const smallCopy = 1 << 20

// copyFromLog copies a sample from the log to dst, if the log has it.
func (f *Fetcher) copyFromLog(ctx context.Context, index sample.Index, dst []byte) bool {
	if f.o.Locations.Get(index) == 0 {
		return false
	}
	if len(dst) > smallCopy { // the one before ends by LogTimeout, and waits for nothing that this one holds
		select {
		case f.copying <- struct{}{}:
		case <-ctx.Done():
			return false
		}
		defer func() { <-f.copying }()
	}
	var q lateReads
	data, ok := f.fromLog(ctx, index, make([]byte, logfile.Span(4095, len(dst))), &q) // a late read writes to memory that nothing else uses
	return ok && copy(dst, data) == len(dst)
}
