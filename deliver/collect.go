package deliver

import (
	"context"
	"time"

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
}

// collect takes what is in staging, fetches what is not on its way, and waits for the rest: for a slot only as long as patience
// lasts, so that no wait depends on another rank's progress, and for what is being read for a third of the request's time: a disk
// that hangs may hold up the pass, but the log's other places and the source can still be asked.
func (d *Deliver) collect(ctx context.Context, r *collected, at *Position) error {
	coming := make([]Coming, len(r.indices))
	var patience *time.Timer
	var hungry <-chan time.Time
	var slow <-chan time.Time
	starved := 0
	stalled, hopeless := false, false
	defer func() {
		if patience != nil {
			patience.Stop()
		}
		if stalled {
			d.Stats.Stall.Leave()
		}
	}()
	for {
		changed := d.Staging.Changed()
		if d.Staging.Take(&r.hold, r.indices, r.have, r.there, r.addr) == 0 {
			return nil
		}
		if !stalled {
			stalled = true
			d.Stats.Stall.Enter()
			slow = time.After(d.Timeout / 3)
		}
		d.Window.Coming(at, r.indices, r.there, coming)
		var now []int
		queued := false
		for i := range r.indices {
			switch {
			case r.there[i]:
			case coming[i] == Gone || coming[i] == Queued && starved > mostPatience || coming[i] == Loading && hopeless:
				now = append(now, i)
			case coming[i] == Queued:
				queued = true
			}
		}
		if len(now) > 0 {
			if d.Staging.Take(&r.hold, r.indices, r.have, r.there, r.addr) == 0 {
				return nil
			}
			if err := d.fetch(ctx, r, now); err != nil { // less what came between the two looks
				return err
			}
			continue
		}
		if queued && hungry == nil {
			patience = time.NewTimer(d.Patience)
			hungry = patience.C
		}
		select {
		case <-changed:
		case <-hungry:
			if queued { // and not meanwhile being read
				starved++
				d.Window.Starved(at)
			}
			patience.Reset(d.Patience)
		case <-slow:
			hopeless = true
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// fetch brings samples by index into side memory.
func (d *Deliver) fetch(ctx context.Context, r *collected, which []int) error {
	var want []sample.Index
	var at []int
	for _, i := range which {
		if !r.there[i] {
			want, at = append(want, r.indices[i]), append(at, i)
		}
	}
	if len(want) == 0 {
		return nil
	}
	extents, got, err := d.Fetcher.Some(ctx, want)
	if err != nil {
		return err
	}
	for _, x := range extents {
		r.hold.Add(x)
	}
	for k, i := range at {
		if err := got[k].Err; err != nil && !d.skip(r, i, err) {
			return err
		}
		r.have[i] = true
		if r.isSkipped(i) {
			continue
		}
		r.addr[i] = staging.Address{Offset: d.Staging.OffsetOf(got[k].Data), FromSource: got[k].FromSource}
	}
	r.fetched += len(want)
	return nil
}
