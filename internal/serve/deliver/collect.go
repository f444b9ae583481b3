package deliver

import (
	"context"
	"errors"
	"time"

	"lcache/internal/serve/fetch"
	"lcache/internal/serve/staging"
	"lcache/sample"
)

// mostPatience bounds how often a request's patience for a slot may run out. After that the request is served by index.
const mostPatience = 10

// collected is the state of a request: the addresses of its samples, and the Hold that keeps them.
type collected struct {
	q         *Request
	plan      Plan
	stats     *Stats // of the job
	indices   []sample.Index
	requested []sample.Index // as in Request
	have      []bool         // held, or empty
	there     []bool         // in staging at the last look
	addr      []staging.Address
	hold      staging.Hold
	fetched   int    // samples that were read by index
	skipped   []bool // samples that can't be read and are left out; nil: none
	awaited   []bool // samples that the request waits for; nil before the first look

	looked     bool // the first look is done
	prefetched int  // samples in memory at the first look

	stalled bool
	starved int              // how often its patience for a slot ran out
	slow    <-chan time.Time // fires when the request stops waiting for samples that are being read
	gaveUp  bool             // slow has fired
	all     bool             // the next attempt reserves room for all samples, and at the same time holds the samples that are in staging
}

// makeRoom waits for need bytes of memory in one piece. The request must hold nothing.
type makeRoom func(ctx context.Context, need int64) (*staging.Extent, error)

func (d *Deliver) newCollected(q *Request, plan Plan) *collected {
	n := len(q.Indices)
	r := &collected{q: q, plan: plan, stats: d.StatsOf(q.job()), indices: q.Indices, requested: q.Requested, have: make([]bool, n), there: make([]bool, n), addr: make([]staging.Address, n)}
	d.reset(r)
	return r
}

// reset releases all samples of a request.
func (d *Deliver) reset(r *collected) {
	d.o.Staging.Release(&r.hold)
	r.skipped, r.fetched = nil, 0
	for i, index := range r.indices {
		r.have[i] = d.o.Manifest.Size(index) == 0 // an empty sample is always a hit
	}
}

// collect holds all samples of a request. It first waits for the prefetch window, then for room for all absent samples, and holds
// nothing during both waits. After that it waits only for the disk and the source. After an error it holds nothing.
func (d *Deliver) collect(ctx context.Context, r *collected, room makeRoom) error {
	defer func() {
		if r.stalled {
			d.Stats.Stall.Leave()
			r.stats.Stall.Leave()
		}
	}()
	for {
		whole, err := d.await(ctx, r)
		if whole || err != nil {
			return err
		}
		again, err := d.fetch(ctx, r, room)
		if !again && err == nil {
			return nil
		}
		d.reset(r)
		if err != nil {
			return err
		}
	}
}

