package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lcache/internal/importance/score"
	"lcache/internal/importance/state"
	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/internal/store/cache"
	"lcache/sample"
)

// low returns the configuration of a job that allows substitutes, for ranks and a lag.
func low(world, lag int) string {
	return fmt.Sprintf(`{"method":"impact","substitute":"low","batch_size":16,"world_size":%d,"cache":1500000,"seed":5,"lag":%d,"params":{"s_share":0}}`, world, lag)
}

// servedEpoch has a training's requests in an epoch and the answers, by rank and batch.
type servedEpoch struct{ requested, served [][][]sample.Index }

// steps trains all ranks in step, one batch each in turn, and observes losses. It checks that each sample has its own bytes and label.
func (l losing) steps(t testing.TB, epoch, from int) (out servedEpoch) {
	t.Helper()
	return l.stepsObserved(t, epoch, from, func(rank, epoch, batch int, served []sample.Index) score.Observation {
		o := score.Observation{Kind: score.Losses, Rank: uint16(rank), Epoch: uint32(epoch), Batch: uint32(batch), Index: served}
		for _, i := range served {
			o.Loss = append(o.Loss, loss(i, epoch))
		}
		return o
	})
}

// stepsObserved is steps with other observations.
func (l losing) stepsObserved(t testing.TB, epoch, from int, observed func(rank, epoch, batch int, served []sample.Index) score.Observation) (out servedEpoch) {
	t.Helper()
	var clients []*deliver.Client
	out.requested, out.served = make([][][]sample.Index, l.world), make([][][]sample.Index, l.world)
	for range l.world {
		c := attach(t, l.e)
		defer c.Disconnected()
		clients = append(clients, c)
	}
	for b := from; ; b++ {
		over := 0
		for rank, c := range clients {
			got, err := c.ChunkAt(context.Background(), deliver.Position{Job: l.job, Epoch: epoch, Rank: rank, Batch: b})
			if errors.Is(err, io.EOF) {
				over++
				continue
			}
			if err == nil {
				err = l.d.check(l.e, got)
			}
			if err != nil {
				t.Fatalf("epoch %d rank %d batch %d: %v", epoch, rank, b, err)
			}
			served, requested := slices.Clone(got.Indices), slices.Clone(got.Requested)
			if requested == nil {
				requested = served
			}
			c.Release(got.Lease)
			out.served[rank], out.requested[rank] = append(out.served[rank], served), append(out.requested[rank], requested)
			l.e.Observe(l.job, observed(rank, epoch, b, served))
		}
		if over == l.world {
			return out
		}
	}
}

// substitutes checks an epoch by the law, and returns how many samples were replaced. If the epoch was planned for other ranks, a rank may get a sample that another one reads in the same step.
func (s servedEpoch) substitutes(t testing.TB, high func(sample.Index) bool, replanned bool) (n int) {
	t.Helper()
	before := map[sample.Index]bool{}
	for b := range s.served[0] {
		step := before
		if replanned {
			step = maps.Clone(before)
		}
		for rank := range s.served {
			if b >= len(s.served[rank]) {
				continue
			}
			requested, served := s.requested[rank][b], s.served[rank][b]
			if len(requested) != len(served) {
				t.Fatalf("rank %d batch %d: %d samples for %d", rank, b, len(served), len(requested))
			}
			for k, i := range served {
				if i == requested[k] {
					continue
				}
				n++
				if high(i) || high(requested[k]) || step[i] || slices.Contains(requested, i) || slices.Contains(served[:k], i) || slices.Contains(served[k+1:], i) {
					t.Errorf("rank %d batch %d: %d stands in for %d; H %v and %v, served before %v; batch %v for %v", rank, b, i, requested[k], high(i), high(requested[k]), step[i], served, requested)
				}
			}
			for _, i := range served {
				before[i] = true
			}
		}
	}
	return n
}

