package deliver

import (
	"context"
	"errors"
	"time"

	"lcache/fetch"
	"lcache/sample"
	"lcache/staging"
)

// mostPatience is how often a request is told to wait on for a slot before it is served by index, whatever the window says.
const mostPatience = 10

// collected is a request on its way: what was found so far, and what keeps it there.
type collected struct {
	indices []sample.Index
	have    []bool // held, or empty
	there   []bool // in staging when it was last looked up
	addr    []staging.Address
	hold    staging.Hold
	fetched int    // brought by index
	skipped []bool // can't be had and are left out; nil: none
	awaited []bool // are waited for; nil: not looked yet

	stalled  bool
	starved  int              // how often it was said that no slot is free
	slow     <-chan time.Time // what is being read by then is no longer waited for
	hopeless bool             // that time has come
	all      bool             // room is asked for as if nothing were in staging, and what is there is held at once
}

// makeRoom waits for need bytes of memory in one piece, for a request that holds nothing.
type makeRoom func(ctx context.Context, need int64) (*staging.Extent, error)

func (d *Deliver) newCollected(indices []sample.Index) *collected {
	r := &collected{indices: indices, have: make([]bool, len(indices)), there: make([]bool, len(indices)), addr: make([]staging.Address, len(indices))}
	d.reset(r)
	return r
}

// reset gives back what a request holds.
func (d *Deliver) reset(r *collected) {
	d.Staging.Release(&r.hold)
	r.skipped, r.fetched = nil, 0
	for i, index := range r.indices {
		r.have[i] = d.Manifest.Size(index) == 0 // nothing to bring: always a hit
	}
}

// collect holds all samples of a request. First it waits for what the pass brings, then for room for all that is absent, and holds
// nothing until it has that: then only the disk and the source are between it and its end. After an error it holds nothing.
func (d *Deliver) collect(ctx context.Context, r *collected, at *Position, room makeRoom) error {
	defer func() {
		if r.stalled {
			d.Stats.Stall.Leave()
		}
	}()
	for {
		whole, err := d.await(ctx, r, at)
		if whole || err != nil {
			return err
		}
		again, err := d.fetch(ctx, r, at, room)
		if !again && err == nil {
			return nil
		}
		d.reset(r)
		if err != nil {
			return err
		}
	}
}

// await returns when all samples can be held, and are, or when waiting brings no more of them: for a slot only as long as patience
// lasts, so that no wait depends on another rank's progress, and for what is being read for a third of the request's time: a disk
// that hangs may hold up the pass, but the log's other places and the source can still be asked. Nothing is held meanwhile, so what
// is there may go again while the window moves. For a request without a position, which the window does not follow, only samples
// that were on their way at the first look are waited for, and each once.
func (d *Deliver) await(ctx context.Context, r *collected, at *Position) (whole bool, err error) {
	coming := make([]Coming, len(r.indices))
	var patience *time.Timer
	var hungry <-chan time.Time
	defer func() {
		if patience != nil {
			patience.Stop()
		}
	}()
	for {
		changed := d.Staging.Changed()
		if d.Staging.Take(&r.hold, r.indices, r.have, r.there, r.addr) == 0 {
			return true, nil
		}
		if !r.stalled {
			r.stalled = true
			d.Stats.Stall.Enter()
			r.slow = time.After(d.Timeout / 3)
		}
		d.Window.Coming(at, r.indices, r.there, coming)
		if r.awaited == nil {
			r.awaited = make([]bool, len(r.indices))
			for i := range r.awaited {
				r.awaited[i] = true
			}
		}
		loading, queued := false, false
		for i := range r.indices {
			comes := !r.there[i] && coming[i] != Gone
			r.awaited[i] = comes && (r.awaited[i] || at != nil)
			if r.awaited[i] {
				loading = loading || coming[i] == Loading && !r.hopeless
				queued = queued || coming[i] == Queued && r.starved <= mostPatience
			}
		}
		if !loading && !queued {
			return false, ctx.Err()
		}
		if queued && hungry == nil {
			patience = time.NewTimer(d.Patience)
			hungry = patience.C
		}
		select {
		case <-changed:
		case <-hungry:
			if queued { // and not meanwhile being read
				r.starved++
				d.Window.Starved(at)
			}
			patience.Reset(d.Patience)
		case <-r.slow:
			r.hopeless = true
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// fetch brings by index what is not in staging, into room that it has reserved for all of it before, and holds the rest. A request with a position
// holds the slots of the window that waits for it anyway. One without holds none while the disk is read, since the window could not move: what has
// gone from them meanwhile is brought, too, if there is room at once. again says that there was none, and the request has to begin again.
func (d *Deliver) fetch(ctx context.Context, r *collected, position *Position, room makeRoom) (again bool, err error) {
	want, _ := r.absent()
	x, err := room(ctx, d.Fetcher.Need(want))
	if err != nil {
		return false, err
	}
	take := d.Staging.Take
	if position != nil || r.all { // with r.all there was too little room before: now nothing may go
		take, r.all = d.Staging.TakeSome, false
	}
	for {
		if take(&r.hold, r.indices, r.have, r.there, r.addr) == 0 {
			if x != nil {
				d.Staging.Drop(x)
			}
			return false, nil
		}
		want, at := r.absent()
		need := d.Fetcher.Need(want)
		if x == nil {
			x, _ = d.Fetcher.TryRoom(need)
		}
		if x == nil || need > int64(len(x.Buf)) {
			if x != nil {
				d.Staging.Drop(x)
			}
			r.all = true
			return true, nil
		}
		d.Staging.Shrink(x, int(need))
		if again, err := d.bring(ctx, r, x, want, at); again || err != nil {
			return again, err
		}
		x = nil
	}
}

// bring reads samples into x, which has room for them.
func (d *Deliver) bring(ctx context.Context, r *collected, x *staging.Extent, want []sample.Index, at []int) (again bool, err error) {
	extents, got := d.Fetcher.Into(ctx, x, want)
	for _, x := range extents {
		r.hold.Add(x)
	}
	for k, i := range at {
		err := got[k].Err
		if errors.Is(err, fetch.ErrNoRoom) { // the disk owns the room of a sample: the pass, which may wait for it as well, is not asked again
			r.hopeless, r.starved = true, mostPatience+1
			return true, ctx.Err()
		}
		if err != nil && !d.skip(r, i, err) {
			return false, err
		}
		r.have[i] = true
		if r.isSkipped(i) {
			continue
		}
		r.addr[i] = staging.Address{Offset: d.Staging.OffsetOf(got[k].Data), FromSource: got[k].FromSource}
	}
	r.fetched += len(want)
	return false, nil
}

// absent lists the samples that are not in staging, and their positions; with r.all those that are not held.
func (r *collected) absent() (want []sample.Index, at []int) {
	for i, index := range r.indices {
		if !r.have[i] && (r.all || !r.there[i]) {
			want, at = append(want, index), append(at, i)
		}
	}
	return want, at
}
