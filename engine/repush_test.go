package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"lcache/internal/serve/deliver"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/sample"
)

// shuffled are epochs of batches of 16, each of all the samples that a rank of a world has.
func shuffled(seed uint64, samples, epochs, world, rank int) [][][]sample.Index {
	r := rand.New(rand.NewPCG(seed, 5))
	orders := make([][][]sample.Index, epochs)
	for epoch := range orders {
		var own []sample.Index
		for i, index := range r.Perm(samples) {
			if i%world == rank {
				own = append(own, sample.Index(index))
			}
		}
		orders[epoch] = slices.Collect(slices.Chunk(own, 16))
	}
	return orders
}

// unordered is a cache without a recipe, with a window of less than 24 MiB.
func unordered(t *testing.T, layout string, samples int) (*dataset, Options) {
	t.Helper()
	d := makeDataset(t, samples, func(r *rand.Rand, _ int) int { return r.IntN(30_000) })
	o, _ := ingested(t, d, ingest.Options{Block: 128 << 10, Memory: 24 << 20})
	o.Layout, o.Patience = layout, 20*time.Second // a slow machine must not cause reads by index here
	return d, o
}

func (d *dataset) push(t *testing.T, e *Engine, rank, from, to int, orders [][][]sample.Index) {
	t.Helper()
	for epoch := from; epoch < to; epoch++ {
		push(t, e, epoch, rank, orders[epoch])
	}
}

// readPushed reads a rank's epoch. It returns how many of its samples were read by index, and whether the log was being reordered for the next epoch
// before the last batch, as in epochs that take longer than a few milliseconds. It waits for that for a limited time, because the scan may
// wait for the slots of the previous batch.
func (d *dataset) readPushed(t *testing.T, e *Engine, c *deliver.Client, epoch, rank int, orders [][][]sample.Index) (byIndex int, ahead bool) {
	t.Helper()
	before := e.Status().Jobs[0].RandomReads
	got, err := d.readPaced(e, c, epoch, rank, 0, func(batch int) {
		for until := time.After(2 * time.Second); batch == len(orders[epoch])-1; {
			_, changed := e.logged("Logfiles")
			if ahead = e.laysOut(epoch + 1); ahead {
				return
			}
			select {
			case <-changed:
			case <-until:
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, slices.Concat(orders[epoch]...)) {
		t.Fatalf("epoch %d rank %d: order differs from the one pushed", epoch, rank)
	}
	return int(e.Status().Jobs[0].RandomReads - before), ahead
}

// laysOut reports whether the log is in an epoch's order or is being sorted into it, or never will be: its order is not known, or nothing is moved.
func (e *Engine) laysOut(epoch int) bool {
	l, ok, _ := e.nowLogfiles()
	return e.cache.IsStatic() || !e.cache.Schedule.IsComplete(epoch, time.Hour) || ok && goesTo(epoch)(l)
}

// TestPushedAgain: a client begins again, with its own orders for epochs that another client has read or announced (a loader that was made
// again in a notebook). Its order is laid out from its second epoch on.
func TestPushedAgain(t *testing.T) {
	testenv.Long(t)
	for _, c := range []struct {
		name, layout string
		epochs, part int // that are read in the first orders: whole ones, and batches of the next
	}{
		{"log", cache.LayoutLog, 1, 0}, {"log, broken off", cache.LayoutLog, 1, 20}, {"log, later", cache.LayoutLog, 3, 0}, {"static", cache.LayoutStatic, 1, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, o := unordered(t, c.layout, 900)
			e := open(t, o)
			defer closeEngine(t, e)
			client := attach(t, e)
			first := shuffled(1, len(d.bytes), c.epochs+3, 1, 0)
			for epoch := range c.epochs {
				d.push(t, e, 0, epoch, epoch+3, first)
				d.readPushed(t, e, client, epoch, 0, first)
			}
			for batch := range c.part {
				b, err := client.Chunk(context.Background(), c.epochs, 0, batch)
				if err != nil {
					t.Fatal(err)
				}
				client.Release(b.Lease)
			}
			second := shuffled(2, len(d.bytes), 6, 1, 0)
			laidOut := 0
			for epoch, ahead := 0, false; epoch < 3; epoch++ {
				d.push(t, e, 0, epoch, epoch+3, second)
				byIndex, next := d.readPushed(t, e, client, epoch, 0, second)
				if ahead {
					laidOut++
				}
				if ahead && byIndex > len(d.bytes)/4 {
					t.Errorf("epoch %d in another order: %d of %d samples read by index, want hardly any: the order was pushed an epoch before", epoch, byIndex, len(d.bytes))
				}
				ahead = next
			}
			if laidOut == 0 {
				t.Error("no epoch was laid out in time")
			}
			if s := noSource(t, e); s.Divergences != 0 {
				t.Errorf("%d divergences", s.Divergences)
			}
		})
	}
}

// TestRankPushesLater: the layout for the ranks that have pushed is made again when one more rank pushes, as long as its Logfile is not begun.
func TestRankPushesLater(t *testing.T) {
	testenv.Long(t)
	d, o := unordered(t, cache.LayoutLog, 4000) // half of it is more than the window: epoch 2 is not begun while epoch 0 is read
	e := open(t, o)
	defer closeEngine(t, e)
	laidOut := func(times int, ranks ...int) {
		t.Helper()
		logsBecome(t, e, fmt.Sprintf("epoch 2 is laid out for ranks %v", ranks), func(logfiles) bool {
			n, last := e.laidOut(2)
			return n >= times && last == fmt.Sprint(ranks)
		})
		if n, _ := e.laidOut(2); n != times {
			t.Errorf("epoch 2 was laid out %d times, want %d", n, times)
		}
	}
	orders := [][][][]sample.Index{shuffled(1, len(d.bytes), 3, 2, 0), shuffled(1, len(d.bytes), 3, 2, 1)}
	d.push(t, e, 0, 0, 3, orders[0])
	c := attach(t, e)
	for batch := range len(orders[0][0])/4 + 1 { // nothing is appended before a quarter is delivered
		b, err := c.Chunk(context.Background(), 0, 0, batch)
		if err != nil {
			t.Fatal(err)
		}
		c.Release(b.Lease)
	}
	laidOut(1, 0)
	d.push(t, e, 0, 0, 3, orders[0]) // the same again changes nothing
	laidOut(1, 0)
	d.push(t, e, 1, 0, 3, orders[1])
	laidOut(2, 0, 1)
	d.readPushed(t, e, c, 0, 0, orders[0])
	d.readPushed(t, e, c, 0, 1, orders[1])
	noSource(t, e)
}
