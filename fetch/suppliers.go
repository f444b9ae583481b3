package fetch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lcache/logfile"
	"lcache/metaindex"
	"lcache/sample"
	"lcache/source"
)

// fromLog reads a sample by its place. A sum that does not match is looked up again: only an unchanged place is corruption, and
// that is believed after a second read.
func (f *Fetcher) fromLog(ctx context.Context, index sample.Index, buf []byte, q *lateReads) ([]byte, bool) {
	f.logs <- struct{}{}
	defer func() { <-f.logs }()
	failed := 0
	for ctx.Err() == nil {
		loc := f.Locations.Get(index)
		slot, seg, off, ok := f.Locations.Split(loc)
		if !ok {
			return nil, false
		}
		lf := f.Logfile(slot)
		sum, known := f.Sums.Get(index)
		if lf == nil || !known {
			return nil, false
		}
		n := int(f.Manifest.Size(index))
		var data []byte
		var err error
		if f.isPacked(index) {
			data, err = f.readPacked(ctx, lf, seg, off, index, buf[:n:n])
		} else {
			data, err = f.readPlace(ctx, lf, seg, off, n, buf, q)
		}
		if err == nil && data != nil && sample.Sum(data) == sum {
			return data, true
		}
		var pending *logfile.PendingError
		if errors.As(err, &pending) || errors.Is(err, errNotAsked) { // a late answer may still write to it, so nothing else may, wherever the sample is by now
			return nil, false
		}
		if errors.Is(err, logfile.ErrAside) { // its place is kept: the device may be taken back
			return nil, false
		}
		if f.Locations.Get(index) != loc {
			continue // it moved while it was read
		}
		if failed++; failed < 2 {
			continue
		}
		f.Bad(index, loc, slot, err)
		return nil, false
	}
	return nil, false
}

// isPacked reports whether the log has a sample in other bytes than its own.
func (f *Fetcher) isPacked(index sample.Index) bool { return f.Form != nil && f.Form.Packed(index) }

func (f *Fetcher) readPlace(ctx context.Context, lf *logfile.Logfile, seg int, off uint64, n int, buf []byte, q *lateReads) ([]byte, error) {
	mine, cancel := context.WithTimeout(ctx, f.LogTimeout)
	defer cancel()
	data, err := lf.Read(mine, seg, off, n, buf)
	var pending *logfile.PendingError
	if errors.As(err, &pending) {
		f.Stats.Timeouts.Add(1)
		q.add(buf, pending.Done)
	}
	return data, err
}

// Bad counts a sample whose place does not give its bytes, and makes it a miss. A block that was lost or freed is no damage, and one that
// can't be read is trouble of the disk, which the log counts: corrupt are bytes that came and were others.
func (f *Fetcher) Bad(index sample.Index, loc metaindex.Loc, slot int, err error) {
	if !f.Locations.Clear(index, loc) || errors.Is(err, logfile.ErrHole) || errors.Is(err, logfile.ErrFreed) {
		return
	}
	if err != nil {
		f.Logger.Warn("a sample can't be read from the log; it is read from the source again", "sample", index, "error", err)
		return
	}
	if f.Recovered(slot) {
		f.Stats.StaleReads.Add(1)
		return
	}
	f.Stats.CorruptSamples.Add(1)
	f.Logger.Warn("a sample in the log is not what was written; it is read from the source again", "sample", index)
}

// Source reads a sample from the source into dst, which has its size, and checks or records its sum. If the deadline comes first,
// late is closed when dst is no longer written to.
func (f *Fetcher) Source(ctx context.Context, index sample.Index, dst []byte) (late <-chan struct{}, err error) {
	entry, err := f.Manifest.Entry(index)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, f.SourceTimeout)
	select {
	case f.jobs <- struct{}{}:
	case <-ctx.Done():
		cancel()
		return nil, f.waited(index, f.Options.Source.String(), ctx.Err())
	}
	done := make(chan struct{})
	var readErr error
	f.late.Add(1)
	go func() {
		defer f.late.Done()
		defer cancel()
		readErr = f.Options.Source.Read(ctx, entry, dst)
		<-f.jobs
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		select {
		case <-done: // a source that honours ctx is back at once
		case <-time.After(50 * time.Millisecond):
			f.Stats.Timeouts.Add(1)
			return done, f.waited(index, f.Options.Source.String(), ctx.Err())
		}
	}
	if readErr != nil {
		return nil, readErr
	}
	f.Stats.SourceReads.Add(1)
	f.Stats.SourceBytes.Add(int64(len(dst)))
	sum := sample.Sum(dst)
	if want, known := f.Sums.Get(index); known && want != sum {
		return nil, &source.SampleError{Name: entry.Name, Op: "check", Err: fmt.Errorf("%w: its bytes differ from the ones ingested, though size and modification time agree; run lcache ingest --relist", source.ErrChanged)}
	} else if !known {
		f.Sums.Set(index, sum)
	}
	if f.Keep != nil {
		f.Keep(index, dst)
	}
	return nil, nil
}

func (f *Fetcher) waited(index sample.Index, on string, err error) error {
	name, nameErr := f.Manifest.Name(index)
	if nameErr != nil {
		name = fmt.Sprintf("sample %d", index)
	}
	return &source.SampleError{Name: name, Op: "read", Err: fmt.Errorf("waited for %s: %w", on, err)}
}