// highNow returns the H-list by the current values.
func (e *Engine) highNow(t testing.TB, job int) func(sample.Index) bool {
	t.Helper()
	high := map[sample.Index]bool{}
	err := e.viewState(job, func(s *state.State) {
		set, err := s.High()
		if err != nil {
			t.Fatal(err)
		}
		defer set.Close()
		for i := range set.All {
			high[i] = true
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return func(i sample.Index) bool { return high[i] }
}

// begin waits until an epoch has begun, and returns the order of each rank, in any order of ranks.
func (l losing) begin(t testing.TB, epoch int) (order [][]sample.Index) {
	t.Helper()
	byRank := make(chan []sample.Index)
	for rank := range l.world {
		go func() {
			page, _, err := l.e.OrderPage(context.Background(), l.job, epoch, rank, 0, math.MaxUint32)
			if err != nil {
				t.Error(err)
			}
			byRank <- page
		}()
	}
	for range l.world {
		order = append(order, <-byRank)
	}
	waitFor(t, fmt.Sprintf("epoch %d begins", epoch), func() bool { // with lag 1 its order was known before
		return l.e.lookUp(l.job).importanceStatus().Epoch >= epoch
	})
	return order
}

// TestLowServes: in each layout and world, L-samples that are not loaded are replaced by the law, H-samples are not, and the requested samples are known. The counters and both digests agree.
func TestLowServes(t *testing.T) {
	inLayouts(t, func(t *testing.T, layout string) {
		for world, lag := range map[int]int{1: 0, 2: 1, 3: 0} {
			d, o := small(t, schedule.Job{World: world})
			o.Layout, o.Patience, o.LateEpoch = layout, 20*time.Second, time.Minute
			e := open(t, o)
			l := losing{d: d, e: e, world: world}
			for rank := range world {
				l.ask(t, rank, low(world, lag))
			}
			total := 0
			var high []func(sample.Index) bool // the H-list when each epoch began: that of the epoch lag later is the same
			for epoch := range 4 {
				order := l.begin(t, epoch)
				high = append(high, e.highNow(t, 0))
				got := l.steps(t, epoch, 0)
				n := got.substitutes(t, high[max(epoch-lag, 0)], false)
				if epoch <= lag && n > 0 || epoch > lag && n < 100 {
					t.Errorf("world %d, epoch %d: %d substitutes", world, epoch, n)
				}
				total += n
				var pages [][]sample.Index
				for rank := range world {
					pages = append(pages, slices.Concat(got.requested[rank]...))
				}
				for _, page := range order { // in any order of ranks
					if !slices.ContainsFunc(pages, func(p []sample.Index) bool { return slices.Equal(p, page) }) {
						t.Errorf("epoch %d: a rank was told another order than it asks for", epoch)
					}
				}
			}
			s := e.Status().Jobs[0]
			closeEngine(t, e)
			i := s.Importance
			if i.Substitute != "low" || i.Lag != fmt.Sprint(lag) || int(i.Substituted) != total || i.SubstitutedMax != 1 || i.LBytes <= 0 || i.PackagesLoaded <= 0 || i.LHits <= 0 {
				t.Errorf("%d substitutes, status %+v", total, i)
			}
			if sum := i.HHits + i.LHits + i.HomophilyHits + i.Substituted + i.LogHits + i.SourceMisses; i.Requested != sum {
				t.Errorf("%d requested, the parts are %d", i.Requested, sum)
			}
			if s.Divergences != 0 || len(s.EpochsDone) < 3 {
				t.Errorf("%d divergences, %d epochs done", s.Divergences, len(s.EpochsDone))
			}
			for _, done := range s.EpochsDone {
				if done.OrderDigest == nil || done.RequestedDigest == nil {
					t.Errorf("epoch %d has no digests", done.Epoch)
				} else if same := *done.OrderDigest == *done.RequestedDigest; same != (done.Epoch <= lag) {
					t.Errorf("epoch %d: digests are the same: %v", done.Epoch, same)
				}
			}
		}
	})
}

// TestLowByIndex: a request by index is served like the epoch's own request if its position and samples match the epoch. All others are exact: without a position, at another position, with other
// samples, in an epoch that is not drawn, in another job, or for the served samples.
func TestLowByIndex(t *testing.T) {
	d, o := small(t, schedule.Job{World: 1})
	o.Patience, o.LateEpoch = 20*time.Second, time.Minute
	e := open(t, o)
	defer closeEngine(t, e)
	l := losing{d: d, e: e, world: 1}
	l.ask(t, 0, low(1, 0))
	l.begin(t, 0)
	l.steps(t, 0, 0)
	order := l.begin(t, 1)[0]
	other, err := e.Join("other")
	if err != nil {
		t.Fatal(err)
	}
	defer e.Leave(other)
	c := attach(t, e)
	defer c.Disconnected()
	get := func(indices []sample.Index, at *deliver.Position) *deliver.Batch {
		t.Helper()
		b, err := c.Get(t.Context(), indices, at)
		if err == nil {
			err = d.check(e, b)
		}
		if err != nil {
			t.Fatal(err)
		}
		c.Release(b.Lease)
		return b
	}
	honest := attach(t, e) // belongs to a program that expects exactly the samples that it requests
	defer honest.Disconnected()
	c.TakesOthers()
	replaced := 0
	for batch, asked := range slices.Collect(slices.Chunk(order, 16)) {
		at := deliver.Position{Epoch: 1, Batch: batch}
		want, err := e.samplesAt(t.Context(), at)
		if err != nil || !slices.Equal(want.Requested, asked) {
			t.Fatalf("batch %d: %v, requested %v, want %v", batch, err, want.Requested, asked)
		}
		elsewhere, ahead := at, at
		elsewhere.Batch, ahead.Epoch = (batch+1)%(len(order)/16), 2
		for name, exact := range map[string]*deliver.Position{"no position": nil, "another one": &elsewhere, "an epoch that is not drawn": &ahead, "another job": {Job: other, Epoch: 1, Batch: batch}, "no rank": {Rank: -1}} {
			if got := get(asked, exact); !slices.Equal(got.Indices, asked) || got.Requested != nil {
				t.Errorf("%s: %v for %v", name, got.Indices, asked)
			}
		}
		if got := get(asked[1:], &at); !slices.Equal(got.Indices, asked[1:]) {
			t.Errorf("a part of the batch: %v for %v", got.Indices, asked[1:])
		}
		if slices.Equal(want.Indices, asked) {
			continue
		}
		if got := get(want.Indices, &at); !slices.Equal(got.Indices, want.Indices) || got.Requested != nil {
			t.Errorf("a request for the served samples: got %v, want %v", got.Indices, want.Indices)
		}
		if got := get(asked, &at); !slices.Equal(got.Indices, want.Indices) || !slices.Equal(got.Requested, asked) {
			t.Errorf("the epoch's own: %v for %v, want %v", got.Indices, got.Requested, want.Indices)
		}
		if got, err := honest.Get(t.Context(), asked, &at); err != nil || !slices.Equal(got.Indices, asked) {
			t.Errorf("of a program that knows nothing of substitutes: %v, %v for %v", err, got, asked)
		} else {
			honest.Release(got.Lease)
		}
		loan, err := c.Lend(t.Context(), asked, 3, &at)
		if err != nil || !slices.Equal(loan.Indices, want.Indices[3:loan.Next]) || !slices.Equal(loan.Requested, asked[3:loan.Next]) {
			t.Errorf("lent: %v, %+v, want %v for %v", err, loan, want.Indices[3:], asked[3:])
		}
		c.Copied(loan.Lease)
		replaced++
	}
	if replaced < 10 {
		t.Errorf("only %d batches with substitutes", replaced)
	}
}

// TestLowRestarts: a server that stops or is killed, within an epoch or between two, continues with the same two orders. This also holds if another number of ranks reads the remainder.
func TestLowRestarts(t *testing.T) {
	d, o := small(t, schedule.Job{})
	o.Patience, o.LateEpoch = 20*time.Second, time.Minute
	e := open(t, o)
	l := losing{d: d, e: e, world: 1}
	l.ask(t, 0, low(1, 0))
	for epoch := range 2 {
		l.begin(t, epoch)
		l.steps(t, epoch, 0)
	}
	requested := l.begin(t, 2)[0] // both orders are saved
	high := e.highNow(t, 0)
	want := l.steps(t, 2, 0)
	closeEngine(t, e)
	for _, world := range []int{1, 3} {
		e = open(t, o)
		l = losing{d: d, e: e, world: world}
		for rank := range world {
			l.ask(t, rank, low(world, 0))
		}
		got := l.steps(t, 2, 0)
		got.substitutes(t, high, world > 1)
		differs := 0
		for k, i := range requested {
			rank, place := k%world, k/world
			at, served := got.requested[rank][place/16][place%16], got.served[rank][place/16][place%16]
			if at != i {
				t.Fatalf("world %d: place %d is asked for by %d, want %d", world, k, at, i)
			}
			if before := want.served[0][k/16][k%16]; served != before {
				differs++
				if served != i {
					t.Errorf("world %d: place %d is served by %d, want %d or itself", world, k, served, before)
				}
			}
		}
		if differs > 0 && (world == 1 || differs > len(requested)/20) {
			t.Errorf("world %d: %d of %d places are served by something else after a restart", world, differs, len(requested))
		}
		l.steps(t, 3, 0) // and the epoch after it is drawn, and served
		closeEngine(t, e)
	}
}

// TestLowSourceError: a missing file is an error of its sample. No other sample is served instead.
func TestLowSourceError(t *testing.T) {
	d, o := small(t, schedule.Job{World: 1})
	o.Layout, o.Patience, o.LateEpoch = cache.LayoutStatic, 20*time.Second, time.Minute
	source, goes := vanishing()
	o.Source = source
	e := open(t, o)
	defer closeEngine(t, e)
	l := losing{d: d, e: e, world: 1}
	l.ask(t, 0, low(1, 0))
	l.begin(t, 0)
	l.steps(t, 0, 0)
	goes()
	for i := range d.bytes { // as if every block were damaged
		e.cache.Locations.Set(sample.Index(i), 0)
	}
	order := l.begin(t, 1)[0]
	c := attach(t, e)
	defer c.Disconnected()
	failed := 0
	for b, asked := range slices.Collect(slices.Chunk(order, 16)) {
		got, err := c.ChunkAt(t.Context(), deliver.Position{Epoch: 1, Batch: b})
		if err != nil {
			if !errors.Is(err, unix.ENOENT) {
				t.Fatal(err)
			}
			failed++
			continue
		}
		if !slices.Equal(got.Indices, asked) {
			t.Errorf("batch %d: %v for %v", b, got.Indices, asked)
		}
		c.Release(got.Lease)
	}
	if failed == 0 {
		t.Error("no batch failed")
	}
}

// TestWithoutSubstitutes: a job that does not allow substitutes gets the drawn samples, and has one order.
func TestWithoutSubstitutes(t *testing.T) {
	d, o := small(t, schedule.Job{World: 1})
	o.Patience = 20 * time.Second
	e := open(t, o)
	defer closeEngine(t, e)
	l := losing{d: d, e: e, world: 1}
	l.ask(t, 0, `{"method":"impact","lag":0,"batch_size":16,"cache":1500000,"seed":5,"params":{"s_share":0}}`)
	for epoch := range 3 {
		order := l.begin(t, epoch)[0]
		got := l.steps(t, epoch, 0)
		if !slices.Equal(slices.Concat(got.served[0]...), order) || e.owner.importance.Load().Requested(epoch) != nil {
			t.Errorf("epoch %d: something else is served than was drawn", epoch)
		}
	}
	if i := e.Status().Jobs[0].Importance; i.Substituted != 0 || i.LHits != 0 || i.LBytes != 0 || i.Substitute != "" {
		t.Errorf("%+v", i)
	}
}
