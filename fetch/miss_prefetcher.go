package fetch

import (
	"context"
	"sync"

	"lcache/sample"
	"lcache/staging"
)

// An Ask is a sample that the log does not keep, and its position in the epoch.
type Ask struct {
	Index              sample.Index
	Epoch, Rank, Batch int
}

// MissPrefetcher reads misses in the order in which they will be needed, as far as the miss ring has room, so that the source works
// in parallel with the disk. One sequence at a time; Start replaces the one before.
type MissPrefetcher struct {
	f *Fetcher

	// Skip reports whether a request is bringing a sample by index now, so that it need not be read ahead. A sample that was read already stays
	// until that request is answered. Nil skips nothing.
	Skip func(Ask) bool

	sweeping sync.Mutex // held by Sweep while it calls wanted; taken before mu

	slots chan struct{} // a token for each read

	mu       sync.Mutex // guards the fields that follow
	inFlight map[sample.Index]struct{}
	ready    []pending
	reads    *reads             // nil once stopped
	halt     context.CancelFunc // of the sequence
	listed   chan struct{}      // closed when its goroutine has ended
}

// reads are the reads in flight; they outlive the sequence that began them.
type reads struct {
	ctx  context.Context
	stop context.CancelFunc
	all  sync.WaitGroup
}

type pending struct {
	ask Ask
	x   *staging.Extent
}

// NewMissPrefetcher makes a MissPrefetcher that reads nothing yet.
func NewMissPrefetcher(f *Fetcher) *MissPrefetcher {
	return &MissPrefetcher{f: f, slots: make(chan struct{}, f.o.Jobs), inFlight: map[sample.Index]struct{}{}}
}

// Start begins a sequence, in place of the one before: next yields misses in order of need, ok false at the end; wanted reports whether a miss
// is still of use (its rank has not passed it, nor fallen behind). Samples that were read before, or are in flight, stay if they are wanted.
func (a *MissPrefetcher) Start(next func() (Ask, bool), wanted func(Ask) bool) {
	a.end()
	a.Sweep(wanted)
	ctx, cancel := context.WithCancel(context.Background())
	listed := make(chan struct{})
	a.mu.Lock()
	if a.reads == nil {
		a.reads = &reads{}
		a.reads.ctx, a.reads.stop = context.WithCancel(context.Background())
	}
	r := a.reads
	a.halt, a.listed = cancel, listed
	a.mu.Unlock()
	go func() {
		defer close(listed)
		a.list(ctx, r, next, wanted)
	}()
}

// end ends the sequence, not its reads.
func (a *MissPrefetcher) end() {
	a.mu.Lock()
	halt, listed := a.halt, a.listed
	a.halt = nil
	a.mu.Unlock()
	if halt != nil {
		halt()
		<-listed
	}
}

// Stop ends the sequence, joins its reads, and frees samples that were not delivered.
func (a *MissPrefetcher) Stop() {
	a.end()
	a.mu.Lock()
	r := a.reads
	a.reads = nil
	a.mu.Unlock()
	if r == nil {
		return
	}
	r.stop()
	r.all.Wait()
	a.Sweep(func(Ask) bool { return false })
}

// IsReading reports whether a sample is being read now.
func (a *MissPrefetcher) IsReading(index sample.Index) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.inFlight[index]
	return ok
}

// Sweep frees samples that were read ahead and are no longer wanted. wanted may take locks, but none that the caller of Sweep holds.
func (a *MissPrefetcher) Sweep(wanted func(Ask) bool) {
	a.sweeping.Lock()
	defer a.sweeping.Unlock()
	a.mu.Lock()
	ready := a.ready
	a.ready = nil
	a.mu.Unlock()
	kept := ready[:0]
	for _, p := range ready {
		switch {
		case !a.f.o.Staging.Kept(p.x): // it was delivered
		case wanted(p.ask): // called without mu: it takes locks of its own
			kept = append(kept, p)
		default:
			a.f.o.Staging.Withdraw(p.x)
		}
	}
	a.mu.Lock()
	a.ready = append(kept, a.ready...)
	a.mu.Unlock()
}

func (a *MissPrefetcher) skip(ask Ask) bool { return a.Skip != nil && a.Skip(ask) }

// list goes through a sequence and begins its reads.
func (a *MissPrefetcher) list(ctx context.Context, r *reads, next func() (Ask, bool), wanted func(Ask) bool) {
	for ctx.Err() == nil {
		ask, ok := next()
		if !ok {
			return
		}
		switch {
		case !wanted(ask) || a.skip(ask) || a.f.o.Staging.Present(ask.Index) || a.IsReading(ask.Index):
			continue
		case int64(a.f.o.Manifest.Size(ask.Index)) > a.f.o.Staging.MissBytes():
			continue // it never fits the ring: a request will read it by index, and the samples behind it don't wait
		}
		x := a.waitRing(ctx, ask, wanted)
		if x == nil {
			continue
		}
		select {
		case a.slots <- struct{}{}:
		case <-ctx.Done():
			a.f.o.Staging.Drop(x)
			return
		}
		// Set first, then checked: a request that looks in between waits for this read, or has noted that it reads the sample by index.
		a.mu.Lock()
		a.inFlight[ask.Index] = struct{}{}
		a.mu.Unlock()
		if !wanted(ask) || a.skip(ask) || a.f.o.Staging.Present(ask.Index) { // a request began to read it by index while the source was busy
			a.mu.Lock()
			delete(a.inFlight, ask.Index)
			a.mu.Unlock()
			a.f.o.Staging.Drop(x)
			a.f.o.Staging.Notify()
			<-a.slots
			continue
		}
		r.all.Add(1)
		go func() {
			defer r.all.Done()
			a.read(r.ctx, ask, x)
			<-a.slots
		}()
	}
}

// waitRing waits until the ring has room for a sample, and meanwhile sweeps out samples that are no longer wanted. It returns nil when the sample itself is
// no longer wanted.
func (a *MissPrefetcher) waitRing(ctx context.Context, ask Ask, wanted func(Ask) bool) *staging.Extent {
	for ctx.Err() == nil && wanted(ask) && !a.skip(ask) {
		changed := a.f.o.Staging.Changed()
		if x, ok := a.f.o.Staging.Alloc(staging.Miss, ask.Index, int(a.f.o.Manifest.Size(ask.Index))); ok {
			return x
		}
		a.Sweep(wanted)
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return nil
}

func (a *MissPrefetcher) read(ctx context.Context, ask Ask, x *staging.Extent) {
	data := x.Buf[:a.f.o.Manifest.Size(ask.Index)]
	late, err := a.f.Source(ctx, ask.Index, data)
	a.mu.Lock()
	delete(a.inFlight, ask.Index)
	if err == nil {
		a.f.o.Staging.PublishExtent(x, data, true)
		a.ready = append(a.ready, pending{ask, x})
	}
	a.mu.Unlock()
	if err == nil {
		return
	}
	// A request for the sample reads it by index, and gets the error or a second try.
	if late != nil {
		a.f.After(late, func() { a.f.o.Staging.Drop(x) })
	} else {
		a.f.o.Staging.Drop(x)
	}
	a.f.o.Staging.Notify()
}
