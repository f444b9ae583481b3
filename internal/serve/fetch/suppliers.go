package fetch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lcache/internal/serve/staging"
	"lcache/logfile"
	"lcache/metaindex"
	"lcache/sample"
	"lcache/source"
)

// FromLog reads a sample from the log to x. late means that a late answer may still write to x: FromLog then takes over the caller's
// reference to x, and drops it after that answer.
func (f *Fetcher) FromLog(ctx context.Context, index sample.Index, x *staging.Extent) (data []byte, ok, late bool) {
	var q lateReads
	if data, ok = f.fromLog(ctx, index, x.Buf, &q); !ok && q.any() {
		f.dropLater(x, &q)
		return nil, false, true
	}
	return data, ok, false
}

// fromLog reads a sample at its location. After a checksum mismatch it looks the location up again. The sample is corrupt only if the
// location has not changed and a second read does not match either.
func (f *Fetcher) fromLog(ctx context.Context, index sample.Index, buf []byte, q *lateReads) ([]byte, bool) {
	select {
	case f.logs <- struct{}{}:
	case <-ctx.Done():
		return nil, false
	}
	defer func() { <-f.logs }()
	failed := 0
	for ctx.Err() == nil {
		loc := f.o.Locations.Get(index)
		slot, seg, off, ok := f.o.Locations.Split(loc)
		if !ok {
			return nil, false
		}
		lf := f.o.Logfile(slot)
		sum, known := f.o.Sums.Get(index)
		if lf == nil && f.o.Locations.Get(index) != loc {
			continue // its Logfile was dropped because all its samples have moved
		}
		if lf == nil || !known {
			return nil, false
		}
		n := int(f.o.Manifest.Size(index))
		var data []byte
		var err error
		if f.IsPacked(index) {
			data, err = f.readPacked(ctx, lf, seg, off, index, buf[:n:n])
		} else {
			data, err = f.readPlace(ctx, lf, seg, off, n, buf, q)
		}
		if err == nil && data != nil && sample.Sum(data) == sum {
			return data, true
		}
		var pending *logfile.PendingError
		if errors.As(err, &pending) || errors.Is(err, errNoBuffer) { // a late answer may still write to buf, so it must not be used for another read
			return nil, false
		}
		if errors.Is(err, logfile.ErrQuarantined) { // the location is kept: the device may recover
			return nil, false
		}
		if f.o.Locations.Get(index) != loc {
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

// IsPacked reports whether the log has a sample in compressed form.
func (f *Fetcher) IsPacked(index sample.Index) bool { return f.o.Form != nil && f.o.Form.Packed(index) }

func (f *Fetcher) readPlace(ctx context.Context, lf *logfile.Logfile, seg int, off uint64, n int, buf []byte, q *lateReads) ([]byte, error) {
	mine, cancel := context.WithTimeout(ctx, f.o.LogTimeout)
	defer cancel()
	data, err := f.readLog(mine, lf.Read, seg, off, n, buf)
	var pending *logfile.PendingError
	if errors.As(err, &pending) {
		f.Stats.Timeouts.Add(1)
		q.add(buf, pending.Done)
	}
	return data, err
}

// Bad makes a sample a miss and counts it, after the bytes at its location did not match. A block that was lost or freed is not
// corrupt. A block that can't be read is a disk error, which the log counts. Only bytes with a wrong checksum are corrupt.
func (f *Fetcher) Bad(index sample.Index, loc metaindex.Loc, num int, err error) {
	if !f.o.Locations.Clear(index, loc) || errors.Is(err, logfile.ErrHole) || errors.Is(err, logfile.ErrFreed) {
		return
	}
	if err != nil {
		f.o.Logger.Warn("sample can't be read from the log; it is read from the source again", "sample", index, "error", err)
		return
	}
	if f.o.Recovered(num) {
		f.Stats.StaleReads.Add(1)
		return
	}
	f.Stats.CorruptSamples.Add(1)
	f.o.Logger.Warn("sample in the log is corrupt; it is read from the source again", "sample", index)
}

// onlySource is Source without the log.
func (f *Fetcher) onlySource(ctx context.Context, index sample.Index, dst []byte) (from sample.Origin, late <-chan struct{}, err error) {
	late, err = f.source(ctx, index, dst)
	return sample.FromSource, late, err
}

// source is Source for a sample that nothing else reads.
func (f *Fetcher) source(ctx context.Context, index sample.Index, dst []byte) (late <-chan struct{}, err error) {
	if isForPeers(ctx) {
		f.peerReads.source.Add(1)
		defer f.peerReads.source.Add(-1)
	}
	entry, err := f.o.Manifest.Entry(index)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	ctx, cancel := f.patient(ctx)
	r := &read{ctx: ctx, cancel: cancel, entry: entry, dst: dst, done: make(chan struct{})}
	if f.o.Learn != nil {
		r.ctx = source.WithInode(ctx, &r.inode)
	}
	if err := f.start(r); err != nil {
		cancel()
		return nil, f.waited(index, f.o.Source.String(), overdue(ctx, err))
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		select {
		case <-r.done: // a source that honours ctx returns at once
		case <-time.After(50 * time.Millisecond):
			f.Stats.Timeouts.Add(1)
			return r.done, f.waited(index, f.o.Source.String(), overdue(ctx, ctx.Err()))
		}
	}
	if r.err != nil {
		if err := overdue(ctx, r.err); err != r.err {
			return nil, f.waited(index, f.o.Source.String(), err)
		}
		return nil, r.err
	}
	f.count(ctx, sample.FromSource, len(dst), began)
	sum := sample.Sum(dst)
	want, known := f.o.Sums.Get(index)
	if !known {
		f.o.Sums.Set(index, sum)
		want = sum
	}
	if f.o.Learn != nil {
		f.o.Learn(index, r.inode, want == sum)
	}
	if want != sum {
		return nil, &source.SampleError{Name: entry.Name, Op: "check", Err: fmt.Errorf("%w: its bytes differ from the ones ingested, though size and modification time agree; run lcache ingest --relist", source.ErrChanged)}
	}
	if f.o.OnRead != nil {
		f.o.OnRead(sample.FromSource, index, dst)
	}
	return nil, nil
}

// read is one read from the source. It may last longer than the wait for it.
type read struct {
	ctx    context.Context // of this read only
	cancel func()
	entry  sample.Entry
	dst    []byte
	err    error
	inode  uint64        // of the file that was read
	done   chan struct{} // closed when err and inode are set and the read has stopped writing to dst
}

// start passes a read to an idle reader, to a new one if there are fewer than Jobs, or to the first that becomes idle. Readers stay until
// Close: a goroutine for each read, with its growing stack, would add a tenth to the time of a small sample.
func (f *Fetcher) start(r *read) error {
	select {
	case f.reads <- r:
		return nil
	default:
	}
	if f.readers.Add(1) <= int64(f.o.Jobs) {
		f.late.Add(1)
		go f.readOn(r)
		return nil
	}
	f.readers.Add(-1)
	select {
	case f.reads <- r:
		return nil
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
}

// readOn carries out a read, and then further reads until Close.
func (f *Fetcher) readOn(r *read) {
	defer f.late.Done()
	for {
		r.err = f.o.Source.Read(r.ctx, r.entry, r.dst)
		close(r.done)
		r.cancel()
		select {
		case r = <-f.reads:
		case <-f.left:
			return
		}
	}
}

func (f *Fetcher) waited(index sample.Index, on string, err error) error {
	name, nameErr := f.o.Manifest.Name(index)
	if nameErr != nil {
		name = fmt.Sprintf("sample %d", index)
	}
	return &source.SampleError{Name: name, Op: "read", Err: fmt.Errorf("waited for %s: %w", on, err)}
}
