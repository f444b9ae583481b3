package simulate

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
)

// orders makes the orders of all epochs, each while the one before it is looked at. An order is given as positions: entry k
// is where sample k stands. A reader of the table goes through samples one after the other, and everything that is known of
// a sample is in the processor's cache.
type orders struct {
	samples int
	epochs  int
	used    int // positions that some mini-batch takes; what stands behind them is dropped
	seed    uint64
	given   func(epoch int) []uint32 // indices in reading order; nil means a permutation by seed

	ahead map[int]chan made
	spare chan []uint32 // unused tables for positions
}

type made struct {
	positions []uint32
	err       error
}

// nowhere is the position of a sample that an order leaves out.
const nowhere = math.MaxUint32

func newOrders(s *Simulation) *orders {
	n := int(s.Workload.Samples)
	o := &orders{samples: n, epochs: int(s.Workload.Epochs), used: s.steps() * s.Machine.Workers * int(s.Workload.Batch), seed: s.Seed, given: s.Orders,
		ahead: map[int]chan made{}, spare: make(chan []uint32, 2)}
	for range cap(o.spare) {
		o.spare <- make([]uint32, n)
	}
	return o
}

// use calls do with the positions of an epoch, and begins with the next one meanwhile. do must not keep them.
func (o *orders) use(ctx context.Context, epoch int, do func(positions []uint32)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for e := epoch; e < min(epoch+2, o.epochs); e++ {
		if o.ahead[e] == nil {
			ready := make(chan made, 1)
			o.ahead[e] = ready
			go func() { ready <- o.make(e) }()
		}
	}
	ready := o.ahead[epoch]
	select {
	case m := <-ready:
		delete(o.ahead, epoch)
		if m.err != nil {
			return m.err
		}
		do(m.positions)
		o.spare <- m.positions
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// forget waits for the order that was computed ahead, and frees it. It is called at the end, and before an epoch that is not
// the next one.
func (o *orders) forget() {
	for e, ready := range o.ahead {
		if m := <-ready; m.positions != nil {
			o.spare <- m.positions
		}
		delete(o.ahead, e)
	}
}

func (o *orders) make(epoch int) made {
	if o.given != nil {
		return o.invert(epoch, o.given(epoch))
	}
	positions := <-o.spare
	permute(positions, o.seed, uint64(epoch))
	return made{positions: positions}
}

// invert turns an order that was given into positions.
func (o *orders) invert(epoch int, order []uint32) made {
	if len(order) < o.used {
		return made{err: fmt.Errorf("the order of epoch %d has %d positions, and its mini-batches take %d", epoch, len(order), o.used)}
	}
	positions := <-o.spare
	for k := range positions {
		positions[k] = nowhere
	}
	for at, k := range order {
		switch {
		case int(k) >= o.samples:
			o.spare <- positions
			return made{err: fmt.Errorf("the order of epoch %d has index %d of %d samples", epoch, k, o.samples)}
		case positions[k] != nowhere:
			o.spare <- positions
			return made{err: fmt.Errorf("the order of epoch %d has index %d twice", epoch, k)}
		}
		positions[k] = uint32(at)
	}
	return made{positions: positions}
}

// permute writes a random permutation of 0 … len(to)-1: every number goes to a random bucket, and every bucket is shuffled by
// itself (Rao 1961, Sandelius 1962). A bucket fits into the processor's cache, where one shuffle of everything waits for
// memory at every step.
func permute(to []uint32, seed, epoch uint64) {
	const buckets = 256 // a byte of the generator says which
	var begin [buckets + 1]int
	eachByte(len(to), seed, epoch, func(_ int, b uint8) { begin[int(b)+1]++ })
	for b := range buckets {
		begin[b+1] += begin[b]
	}
	next := begin
	eachByte(len(to), seed, epoch, func(v int, b uint8) {
		to[next[b]] = uint32(v)
		next[b]++
	})
	r := rand.NewPCG(seed, ^epoch)
	for b := range buckets {
		bucket := to[begin[b]:begin[b+1]]
		for i := len(bucket) - 1; i > 0; i-- {
			j, _ := bits.Mul64(r.Uint64(), uint64(i+1)) // a number below i+1
			bucket[i], bucket[j] = bucket[j], bucket[i]
		}
	}
}

// eachByte calls do with n random bytes, the same for the same seed and epoch.
func eachByte(n int, seed, epoch uint64, do func(i int, b uint8)) {
	r := rand.NewPCG(seed, epoch)
	for i := 0; i < n; i += 8 {
		word := r.Uint64()
		for j := i; j < min(i+8, n); j++ {
			do(j, uint8(word))
			word >>= 8
		}
	}
}
