package engine

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"lcache/deliver"
	"lcache/drawn"
	"lcache/importance"
	"lcache/ingest"
	"lcache/quota"
	"lcache/sample"
	"lcache/schedule"
)

// TestLowOfLittle: datasets and observations from which little follows: each epoch is read to its end, by the law.
func TestLowOfLittle(t *testing.T) {
	steady := func(v float32) func(sample.Index) float32 { return func(sample.Index) float32 { return v } }
	for name, c := range map[string]struct {
		samples, bytes, cache int
		loss                  func(sample.Index) float32 // nil: nobody reports of an epoch that is known
		plain                 bool                       // no epoch is drawn
	}{
		"one sample of a class":   {3, 5000, 0, steady(1), false},
		"fewer than a batch":      {7, 5000, 0, steady(1), false},
		"all losses are the same": {60, 5000, 20_000, steady(1), false},
		"all losses are zero":     {60, 5000, 20_000, steady(0), false},
		"no loss is a number":     {60, 5000, 20_000, steady(float32(math.NaN())), true},
		"all reports are stale":   {60, 5000, 20_000, nil, true},
		"no memory for H":         {60, 5000, 0, func(i sample.Index) float32 { return float32(i) }, false},
		"memory for less than H":  {60, 5000, 100, func(i sample.Index) float32 { return float32(i) }, false},
		"memory for all":          {60, 5000, 600_000, func(i sample.Index) float32 { return float32(i) }, false},
		"samples without bytes":   {60, 0, 20_000, func(i sample.Index) float32 { return float32(i) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := makeDataset(t, c.samples, func(*rand.Rand, int) int { return c.bytes })
			o, _ := ingested(t, d, ingest.Options{Job: schedule.Job{World: 1}, Memory: 56 << 20})
			o.LateEpoch = time.Minute
			e := open(t, o)
			defer closeEngine(t, e)
			l := losing{d: d, e: e, world: 1}
			observed := func(rank, epoch, batch int, served []sample.Index) importance.Observation {
				o := importance.Observation{Kind: importance.Losses, Rank: uint16(rank), Epoch: uint32(epoch), Batch: uint32(batch)}
				if c.loss == nil {
					o.Epoch += 100 // stale
				}
				for _, i := range served {
					v := float32(0)
					if c.loss != nil {
						v = c.loss(i)
					}
					o.Index, o.Loss = append(o.Index, i), append(o.Loss, v)
				}
				return o
			}
			l.ask(t, 0, fmt.Sprintf(`{"method":"impact","substitute":"low","batch_size":16,"cache":%d,"params":{"s_share":0}}`, c.cache))
			for epoch := range 4 {
				order := l.begin(t, epoch)[0]
				high := e.highNow(t, 0)
				got := l.stepsObserved(t, epoch, 0, observed)
				n := got.substitutes(t, high, false)
				if plain := epoch == 0 || c.plain; plain && (n > 0 || len(order) != c.samples) {
					t.Errorf("epoch %d has %d samples and %d substitutes, want a plain one", epoch, len(order), n)
				}
			}
			if s := e.Status().Jobs[0]; s.Divergences != 0 || c.plain != (s.Importance.State != string(importance.Active)) {
				t.Errorf("%d divergences, state %s", s.Divergences, s.Importance.State)
			}
		})
	}
}

// TestOrderTakenBackWhileDelivered: an order that the worker takes back, and plans again, while a delivery of it is counted.
func TestOrderTakenBackWhileDelivered(t *testing.T) {
	two := &twoOrders{requested: map[int][][]sample.Index{0: {{1, 2, 3}}}, kinds: importance.Kinds{0}, places: 3, world: 1, size: 3}
	p := &important{two: map[int]*twoOrders{}}
	at, d := &deliver.Position{Epoch: 1}, deliver.Delivery{Indices: []sample.Index{1, 5, 3}, Requested: []sample.Index{1, 2, 3}}
	stop := make(chan struct{})
	var worker sync.WaitGroup
	worker.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			p.mu.Lock()
			p.two[1] = two
			p.mu.Unlock()
			p.mu.Lock()
			delete(p.two, 1)
			p.mu.Unlock()
		}
	})
	counted := 0
	for until := time.Now().Add(10 * time.Second); counted < 1000 && time.Now().Before(until); {
		if kinds := p.kindsOf(at, d); kinds != nil {
			counted++
			if kinds[1] != importance.Substitute {
				t.Errorf("kinds %v", kinds)
			}
		}
	}
	close(stop)
	worker.Wait()
	if counted == 0 {
		t.Error("no delivery found the order")
	}
}

// What is counted of requested orders is what is given back: also where there was no room for one, and where one is kept again.
func TestRequestedOrdersAreCountedExactly(t *testing.T) {
	orders := quota.New(0).Share(100, 100)
	other := &twoOrders{requested: map[int][][]sample.Index{0: {{1, 2, 3}}}}
	s, err := schedule.New(schedule.Job{}, 10)
	if err != nil {
		t.Fatal(err)
	}
	p := &important{j: newJob(1, s), state: &drawn.State{}, room: &holding{orders: orders}, two: map[int]*twoOrders{}}
	p.addTwo(0, &twoOrders{requested: map[int][][]sample.Index{0: {{1, 2, 3}}}})
	p.addTwo(0, other)
	if got := orders.Taken(); got != other.bytes() {
		t.Errorf("one order takes %d bytes, and %d are counted", other.bytes(), got)
	}
	p.addTwo(1, &twoOrders{requested: map[int][][]sample.Index{0: {make([]sample.Index, 100)}}})
	p.dropTwo(func(int) bool { return true })
	if got := orders.Taken(); got != 0 {
		t.Errorf("%d bytes are counted when all orders are dropped", got)
	}
}