// await waits for the prefetch window. It returns true if all samples are held. It returns false if waiting would add
// no more samples: then the others are read by index.
//
//   - It waits for a slot only until its patience runs out, so that no wait depends on another rank's progress.
//   - It waits for samples that are being read for a third of the request's time. If a disk hangs and the scan stops, other locations
//     of the log and the source can still be read.
//   - It holds nothing meanwhile, so a sample in memory may be evicted while the window moves.
//   - The window does not follow a request without a position. Such a request waits once for each sample, and only for samples that
//     were expected at its first look.
func (d *Deliver) await(ctx context.Context, r *collected) (whole bool, err error) {
	w := &wait{r: r}
	defer w.stop()
	for {
		changed := d.o.Staging.Changed()
		absent := d.o.Staging.Take(&r.hold, r.indices, r.have, r.there, r.addr)
		d.look(r)
		if absent == 0 {
			return true, nil
		}
		if !r.stalled {
			r.stalled = true
			d.Stats.Stall.Enter()
			r.stats.Stall.Enter()
			r.slow = time.After(d.o.Timeout / 3)
		}
		if w.availability == nil {
			w.availability = make([]Availability, len(r.indices))
		}
		r.plan.Expect(r.indices, r.there, w.availability)
		loading, queued := w.expected()
		if !loading && !queued {
			return false, ctx.Err()
		}
		if queued && w.patience == nil {
			w.patience = time.NewTimer(d.o.Patience)
		}
		select {
		case <-changed:
		case <-w.outOfPatience():
			if queued { // unless it is being read by now
				r.starved++
				r.plan.LostPatience(r.indices, r.there)
			}
			w.patience.Reset(d.o.Patience)
		case <-r.slow:
			r.gaveUp = true
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// look counts the samples in memory at a request's first look. Empty samples do not count.
func (d *Deliver) look(r *collected) {
	if r.looked {
		return
	}
	r.looked = true
	for i, index := range r.indices {
		if r.there[i] && d.o.Manifest.Size(index) > 0 {
			r.prefetched++
		}
	}
}

// wait is a request's wait for the prefetch window.
type wait struct {
	r            *collected
	availability []Availability // the availability of each sample; nil before the first look
	patience     *time.Timer    // for a slot; nil until the request waits for one
}

// expected reports whether any sample that the request waits for is being read (loading), or waits for a slot
// (queued). It ignores samples that the request no longer waits for.
func (w *wait) expected() (loading, queued bool) {
	r := w.r
	if r.awaited == nil {
		r.awaited = make([]bool, len(r.indices))
		for i := range r.awaited {
			r.awaited[i] = true
		}
	}
	for i := range r.indices {
		comes := !r.there[i] && w.availability[i] != Gone
		r.awaited[i] = comes && (r.awaited[i] || r.q.Placed)
		if r.awaited[i] {
			loading = loading || w.availability[i] == Loading && !r.gaveUp
			queued = queued || w.availability[i] == Queued && r.starved <= mostPatience
		}
	}
	return loading, queued
}

// outOfPatience fires when the patience for a slot runs out.
func (w *wait) outOfPatience() <-chan time.Time {
	if w.patience == nil {
		return nil
	}
	return w.patience.C
}

func (w *wait) stop() {
	if w.patience != nil {
		w.patience.Stop()
	}
}

// fetch reads the samples that are not in staging by index, and holds the others. It first reserves room for all
// absent samples. A request with a position holds slots of the window meanwhile, because the window waits for that
// request anyway. A request without a position must not hold slots while the disk is read, because the window could
// not move. Samples that are evicted meanwhile are read too, if there is room at once. again means that there was no
// room, and the request must start over.
func (d *Deliver) fetch(ctx context.Context, r *collected, room makeRoom) (again bool, err error) {
	want, _ := r.absent()
	x, err := room(ctx, d.o.Fetcher.Need(want))
	if err != nil {
		return false, err
	}
	take := d.o.Staging.Take
	if r.q.Placed || r.all { // r.all: room was too small once, so no sample may be evicted now
		take, r.all = d.o.Staging.TakeSome, false
	}
	for {
		if take(&r.hold, r.indices, r.have, r.there, r.addr) == 0 {
			if x != nil {
				d.o.Staging.Drop(x)
			}
			return false, nil
		}
		want, at := r.absent()
		need := d.o.Fetcher.Need(want)
		if x == nil {
			x, _ = d.o.Fetcher.TryRoom(need)
		}
		if x == nil || need > int64(len(x.Buf)) {
			if x != nil {
				d.o.Staging.Drop(x)
			}
			r.all = true
			return true, nil
		}
		d.o.Staging.Shrink(x, int(need))
		if again, err := d.bring(ctx, r, x, want, at); again || err != nil {
			return again, err
		}
		x = nil
	}
}

// bring reads samples into x, which has room for them.
func (d *Deliver) bring(ctx context.Context, r *collected, x *staging.Extent, want []sample.Index, at []int) (again bool, err error) {
	extents, got := d.o.Fetcher.Into(fetch.CountedBy(ctx, &r.stats.Reads), x, want)
	for _, x := range extents {
		r.hold.Add(x)
	}
	for k, i := range at {
		err := got[k].Err
		if errors.Is(err, fetch.ErrNoRoom) { // the kernel may still write to a sample's room. Don't wait for the scan again, which may wait for the same disk
			r.gaveUp, r.starved = true, mostPatience+1
			return true, ctx.Err()
		}
		if err != nil && !d.skip(r, i, err) {
			return false, err
		}
		r.have[i] = true
		if r.isSkipped(i) {
			continue
		}
		r.addr[i] = staging.Address{Offset: d.o.Staging.OffsetOf(got[k].Data), From: got[k].From}
	}
	r.fetched += len(want)
	return false, nil
}

// absent lists the samples that are not in staging, and their positions. With r.all it lists the samples that are not held.
func (r *collected) absent() (want []sample.Index, at []int) {
	for i, index := range r.indices {
		if !r.have[i] && (r.all || !r.there[i]) {
			want, at = append(want, index), append(at, i)
		}
	}
	return want, at
}
