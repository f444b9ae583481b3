package fetch

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"lcache/internal/serve/staging"
	"lcache/logfile"
	"lcache/metaindex"
	"lcache/sample"
)

const (
	togetherBytes = 512 << 10 // of one read; more for a larger sample
	togetherGap   = 64 << 10  // the longest gap that is read too: less than a volume transfers in the time of one operation
	togetherReads = 16        // at once
)

// Stored is one sample's bytes from the log, unverified.
type Stored struct {
	I    int    // position in the list of indices
	Data []byte // valid until take returns
}

// Together reads the samples that a Logfile holds, with neighbours in one read, for a caller that knows them ahead. It calls take with
// the samples of one read at a time, on several goroutines; take returns the samples whose bytes are wrong. rest lists the samples
// that were not read, in order: they have no location, their bytes are wrong, memory was full, or the disk did not answer in time. The
// caller must read these one by one. Together does not wait for clients.
func (f *Fetcher) Together(ctx context.Context, indices []sample.Index, take func(samples []Stored) (wrong []int)) (rest []int) {
	t := &together{f: f, take: take}
	t.plan(indices)
	var readers sync.WaitGroup
	memory := f.o.Staging.SideBytes()
	if isForPeers(ctx) {
		memory = f.o.Staging.PeerBytes()
	}
	for i := range min(len(t.runs), togetherReads, max(1, int(memory/4/togetherBytes))) {
		x, ok := f.roomTogether(ctx, logfile.Span(4095, togetherBytes), i == 0)
		if !ok {
			break
		}
		readers.Go(func() { t.read(ctx, x) })
	}
	readers.Wait()
	t.giveUp() // no memory: no run was read
	slices.Sort(t.rest)
	return t.rest
}

// together is one call of Together.
type together struct {
	f    *Fetcher
	take func([]Stored) []int

	mu   sync.Mutex // guards the fields that follow
	runs []run
	rest []int
}

// run is a part of a segment's byte string that one read covers.
type run struct {
	num, seg int
	samples  []placed
}

// placed is a sample's position in its segment's byte string.
type placed struct {
	i   int
	off uint64
	n   int // bytes in the log
}

func (p placed) end() uint64 { return p.off + uint64(p.n) }

func (r run) bytes() int { return int(r.samples[len(r.samples)-1].end() - r.samples[0].off) }

// plan makes runs of the samples that have a location.
func (t *together) plan(indices []sample.Index) {
	type found struct {
		i   int
		loc metaindex.Loc
	}
	var list []found
	for i, index := range indices {
		if loc := t.f.o.Locations.Get(index); loc != 0 {
			list = append(list, found{i, loc})
		} else {
			t.rest = append(t.rest, i)
		}
	}
	slices.SortFunc(list, func(a, b found) int { return cmp.Compare(a.loc, b.loc) })
	for _, s := range list {
		num, seg, off, ok := t.f.o.Locations.Split(s.loc)
		p := placed{i: s.i, off: off, n: t.f.storedBytes(indices[s.i])}
		if !ok || p.n == 0 {
			t.rest = append(t.rest, s.i)
			continue
		}
		if k := len(t.runs) - 1; k >= 0 && t.runs[k].takes(num, seg, p) {
			t.runs[k].samples = append(t.runs[k].samples, p)
		} else {
			t.runs = append(t.runs, run{num: num, seg: seg, samples: []placed{p}})
		}
	}
}

// takes reports whether a sample can be read with the samples of the run.
func (r run) takes(num, seg int, p placed) bool {
	last := r.samples[len(r.samples)-1]
	return r.num == num && r.seg == seg && p.off >= last.end() && p.off-last.end() <= togetherGap && p.end()-r.samples[0].off <= togetherBytes
}

// storedBytes returns the bytes that a sample takes in the log; 0 if unknown.
func (f *Fetcher) storedBytes(index sample.Index) int {
	if f.o.Form != nil {
		return f.o.Form.Length(index)
	}
	return int(f.o.Manifest.Size(index))
}

// read reads runs until none is left, and drops x.
func (t *together) read(ctx context.Context, x *staging.Extent) {
	for {
		t.mu.Lock()
		if len(t.runs) == 0 {
			t.mu.Unlock()
			t.f.o.Staging.Drop(x)
			return
		}
		r := t.runs[0]
		t.runs = t.runs[1:]
		t.mu.Unlock()
		wrong, late := t.readRun(ctx, r, x)
		t.mu.Lock()
		t.rest = append(t.rest, wrong...)
		t.mu.Unlock()
		if late != nil {
			t.f.After(late, func() { t.f.o.Staging.Drop(x) })
			t.giveUp() // the disk did not answer in time
			return
		}
	}
}

// giveUp drops the runs that have not begun.
func (t *together) giveUp() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.runs {
		t.rest = append(t.rest, r.all()...)
	}
	t.runs = nil
}

func (r run) all() (list []int) {
	for _, p := range r.samples {
		list = append(list, p.i)
	}
	return list
}

// readRun reads a run to x and calls take. wrong lists the samples that were not read. late, if not nil, is closed when the kernel no longer writes to x.
func (t *together) readRun(ctx context.Context, r run, x *staging.Extent) (wrong []int, late <-chan struct{}) {
	f := t.f
	lf := f.o.Logfile(r.num)
	first := r.samples[0].off
	if lf == nil || ctx.Err() != nil || logfile.Span(first, r.bytes()) > len(x.Buf) { // a sample larger than togetherBytes gains nothing here
		return r.all(), nil
	}
	mine, cancel := context.WithTimeout(ctx, f.o.LogTimeout)
	defer cancel()
	data, err := f.readLog(mine, lf.ReadAhead, r.seg, first, r.bytes(), x.Buf)
	if pending := new(logfile.PendingError); errors.As(err, &pending) {
		f.Stats.Timeouts.Add(1)
		return r.all(), pending.Done
	}
	if err != nil {
		return r.all(), nil
	}
	samples := make([]Stored, len(r.samples))
	for k, p := range r.samples {
		at := p.off - first
		samples[k] = Stored{I: p.i, Data: data[at : at+uint64(p.n) : at+uint64(p.n)]}
	}
	return t.take(samples), nil
}
