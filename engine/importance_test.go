package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lcache/internal/importance/score"
	"lcache/internal/importance/state"
	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/sample"
)

// losing is a job with importance in tests. Its losses depend only on sample and epoch.
type losing struct {
	d     *dataset
	e     *Engine
	job   int
	world int
	loss  func(i sample.Index, epoch int) float32 // nil: one that differs from epoch to epoch
}

func loss(i sample.Index, epoch int) float32 { return float32((int(i)*37+epoch*11)%101) / 10 }

// observed trains an epoch of a job, checks its bytes, and calls each before each batch.
func (l losing) observed(t *testing.T, c *deliver.Client, epoch int, each func(batch int)) (order []sample.Index) {
	t.Helper()
	if l.loss == nil {
		l.loss = loss
	}
	for batch := range 1000 {
		each(batch)
		got, err := c.ChunkAt(context.Background(), deliver.Position{Job: l.job, Epoch: epoch, Batch: batch})
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = l.d.check(l.e, got)
		}
		if err != nil {
			t.Fatalf("epoch %d batch %d: %v", epoch, batch, err)
		}
		o := score.Observation{Kind: score.Losses, Epoch: uint32(epoch), Batch: uint32(batch), Index: slices.Clone(got.Indices), Node: sample.None}
		c.Release(got.Lease)
		order = append(order, o.Index...)
		for _, i := range o.Index {
			o.Loss = append(o.Loss, l.loss(i, epoch))
		}
		l.e.Observe(l.job, o)
		time.Sleep(2 * time.Millisecond) // the model computes
	}
	return order
}

// ask requests importance for a rank.
func (l losing) ask(t testing.TB, rank int, text string) {
	t.Helper()
	if _, err := l.e.Importance(t.Context(), l.job, rank, "run", []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// train reads a rank's epoch from a batch on, and observes it.
func (l losing) train(c *deliver.Client, epoch, rank, from int) (order []sample.Index, err error) {
	for b := from; ; b++ {
		got, err := c.ChunkAt(context.Background(), deliver.Position{Job: l.job, Epoch: epoch, Rank: rank, Batch: b})
		if errors.Is(err, io.EOF) {
			return order, nil
		}
		if err != nil {
			return nil, fmt.Errorf("epoch %d rank %d batch %d: %w", epoch, rank, b, err)
		}
		if err := l.d.check(l.e, got); err != nil {
			return nil, fmt.Errorf("epoch %d rank %d batch %d: %w", epoch, rank, b, err)
		}
		indices := slices.Clone(got.Indices)
		c.Release(got.Lease)
		o := score.Observation{Kind: score.Losses, Rank: uint16(rank), Epoch: uint32(epoch), Batch: uint32(b), Index: indices}
		for _, i := range indices {
			o.Loss = append(o.Loss, loss(i, epoch))
		}
		l.e.Observe(l.job, o)
		order = append(order, indices...)
	}
}

// epochs trains all ranks concurrently, and returns the global order of each epoch.
func (l losing) epochs(t testing.TB, from, to int) (orders [][]sample.Index) {
	t.Helper()
	byRank := make([][][]sample.Index, l.world)
	var ranks sync.WaitGroup
	for rank := range l.world {
		c := attach(t, l.e)
		ranks.Go(func() {
			defer c.Disconnected()
			for epoch := from; epoch < to; epoch++ {
				order, err := l.train(c, epoch, rank, 0)
				if err != nil {
					t.Error(err)
					return
				}
				byRank[rank] = append(byRank[rank], order)
			}
		})
	}
	ranks.Wait()
	if t.Failed() {
		t.FailNow()
	}
	for epoch := range to - from {
		var order []sample.Index
		for k := range byRank[0][epoch] {
			for rank := range l.world {
				order = append(order, byRank[rank][epoch][k])
			}
		}
		orders = append(orders, order)
	}
	return orders
}

const shade = `{"method":"shade","batch_size":16,"cache":0,"lag":%d,"seed":5}`

// TestImportance: orders are drawn from observations, and are the same in both layouts and for every world size. Every byte is right, and nothing diverges from the schedule.
func TestImportance(t *testing.T) {
	for _, lag := range []int{0, 1} {
		t.Run(fmt.Sprint("lag ", lag), func(t *testing.T) {
			var first [][]sample.Index
			inLayouts(t, func(t *testing.T, layout string) {
				for _, world := range []int{1, 2} {
					d, o := small(t, schedule.Job{World: world})
					o.Layout, o.Patience = layout, 20*time.Second
					e := open(t, o)
					l := losing{d: d, e: e, world: world}
					for rank := range world {
						l.ask(t, rank, fmt.Sprintf(`{"world_size":%d,%s`, world, fmt.Sprintf(shade, lag)[1:]))
					}
					orders := l.epochs(t, 0, 4)
					s := e.Status().Jobs[0]
					closeEngine(t, e)
					if s.Divergences != 0 || len(s.EpochsDone) != 4 || s.EpochsDone[3].OrderDigest == nil {
						t.Errorf("%d divergences, %d epochs done", s.Divergences, len(s.EpochsDone))
					}
					if i := s.Importance; i == nil || i.State != "active" || i.ObservationsDropped != 0 {
						t.Errorf("importance %+v", s.Importance)
					}
					for epoch := range orders {
						orders[epoch] = orders[epoch][:len(d.bytes)] // without the samples that pad it to a multiple of the world size
					}
					if plain := slices.Compact(slices.Sorted(slices.Values(orders[lag]))); len(plain) != len(d.bytes) {
						t.Errorf("epoch %d has %d distinct samples, want a plain permutation", lag, len(plain))
					}
					if drawn := slices.Compact(slices.Sorted(slices.Values(orders[lag+1]))); len(drawn) == len(d.bytes) {
						t.Errorf("epoch %d is a plain permutation", lag+1)
					}
					if first == nil {
						first = orders
					}
					for epoch := range orders {
						if world == 1 && !slices.Equal(orders[epoch], first[epoch]) {
							t.Errorf("world %d: epoch %d has another order than in the other layout", world, epoch)
						}
					}
				}
			})
		})
	}
}

// TestImportanceOverRecipe: plain epochs are the recipe's, and drawn ones are not; the log that holds the recipe's first epoch serves it.
func TestImportanceOverRecipe(t *testing.T) {
	j := samplerJob(4, 16, 1, false)
	d, o := small(t, j)
	e := open(t, o)
	defer closeEngine(t, e)
	l := losing{d: d, e: e, world: 1}
	l.ask(t, 0, `{"method":"shade","lag":1}`)
	orders := l.epochs(t, 0, 4)
	for epoch, order := range orders {
		if got, want := slices.Equal(order, d.want(t, j, epoch, 0)), epoch < 2; got != want {
			t.Errorf("epoch %d has the recipe's order: %v, want %v", epoch, got, want)
		}
	}
	noSource(t, e)
	for want, text := range map[string]string{
		"b0 10 and 12":     `{"method":"shade","lag":1,"params":{"b0":12}}`,
		"method":           `{"method":"impact","lag":1}`,
		"leave substitute": `{"method":"impact","substitute":"class"}`,
		"world_size 2":     `{"method":"shade","lag":1,"world_size":2}`,
		"there are impact": `{"method":"mine"}`,
	} {
		if _, err := e.Importance(t.Context(), 0, 0, "run", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if err := e.Push(schedule.Pusher{Pid: os.Getpid()}, 5, 0, [][]sample.Index{{1}}); err == nil || !strings.Contains(err.Error(), "draws the orders of this job") {
		t.Errorf("a pushed order: %v", err)
	}
	other, err := e.Join("other")
	if err != nil {
		t.Fatal(err)
	}
	defer e.Leave(other)
	if _, err := e.Importance(t.Context(), other, 0, "run", []byte(`{"method":"shade"}`)); err == nil || !strings.Contains(err.Error(), "name=") {
		t.Errorf("another job with the same name: %v", err)
	}
}

// TestImportanceRestarts: a server that ends in the middle of an epoch, or between two, continues with the same order, even if another number of ranks reads it. With lag 1 this holds for the next epoch, too, which was drawn
// before.
func TestImportanceRestarts(t *testing.T) {
	for _, lag := range []int{0, 1} {
		t.Run(fmt.Sprint("lag ", lag), func(t *testing.T) {
			d, o := small(t, schedule.Job{})
			o.Patience = 20 * time.Second
			e := open(t, o)
			l := losing{d: d, e: e, world: 1}
			text := fmt.Sprintf(shade, lag)
			l.ask(t, 0, text)
			l.epochs(t, 0, 2)
			c := attach(t, e)
			want := [][]sample.Index{nil}
			var err error
			if want[0], err = l.train(c, 2, 0, 0); err != nil { // the state was saved before its first batch
				t.Fatal(err)
			}
			if lag == 1 {
				if err := e.viewState(0, func(s *state.State) { want = append(want, slices.Clone(s.Order(3).Indices)) }); err != nil {
					t.Fatal(err)
				}
			}
			c.Disconnected()
			closeEngine(t, e)
			for _, world := range []int{1, 3} {
				e = open(t, o)
				l = losing{d: d, e: e, world: world}
				for rank := range world {
					l.ask(t, rank, fmt.Sprintf(`{"world_size":%d,%s`, world, text[1:]))
				}
				for k, got := range l.epochs(t, 2, 2+len(want)) {
					if !slices.Equal(got[:len(want[k])], want[k]) {
						t.Errorf("world %d: epoch %d has another order after a restart", world, 2+k)
					}
				}
				closeEngine(t, e)
			}
		})
	}
}

// TestImportanceLateRank: a rank that never comes to the next epoch delays the others once, and no longer than LateEpoch.
func TestImportanceLateRank(t *testing.T) {
	d, o := small(t, schedule.Job{World: 2})
	o.LateEpoch = 50 * time.Millisecond
	e := open(t, o)
	defer closeEngine(t, e)
	l := losing{d: d, e: e, world: 2}
	for rank := range 2 {
		l.ask(t, rank, `{"world_size":2,`+fmt.Sprintf(shade, 0)[1:])
	}
	c := attach(t, e)
	defer c.Disconnected()
	for epoch := range 3 {
		if _, err := l.train(c, epoch, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	if s := e.Status().Jobs[0].Importance; s.Epoch != 2 || s.ObservedShare <= 0 || s.ObservedShare > 0.6 {
		t.Errorf("epoch %d, observed %v of the samples", s.Epoch, s.ObservedShare)
	}
}

// TestImportanceMissingData: importance needs a dataset with samples, and a job that has turned it on.
func TestWithoutImportance(t *testing.T) {
	d, o := small(t, schedule.Job{})
	e := open(t, o)
	defer closeEngine(t, e)
	e.Observe(0, score.Observation{Kind: score.Losses, Index: []sample.Index{1}, Loss: []float32{1}})
	e.EndEpoch(0, 0, score.Progress{}, Unsent{})
	e.Observe(99, score.Observation{})
	if _, err := e.Weights(0, 0, []sample.Index{1}); err == nil {
		t.Error("weights without importance")
	}
	if _, _, err := e.OrderPage(t.Context(), 0, 0, 0, 0, 10); err == nil {
		t.Error("an order without importance")
	}
	if s := e.Status().Jobs[0]; s.Importance != nil {
		t.Errorf("%+v", s.Importance)
	}
	_ = d
}

// TestOrderPages: the pages of an order are the orders that the ranks read.
func TestOrderPages(t *testing.T) {
	d, o := small(t, schedule.Job{})
	e := open(t, o)
	defer closeEngine(t, e)
	l := losing{d: d, e: e, world: 1}
	l.ask(t, 0, fmt.Sprintf(shade, 0))
	want := l.epochs(t, 0, 2)[1]
	var got []sample.Index
	for {
		page, total, err := e.OrderPage(t.Context(), 0, 1, 0, uint32(len(got)), 37)
		if err != nil || total != len(want) {
			t.Fatalf("%v, %d in all, want %d", err, total, len(want))
		}
		if len(page) == 0 {
			break
		}
		got = append(got, page...)
	}
	if !slices.Equal(got, want) {
		t.Error("the pages are not the order")
	}
}

// TestImportanceOfASecondTraining: a second training of a job begins with epoch 0. The first one's observations are forgotten, and its own count.
func TestImportanceOfASecondTraining(t *testing.T) {
	d, o := small(t, schedule.Job{})
	o.Patience = 20 * time.Second
	e := open(t, o)
	defer closeEngine(t, e)
	const world = 3
	l := losing{d: d, e: e, world: world}
	text := fmt.Sprintf(`{"method":"impact","batch_size":16,"cache":0,"lag":0,"seed":5,"world_size":%d,"params":{"s_share":0}}`, world)
	var orders [2][][]sample.Index
	for training := range orders {
		for rank := range world {
			if _, err := e.Importance(t.Context(), 0, rank, fmt.Sprint("training ", training, rank), []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		orders[training] = l.epochs(t, 0, 5)
		if s := e.Status().Jobs[0].Importance; s.Refused.Stale != 0 || s.Epoch != 4 || s.State != "active" {
			t.Errorf("training %d: %+v", training, s)
		}
	}
	for epoch := range orders[0] {
		if !slices.Equal(orders[0][epoch], orders[1][epoch]) {
			t.Errorf("epoch %d of the second training has another order, though its losses are the same", epoch)
		}
	}
}
